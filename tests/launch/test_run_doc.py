"""What docs/run.md says is so."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

import loadeval
from loadeval.cli.main import app
from tests.launch.conftest import ROOT, ran
from tests.launch.installing import install

PAGE = (ROOT / "docs" / "run.md").read_text(encoding="utf-8")
(FIRST, *_) = re.findall(r"^\$ (.*)$", PAGE, re.MULTILINE)
(OTHER_SETTINGS,) = re.findall(r"^\$ (loadeval run --set .*)$", PAGE, re.MULTILINE)
(IN_A_NOTEBOOK,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
TRAIN = """from torch.utils.data import DataLoader
for _ in DataLoader(list(range(8))):
    pass
"""


def test_the_options_that_it_names_exist() -> None:
    shown = "".join(
        CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).stdout
        for command in ("run", "diagnose")
    )
    for option in set(re.findall(r"`(--[a-z-]+)", PAGE)):
        assert option in shown


@pytest.mark.check
def test_the_command_with_other_settings_has_them(tmp_path: Path) -> None:
    """As the line below it on the page says."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    done = ran(tmp_path, *OTHER_SETTINGS.split()[1:])
    assert done.returncode == 0, done.stderr
    shown = " ".join(done.stderr.split())
    for line in ("rank0.jsonl training 128 2 128 x 16 samples", "num_workers=2"):
        assert line in shown
        assert line in " ".join(PAGE.split())


def test_the_errors_are_those_that_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    of_command, of_loader = re.findall(r"^ +\S*(Error: .*)$", PAGE, re.MULTILINE)
    refused = CliRunner().invoke(app, ["run", "--set", "batch_size=64", "--", "python"])
    assert (refused.exit_code, refused.stderr.strip()) == (1, of_command)
    install(settings={"prefetch_factor": 4})
    with pytest.raises(loadeval.UsageError) as caught:
        exec(TRAIN, {})
    assert f"Error: {caught.value}" == of_loader


def test_a_notebook_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(IN_A_NOTEBOOK.replace("...  # train\n", TRAIN), {})
    assert list(tmp_path.glob("loadeval-runs/*/*.jsonl"))
