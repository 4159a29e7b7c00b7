"""A run log is written line by line and read back whole."""

from __future__ import annotations

import os
import resource
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import pytest

from loadeval.errors import RunLogError
from loadeval.runlog.model import UNKNOWN, Block, EpochEnd, Event, Header, Run, Steps
from loadeval.runlog.reader import Assembly, read_run
from loadeval.runlog.writer import RunLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from loadeval.runlog.codec import Line


def column(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


def blocks() -> list[Block]:
    """Two epochs, interleaved; samples known in part, bytes not at all."""
    nothing = column(UNKNOWN, UNKNOWN)
    return [
        Block(0, "real", column(0, 17), column(10, 10), column(7, UNKNOWN), column(4, -1), nothing),
        Block(1, "real", column(5, 35), column(20, 1), column(10, UNKNOWN), nothing, nothing),
        Block(0, "real", column(40, 60), column(10, 3), column(10, UNKNOWN), nothing, nothing),
    ]


ENDS = (EpochEnd(0, "exhausted", 70, 1), EpochEnd(1, "broken off"))
EVENTS = (Event(66, "the step changes its batch"),)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a log may go."""
    return tmp_path / "run.jsonl"


@pytest.fixture
def written(path: Path, make_header: Callable[..., Header]) -> Path:
    """A log of two epochs and an event."""
    log = RunLog(path, make_header())
    lines: list[Line] = [*blocks(), ENDS[0], *EVENTS, ENDS[1]]
    for line in lines:
        log.write(line)
    log.end(6)
    return path


def columns_of(run: Run) -> dict[str, list[int]]:
    return {name: getattr(run.steps, name).tolist() for name in Steps.__slots__}


def test_a_run_comes_back(written: Path, make_header: Callable[..., Header]) -> None:
    """Header, steps, ends and events are read back equal, and nothing is remarked."""
    run = read_run(written)
    assert run.header == make_header()
    assert run.ends == ENDS
    assert run.events == EVENTS
    assert (run.closed, run.notes, run.path) == (True, (), written)
    assert columns_of(run) == {
        "epoch": [0, 0, 0, 0, 1, 1],
        "arm": [0] * 6,
        "pair": [UNKNOWN] * 6,
        "request_ns": [0, 17, 40, 60, 5, 35],
        "wait_ns": [10, 10, 10, 3, 20, 1],
        "step_ns": [7, 13, 10, 7, 10, UNKNOWN],
        "samples": [4, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN],
        "nbytes": [UNKNOWN] * 6,
        "gpu_idle_ns": [UNKNOWN] * 6,
        "batch": [0, 1, 2, 3, 0, 1],
    }


def test_a_path_may_be_text(written: Path) -> None:
    """A path given as text reads the same file."""
    assert read_run(str(written)).path == written


def test_lines_are_on_disk_at_once(path: Path, make_header: Callable[..., Header]) -> None:
    """Nothing waits in the process: each line can be read as soon as it was written."""
    log = RunLog(path, make_header())
    assert len(read_run(path).steps) == 0
    log.write(blocks()[0])
    assert len(read_run(path).steps) == 2
    log.end(2)


def test_a_missing_end_line_is_noted(path: Path, make_header: Callable[..., Header]) -> None:
    """A run that did not say it ended is readable, not closed, and says so."""
    log = RunLog(path, make_header())
    log.write(blocks()[0])
    run = read_run(path)
    assert not run.closed
    assert run.notes == (
        "there is no end line: the run was still going on, or its process was killed",
    )
    log.end(2)


def test_a_note_is_said_once(path: Path, make_header: Callable[..., Header]) -> None:
    """Asking for the run again does not repeat what was remarked."""
    RunLog(path, make_header()).end(0)
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    assembly = Assembly.of_file(path)
    assert len(assembly.run().notes) == len(assembly.run().notes) == 1


def test_a_cut_off_last_line_is_noted(written: Path) -> None:
    """Half a last line is left out, and said with its number beside the missing end."""
    lines = written.read_bytes().splitlines(keepends=True)
    written.write_bytes(b"".join(lines[:3]) + lines[3][:-30])
    run = read_run(written)
    assert len(run.steps) == 4
    assert [note.split(":")[0].split(",")[0] for note in run.notes] == [
        "line 4 is cut off",
        "there is no end line",
    ]


def test_a_whole_last_line_needs_no_newline(written: Path) -> None:
    """A log that lacks only its last newline is complete."""
    written.write_bytes(written.read_bytes().rstrip(b"\n"))
    run = read_run(written)
    assert (run.closed, run.notes) == (True, ())


def test_a_file_is_never_overwritten_unasked(
    path: Path, make_header: Callable[..., Header]
) -> None:
    """An existing file stays as it is, and the error names the ways out."""
    path.write_text("a measurement")
    with pytest.raises(RunLogError, match=r"run.jsonl already exists.*overwrite=True"):
        RunLog(path, make_header())
    assert path.read_text() == "a measurement"


def test_a_file_is_overwritten_when_asked(path: Path, make_header: Callable[..., Header]) -> None:
    """With overwrite=True the new run takes the old one's place, whole."""
    path.write_text("a measurement, and a long one at that" * 100)
    RunLog(path, make_header(), overwrite=True).end(0)
    assert read_run(path).header == make_header()


def test_a_missing_folder_is_one_error(tmp_path: Path, make_header: Callable[..., Header]) -> None:
    """A log in a folder that is not there says what was expected."""
    with pytest.raises(RunLogError, match=r"cannot write.*No such file.*folder that exists"):
        RunLog(tmp_path / "no" / "run.jsonl", make_header())


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")  # noqa: PTH110
def test_a_disk_that_is_full_at_the_start_is_one_error(make_header: Callable[..., Header]) -> None:
    """Where not even the header fits, the log cannot be begun, and no file is left open."""
    with pytest.raises(RunLogError, match="cannot write the run log /dev/full: No space left"):
        RunLog("/dev/full", make_header(), overwrite=True)


@contextmanager
def files_no_larger_than(nbytes: int) -> Iterator[None]:
    """The system takes `nbytes` of a file and no more, as a full disk would."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_fills_up_is_an_os_error(
    path: Path, make_header: Callable[..., Header]
) -> None:
    """A line that the system does not take is the owner's to deal with; the rest is readable."""
    log = RunLog(path, make_header())
    log.write(blocks()[0])
    with files_no_larger_than(path.stat().st_size + 20), pytest.raises(OSError, match="too large"):
        log.write(blocks()[2])
    run = read_run(path)
    assert len(run.steps) == 2
    assert run.notes[0].startswith("line 3 is cut off")
    log.close()


def test_a_log_that_cannot_be_ended_is_closed_all_the_same(
    path: Path, make_header: Callable[..., Header]
) -> None:
    """The end line may fail as any other; the file does not stay open."""
    log = RunLog(path, make_header())
    with files_no_larger_than(path.stat().st_size), pytest.raises(OSError, match="too large"):
        log.end(0)
    assert log._file.closed


def test_a_log_can_be_left_without_an_end(path: Path, make_header: Callable[..., Header]) -> None:
    """A log that is closed, not ended, is one whose run did not end there."""
    log = RunLog(path, make_header())
    log.close()
    assert not read_run(path).closed


def test_a_log_of_100_000_batches_is_read_right(
    path: Path, make_header: Callable[..., Header]
) -> None:
    """A long log, in many blocks and two epochs, has every batch in its place."""
    rows, count = 40, 50_000
    request_ns = np.arange(count, dtype=np.int64) * 1_000_000
    log = RunLog(path, make_header())
    samples = np.full(rows, 256)
    for epoch in range(2):
        for start in range(0, count, rows):
            requests = request_ns[start : start + rows] + epoch * count * 1_000_000
            unknown = np.full(rows, UNKNOWN)
            block = Block(epoch, "real", requests, requests // 200_000, unknown, samples, unknown)
            log.write(block.with_steps())
        log.write(EpochEnd(epoch, "exhausted", (epoch + 1) * count * 1_000_000, 7))
    log.end(2 * count)
    steps = read_run(path).steps
    expected = np.arange(2 * count, dtype=np.int64) * 1_000_000
    assert np.array_equal(steps.request_ns, expected)
    assert np.array_equal(steps.wait_ns, expected // 200_000)
    assert np.array_equal(steps.step_ns, 1_000_000 - expected // 200_000)
    assert (steps.samples == 256).all()
    assert (steps.nbytes == UNKNOWN).all()
    assert np.array_equal(steps.epoch, np.repeat([0, 1], count))


def test_lines_can_be_added_in_memory(make_header: Callable[..., Header]) -> None:
    """A run whose log failed goes on in memory, by taking lines that were never written."""
    assembly = Assembly(None)
    lines: list[Line] = [make_header(), *blocks(), *ENDS, *EVENTS]
    for line in lines:
        assembly.take(line)
    assembly.closed = True
    run = assembly.run()
    assert (len(run.steps), run.ends, run.events, run.path) == (6, ENDS, EVENTS, None)
    assert run.header == make_header()
