"""Ray Train, on a Ray of this machine: unmodified, and with the lines of the how-to."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from textwrap import indent

import pytest

from loadeval import read_run
from tests.launch.conftest import ROOT, launched, ran

pytest.importorskip("ray.train")

SCRIPT = str(Path(__file__).with_name("scripts") / "ray_train.py")
PAGE = (ROOT / "docs" / "howto" / "clusters.md").read_text(encoding="utf-8")
(BLOCK,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
BATCHES, HELD = 2 * 60, 2 * 15
"""The batches on each of two workers."""
TRAIN = """
import ray.train
import ray.train.torch
import torch
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from loadeval import LoaderEvaluator


def train_epochs(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)
        for inputs, targets in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()


def train():
    dataset = TensorDataset(torch.randn(960, 8), torch.randn(960, 1))
    dataloader = DataLoader(dataset, batch_size=8, shuffle=True)
    model = ray.train.torch.prepare_model(nn.Linear(8, 1))
    LINES


TorchTrainer(train, scaling_config=ScalingConfig(num_workers=2)).fit()
"""
"""What is around the lines of the how-to."""


def losses_in(folder: Path) -> list[str]:
    return [path.read_text(encoding="utf-8") for path in sorted(folder.iterdir())]


def run(script: str, folder: Path) -> None:
    """Run it by itself, with losses or logs in `folder`."""
    folder.mkdir()
    done = ran(folder.parent, sys.executable, script, folder)
    assert done.returncode == 0, done.stderr


def test_an_unmodified_program_is_measured_and_trains_the_same(tmp_path: Path) -> None:
    """Ray's workers inherit the environment; training alternates and validation is logged."""
    run(SCRIPT, tmp_path / "bare")
    measured = tmp_path / "measured"
    measured.mkdir()
    done = launched(tmp_path, [sys.executable, SCRIPT, str(measured)], "--mode", "alternate")
    assert done.code == 0, done.err
    assert losses_in(measured) == losses_in(tmp_path / "bare")
    assert done.batches == {
        "rank0-validation.jsonl": HELD,
        "rank0.jsonl": BATCHES,
        "rank1-validation.jsonl": HELD,
        "rank1.jsonl": BATCHES,
    }
    assert [process.main.log for process in done.processes if process.main] == [
        "rank0.jsonl",
        "rank1.jsonl",
    ]
    first, second = (done.run(f"rank{rank}.jsonl").steps.arm.tolist() for rank in (0, 1))
    assert first == second
    assert set(first) == {0, 1}


def test_the_how_to_measures_in_the_train_function(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    logs = tmp_path / "logs"
    lines = indent(BLOCK.replace("/shared/logs", str(logs)), "    ")
    script.write_text(TRAIN.replace("    LINES\n", lines))
    run(str(script), logs)
    for rank in (0, 1):
        recorded = read_run(logs / f"rank{rank}.jsonl")
        assert recorded.batches == BATCHES
        assert recorded.closed
        assert recorded.header.mode == "alternate"
