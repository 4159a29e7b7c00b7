"""What docs/what-if.md says is so."""

from __future__ import annotations

import re
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from loadeval import tune
from loadeval.cli.main import app
from loadeval.testing import FakeClock, ScriptedLoader
from tests.runs import DEMO

PAGE = (Path(__file__).parents[1] / "docs" / "what-if.md").read_text(encoding="utf-8")
SHOWN = re.findall(
    r"^```console\n\$ (.*?)\n```\n\n```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL
)
WHAT_IF, TUNE = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(autouse=True)
def _in_the_folder_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(DEMO, tmp_path / "run.jsonl")


@pytest.mark.parametrize(("command", "output"), SHOWN)
def test_a_command_prints_what_is_shown(command: str, output: str) -> None:
    done = CliRunner().invoke(app, command.split()[1:], env={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    assert [line.rstrip() for line in done.stdout.splitlines()] == output.splitlines()


def test_python_predicts(capsys: pytest.CaptureFixture[str]) -> None:
    exec(WHAT_IF, {})
    said = capsys.readouterr().out
    assert re.fullmatch(r"1\.\d\d to [12]\.\d\d, then the \w[\w ]+\n", said)


class Loader(ScriptedLoader):
    """A batch takes 40 ms of its clock, divided by its workers."""

    def __init__(self, clock: FakeClock, num_workers: int) -> None:
        super().__init__([torch.ones(4)] * 50, [40_000_000 // num_workers] * 50, clock)


def test_python_tunes(capsys: pytest.CaptureFixture[str]) -> None:
    clock = FakeClock()
    names: dict[str, Any] = {
        "make_loader": lambda **settings: Loader(clock, **settings),
        "step": lambda _batch: clock.advance(10_000_000),
        "tune": partial(tune, clock=clock),
    }
    exec(TUNE.replace("from loadeval import tune\n", ""), names)
    assert "num_workers=4" in capsys.readouterr().out
    assert len(names["loader"]) == 50
