"""The code of docs/frameworks.md runs as it stands, and measures; its versions are these."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from loadeval import read_run

DOCUMENT = (Path(__file__).parents[2] / "docs" / "frameworks.md").read_text(encoding="utf-8")
EXAMPLES = [
    (section.partition("\n")[0], block)
    for section in DOCUMENT.split("\n## ")
    for block in re.findall(r"(?ms)^```python\n(.*?)^```$", section)
]
ON_SEVERAL = next(block for _, block in EXAMPLES if "devices=2" in block)
RUNNABLE = [
    pytest.param(title, block, id=title) for title, block in EXAMPLES if block != ON_SEVERAL
]
PROGRAM = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

inputs, targets = torch.randn(640, 8), torch.randint(0, 2, (640,))
dataset = TensorDataset(inputs, targets)
dataloader = DataLoader(dataset, batch_size=8, shuffle=True)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss_of = nn.CrossEntropyLoss()
"""
"""What a reader has, whatever the framework."""
OWN = {
    "Lightning": """
from lightning.pytorch import LightningModule


class Classifier(LightningModule):
    def __init__(self):
        super().__init__()
        self.model = model

    def training_step(self, batch, batch_number):
        inputs, targets = batch
        return loss_of(self.model(inputs), targets)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
""",
    "Hugging Face Trainer": """
class Classifier(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, inputs, labels):
        outputs = self.model(inputs)
        return {"loss": loss_of(outputs, labels), "outputs": outputs}


dataset = [{"inputs": x, "labels": y} for x, y in dataset]
model = Classifier(model)
""",
    "Keras": """
import os
os.environ["KERAS_BACKEND"] = "torch"
import keras

network = keras.Sequential([keras.layers.Dense(2)])
network.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
""",
}
"""And with it."""
BATCHES = 2 * 80


# What the frameworks have to say of such small trainings, and of torch, is theirs.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("title", "block"), RUNNABLE)
def test_an_example_measures(
    title: str, block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {"__name__": "__main__"}
    exec(PROGRAM + OWN.get(title, "") + block, scope)
    measured = scope.get("measured") or scope.get("loader") or scope["trainer"].measured
    read_to_build = int(title == "Keras")
    assert len(measured.recorded().steps) == BATCHES + read_to_build


def test_the_example_on_several_devices_measures(tmp_path: Path) -> None:
    """Lightning launches it; each rank leaves the log of its half of the batches."""
    script = tmp_path / "train.py"
    script.write_text(PROGRAM + OWN["Lightning"] + ON_SEVERAL, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, script],
        cwd=tmp_path,
        env={key: value for key, value in os.environ.items() if key != "PYTHONWARNINGS"},
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        assert len(read_run(tmp_path / f"rank{rank}.jsonl").steps) == BATCHES / 2


def test_the_versions_are_those_installed() -> None:
    rows = re.findall(r"^\| [\w ,]+ \| ([\w-]+) ([\d.]+) \|", DOCUMENT, re.MULTILINE)
    assert len(rows) == 8
    for package, tested in rows:
        assert version(package).startswith(tested), package
