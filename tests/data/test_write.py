"""Writing a run log: each line is on the disk at once, and a file that is there stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadeval.data.lines import Block, RunEnd, encode
from loadeval.data.log import RunLog, read_run
from loadeval.errors import RunLogError
from tests.builder import make_header

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
    with pytest.raises(RunLogError, match=r"run.jsonl exists already; give another"):
        RunLog(path, make_header())
    with pytest.raises(RunLogError, match="exists already; give another"):
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
    with pytest.raises(RunLogError, match="cannot write the run log /dev/null: it is no file"):
        RunLog("/dev/null", make_header(), overwrite=True)
