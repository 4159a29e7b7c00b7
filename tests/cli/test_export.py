"""`loadeval export`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from loadeval import export
from tests.cli.commands import runner
from tests.runs.measured import record

if TYPE_CHECKING:
    from pathlib import Path

WRITTEN = {
    "chrome": ["run.trace.json"],
    "csv": ["run.csv", "run-readings.csv"],
}
run = runner("export")
all_formats = pytest.mark.parametrize("form", WRITTEN)


@pytest.fixture(name="log")
def _log(tmp_path: Path) -> Path:
    return record(tmp_path / "run.jsonl", batches=5)


def files_in(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


@all_formats
def test_it_goes_beside_the_run(form: str, log: Path) -> None:
    """It has the run's name, and every file that was written is told."""
    code, out, err = run(log, "--format", form)
    assert (code, err) == (0, "")
    written = [path for name in WRITTEN[form] for path in log.parent.glob(name)]
    assert out.splitlines() == [f"Written to {path}" for path in written]
    assert files_in(log.parent) == {log, *written}


@all_formats
def test_nothing_is_overwritten_unasked(form: str, log: Path) -> None:
    """The error says what to do, and with that it is replaced."""
    run(log, "--format", form)
    before = {path: path.read_bytes() for path in files_in(log.parent)}
    code, out, err = run(log, "--format", form)
    assert (code, out) == (1, "")
    assert len(err.splitlines()) == 1
    assert "already exists" in err
    assert "--overwrite" in err
    assert {path: path.read_bytes() for path in files_in(log.parent)} == before
    assert run(log, "--format", form, "--overwrite")[0] == 0
    assert files_in(log.parent) == set(before)


@all_formats
def test_another_place_can_be_named(form: str, log: Path, tmp_path: Path) -> None:
    """It is given with --output, in a folder that exists."""
    (tmp_path / "there").mkdir()
    assert run(log, "-f", form, "-o", tmp_path / "there" / "it")[0] == 0
    assert files_in(tmp_path) == {log, *files_in(tmp_path / "there")}


def test_of_a_folder_it_is_the_only_log(tmp_path: Path) -> None:
    """One of several has to be named."""
    record(tmp_path / "rank0.jsonl")
    assert run(tmp_path, "--format", "chrome")[0] == 0
    assert list(tmp_path.glob("rank0*.json"))
    record(tmp_path / "rank1.jsonl")
    code, _, err = run(tmp_path, "--format", "chrome", "--overwrite")
    assert code == 1
    assert "has 2 run logs; give one, such as" in err
    assert "rank0.jsonl" in err


@all_formats
def test_a_folder_that_is_not_there_is_told(form: str, log: Path, tmp_path: Path) -> None:
    """One error, and nothing is left behind."""
    code, _, err = run(log, "-f", form, "-o", tmp_path / "none" / "it")
    assert code == 1
    assert err.startswith(f"Error: cannot write {tmp_path / 'none' / 'it'}: No such file")
    assert files_in(tmp_path) == {log}


def test_what_fails_half_way_leaves_nothing(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an earlier export wrote is not touched either."""
    run(log, "-f", "csv")
    before = {path: path.read_bytes() for path in files_in(tmp_path)}

    def failing(*arguments: Any) -> Any:
        _, path, files = arguments
        files.part(path).write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(export, "write_csv", failing)
    code, _, err = run(log, "-f", "csv", "--overwrite")
    assert (code, "No space left" in err) == (1, True)
    assert {path: path.read_bytes() for path in files_in(tmp_path)} == before


def test_an_unknown_format_is_wrong_usage(log: Path) -> None:
    """The error names all that there are."""
    code, _, err = run(log, "--format", "excel")
    assert code == 2
    assert all(form in err for form in WRITTEN)
