"""Writing a run log: each line is on the disk at once, and a file that is there stays."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from loadeval.data.lines import Block, RunEnd, encode
from loadeval.data.log import RunLog, read_run
from loadeval.errors import RunLogError
from tests.full_disk import files_no_larger_than
from tests.runs.given import make_header

LINE = encode(Block(0, "real", [0, 17], [10, 10]))


@pytest.fixture(name="path")
def _path(tmp_path: Path) -> Path:
    """The path of a log that is not written yet."""
    return tmp_path / "run.jsonl"


def test_lines_are_on_the_disk_at_once(path: Path) -> None:
    log = RunLog(path, make_header())
    assert read_run(path).batches == 0
    log.append(LINE)
    assert (read_run(path).batches, read_run(path).closed) == (2, False)
    assert log.written_bytes == path.stat().st_size
    log.append(encode(RunEnd(2)))
    assert read_run(path).closed
    log.close()
    with pytest.raises(OSError, match="it is closed"):
        log.append(LINE)


def test_a_file_is_overwritten_only_when_asked(path: Path) -> None:
    path.write_text("a measurement, and a long one at that" * 100)
    with pytest.raises(RunLogError, match=r"run.jsonl already exists.*overwrite=True"):
        RunLog(path, make_header())
    with pytest.raises(RunLogError, match="is a folder, and"):
        RunLog(path.parent, make_header())
    assert path.read_text().startswith("a measurement")
    first = RunLog(path, make_header(), overwrite=True)
    RunLog(path, make_header(name="second"), overwrite=True).append(LINE)
    with pytest.raises(OSError, match="another run has overwritten it"):
        first.append(LINE)
    assert (read_run(path).header.name, read_run(path).batches) == ("second", 2)


def test_what_cannot_be_written_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(RunLogError, match=r"cannot write.*No such file.*folder that exists"):
        RunLog(tmp_path / "no" / "run.jsonl", make_header())
    if Path("/dev/full").exists():
        with pytest.raises(RunLogError, match="the run log /dev/full: No space left"):
            RunLog("/dev/full", make_header(), overwrite=True)


def test_a_disk_that_fills_up_is_an_os_error(path: Path) -> None:
    """What was written before is readable."""
    log = RunLog(path, make_header())
    log.append(LINE)
    with files_no_larger_than(path.stat().st_size + 20), pytest.raises(OSError, match="too large"):
        log.append(LINE)
    assert read_run(path).batches == 2
    assert read_run(path).notes[0].startswith("line 3 is cut off")


def test_a_file_that_was_removed_or_changed_takes_no_line(path: Path) -> None:
    removed = RunLog(path, make_header())
    path.unlink()
    changed = RunLog(path, make_header())
    os.truncate(path, 30)
    for log, why in ((removed, "it was removed"), (changed, "it was cut off, or another program")):
        with pytest.raises(OSError, match=why):
            log.append(LINE)
        assert log.is_lost
    assert path.stat().st_size == 30


def test_a_file_that_the_program_closes_takes_no_line(path: Path) -> None:
    """Its number is the program's, and stays open."""
    log = RunLog(path, make_header())
    number = log._file
    assert number is not None
    os.close(number)
    assert os.open(path.with_suffix(".txt"), os.O_WRONLY | os.O_CREAT) == number
    with pytest.raises(OSError, match="the program closed its file descriptor"):
        log.append(LINE)
    log.close()
    assert os.write(number, b"mine") == 4
    os.close(number)


def test_a_forked_childs_lines_go_nowhere(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = RunLog(path, make_header())
    with monkeypatch.context() as patched:
        patched.setattr(os, "getpid", lambda: -1)
        log.append(LINE)
    log.append(LINE)
    assert read_run(path).batches == 2
