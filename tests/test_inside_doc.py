"""What docs/inside-the-loader.md says is so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from loadeval.analysis.stages import SLOW_SAMPLE, UNEVEN
from loadeval.cli.main import app
from tests.staged import staged, write_run

PAGE = (Path(__file__).parents[1] / "docs" / "inside-the-loader.md").read_text(encoding="utf-8")


def code_blocks(language: str) -> list[str]:
    """The fenced blocks in `language`."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(autouse=True)
def _in_the_folder_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's run is in run.jsonl, in the working folder."""
    monkeypatch.chdir(tmp_path)
    write_run(staged(name="run"), tmp_path / "run.jsonl")


def printed(*arguments: str) -> list[str]:
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    return [line.rstrip() for line in done.stdout.splitlines()]


def test_the_line_is_that_of_the_comparison() -> None:
    """As `loadeval compare` prints it."""
    line, _ = code_blocks("text")
    assert line.rstrip() in printed("compare", "run.jsonl")


def test_the_tables_are_those_of_the_command() -> None:
    """As the page's command prints them."""
    (command,) = code_blocks("console")
    program, *arguments = command.removeprefix("$ ").split()
    assert program == "loadeval"
    assert printed(*arguments) == code_blocks("text")[1].splitlines()


def test_the_code_that_reads_stages_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """It finds slow samples in both epochs."""
    scope: dict[str, Any] = {}
    exec(code_blocks("python")[1], scope)  # noqa: S102 - the document is ours
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["epoch 0", "epoch 1"]
    assert all(re.search(r"\[\d+, \d+", line) for line in lines)


def test_the_thresholds_are_those_of_the_analysis() -> None:
    """Of slow samples, and of workers that differ."""
    assert f"took over {SLOW_SAMPLE:g} times the typical sample" in PAGE
    assert f"typically takes over {UNEVEN:g} times as long as the fastest one" in PAGE
