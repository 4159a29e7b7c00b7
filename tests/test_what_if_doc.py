"""What docs/what-if.md says is so."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset
from typer.testing import CliRunner

from loadeval import Tuning
from loadeval.cli.main import app
from tests.runs import DEMO

PAGE = (Path(__file__).parents[1] / "docs" / "what-if.md").read_text(encoding="utf-8")
SHOWN = re.findall(
    r"^```console\n\$ (.*?)\n```\n\n```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL
)
WHAT_IF, CURVE, TUNE = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(autouse=True)
def _in_the_folder_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(DEMO, tmp_path / "run.jsonl")


@pytest.mark.parametrize(("command", "output"), SHOWN)
def test_a_command_prints_what_is_shown(command: str, output: str) -> None:
    done = CliRunner().invoke(app, command.split()[1:], env={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    assert [line.rstrip() for line in done.stdout.splitlines()] == output.splitlines()


def test_the_options_that_it_names_exist() -> None:
    shown = CliRunner().invoke(app, ["whatif", "--help"], env={"COLUMNS": "200"}).stdout
    for option in re.findall(r"`(--[a-z-]+)", PAGE.partition("## Tune")[0]):
        assert option in shown


def test_python_predicts(capsys: pytest.CaptureFixture[str]) -> None:
    exec(WHAT_IF, {})
    assert re.fullmatch(r"1\.\d\d to [12]\.\d\d, then \w[\w ]+\n", capsys.readouterr().out)


def test_python_draws_the_curve(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    exec(CURVE, {})
    assert re.match(r"0 3\d\d workers\n1 3\d\d workers\n2 727 workers\n", capsys.readouterr().out)
    assert (tmp_path / "whatif.png").exists()


class Waiting(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 4000

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.002)  # as storage would
        return torch.tensor(index)


@pytest.mark.check
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_python_tunes(capsys: pytest.CaptureFixture[str]) -> None:
    def make_loader(**settings: Any) -> DataLoader[torch.Tensor]:
        return DataLoader(Waiting(), batch_size=4, **settings)

    names: dict[str, Any] = {"make_loader": make_loader, "step": lambda _batch: time.sleep(0.002)}
    exec(TUNE, names)
    assert "num_workers" in capsys.readouterr().out
    assert isinstance(names["best"], Tuning)
    assert isinstance(names["loader"], DataLoader)
    assert names["loader"].num_workers > 1
