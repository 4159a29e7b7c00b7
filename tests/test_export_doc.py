"""What docs/export.md says is so."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from loadeval import read_run
from loadeval.cli.main import app
from loadeval.data.lines import StageTimes
from loadeval.export import export_run
from tests.recorded import logs_of
from tests.runs.measured import record

PAGE = Path(__file__).parents[1] / "docs" / "export.md"


def code_blocks(language: str) -> list[str]:
    """The fenced blocks in `language`."""
    pattern = rf"^```{language}\n(.*?)^```$"
    return re.findall(pattern, PAGE.read_text(), re.MULTILINE | re.DOTALL)


def rows() -> list[list[str]]:
    """The rows of all tables, the cells of each."""
    matches = re.findall(r"^\| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    return [[cell.strip() for cell in row.split("|")] for row in matches]


def columns_of(path: Path) -> list[str]:
    return path.read_text().partition("\n")[0].split(",")


@pytest.fixture(name="folder")
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a run in run.jsonl."""
    monkeypatch.chdir(tmp_path)
    record(tmp_path / "run.jsonl", waits_ns=[30, 10, 20, 10, 10], step_ns=7, probes=())
    return tmp_path


@pytest.fixture(name="exported")
def _exported(folder: Path) -> Path:
    """The same, after the page's commands."""
    for line in "".join(code_blocks("sh")).splitlines():
        command, *arguments = shlex.split(line)
        if command == "loadeval":
            done = CliRunner().invoke(app, arguments)
            assert done.exit_code == 0, done.output
    return folder


def test_the_commands_write_what_the_page_says(exported: Path) -> None:
    """Each file in the table is there, the run itself too, and no other."""
    named = [re.findall(r"`(run[-.][\w.-]+)/?`", row[1]) for row in rows() if len(row) == 2]
    files = {name for names in named for name in names}
    assert len(files) == 1 + 3
    assert {path.name for path in exported.iterdir()} == files


def test_the_columns_are_those_that_are_shown(exported: Path) -> None:
    """Of both tables, in order."""
    shown = [block.strip().split(",") for block in code_blocks("text")]
    assert shown == [columns_of(exported / name) for name in ("run.csv", "run-readings.csv")]


def test_the_columns_of_the_third_table_are_fields_of_stages(tmp_path: Path) -> None:
    """All but the lists by transform."""
    (log,) = logs_of("slow-transform", tmp_path)
    export_run(read_run(log), "csv", tmp_path / "run.csv")
    columns = columns_of(tmp_path / "run-stages.csv")
    assert set(columns) == set(StageTimes.__struct_fields__) - set(StageTimes.BY_NAME)


@pytest.mark.check
@pytest.mark.usefixtures("exported")
def test_the_code_for_pandas_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """It runs as it stands."""
    scope: dict[str, Any] = {}
    exec(code_blocks("python")[0], scope)
    assert scope["per_epoch"]["wait_ns"].tolist() == [80e-9]
    assert "wait_ns" in capsys.readouterr().out
