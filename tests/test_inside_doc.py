"""What docs/inside-the-loader.md says is so."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loadeval.cli.main import app
from loadeval.inside.operators import BUSY
from loadeval.inside.stages import SLOW_SAMPLE
from tests.runs import DEMO, SPDL

PAGE = (Path(__file__).parents[1] / "docs" / "inside-the-loader.md").read_text(encoding="utf-8")


def code_blocks(language: str) -> list[str]:
    """The fenced blocks in `language`."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(autouse=True)
def _in_the_folder_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's runs are in run.jsonl and spdl.jsonl, in the working folder."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(SPDL, tmp_path)
    shutil.copy(DEMO, tmp_path / "run.jsonl")


def printed(*arguments: str) -> list[str]:
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    return [line.rstrip() for line in done.stdout.splitlines()]


@pytest.mark.parametrize("place", range(2))
def test_the_tables_are_those_of_the_command(place: int) -> None:
    """The page's commands print them so, among the rest."""
    commands, tables = code_blocks("console"), code_blocks("text")
    assert len(commands) == len(tables) == 2
    program, *arguments = commands[place].removeprefix("$ ").split()
    assert program == "loadeval"
    assert tables[place] in "".join(f"{line}\n" for line in printed(*arguments))


def test_the_threshold_of_a_busy_operator_is_that_of_the_analysis() -> None:
    """An operator is the bottleneck from this threshold on."""
    assert f"busy {BUSY:.0%} of the time or more is the bottleneck" in PAGE


def test_the_threshold_of_a_slow_sample_is_that_of_the_analysis() -> None:
    assert f"took over {SLOW_SAMPLE:g} times the typical sample" in PAGE
