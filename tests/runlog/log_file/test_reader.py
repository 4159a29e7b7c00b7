"""A run log is written line by line and read back whole."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import numpy as np
import pytest

from loadeval.errors import RunLogError
from loadeval.runlog.columns import UNKNOWN
from loadeval.runlog.log_file.codec import encode, to_text
from loadeval.runlog.log_file.reader import Assembly, read_run
from loadeval.runlog.log_file.writer import RunLog, metrics_of, write_metrics
from loadeval.runlog.model import (
    Arm,
    Block,
    EpochEnd,
    Event,
    GpuIdle,
    Prefetch,
    Readings,
    Run,
    Steps,
    Window,
)
from tests.full_disk import files_no_larger_than
from tests.runs.given import make_header

if TYPE_CHECKING:
    from pathlib import Path

    from loadeval.runlog.log_file.codec import Line


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
    """The path of a log that is not written yet."""
    return tmp_path / "run.jsonl"


@pytest.fixture
def written(path: Path) -> Path:
    """A log of two epochs and an event."""
    log = RunLog(path, make_header())
    lines: list[Line] = [*blocks(), ENDS[0], *EVENTS, ENDS[1]]
    for line in lines:
        log.write(line)
    log.end(6)
    return path


def columns_of(run: Run) -> dict[str, list[int]]:
    return {name: getattr(run.steps, name).tolist() for name in Steps.__slots__}


def test_a_run_comes_back(written: Path) -> None:
    run = read_run(written)
    assert run.header == make_header()
    assert run.ends == ENDS
    assert run.events == EVENTS
    assert (run.closed, run.notes, run.path) == (True, (), written)
    assert columns_of(run) == {
        "epoch": [0, 0, 0, 0, 1, 1],
        "arm": [0] * 6,
        "pair": [UNKNOWN] * 6,
        "instrumented": [False] * 6,
        "request_ns": [0, 17, 40, 60, 5, 35],
        "wait_ns": [10, 10, 10, 3, 20, 1],
        "step_ns": [7, 13, 10, 7, 10, UNKNOWN],
        "samples": [4, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN],
        "nbytes": [UNKNOWN] * 6,
        "gpu_idle_ns": [UNKNOWN] * 6,
        "gpu_step_ns": [UNKNOWN] * 6,
        "batch": [0, 1, 2, 3, 0, 1],
    }


def test_lines_are_on_disk_at_once(path: Path) -> None:
    log = RunLog(path, make_header())
    assert len(read_run(path).steps) == 0
    log.write(blocks()[0])
    for _ in range(2):
        run = read_run(str(path))
        assert (len(run.steps), run.closed) == (2, False)
        (note,) = run.notes
        assert note.startswith("there is no end line")
        log.close()


def test_a_note_is_said_once(path: Path) -> None:
    """Asking for the run again does not repeat what was remarked."""
    RunLog(path, make_header()).end(0)
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    assembly = Assembly.of_file(path)
    assert len(assembly.run().notes) == len(assembly.run().notes) == 1


def test_a_cut_off_last_line_is_noted(written: Path) -> None:
    lines = written.read_bytes().splitlines(keepends=True)
    written.write_bytes(b"".join(lines[:3]) + lines[3][:-30])
    run = read_run(written)
    assert len(run.steps) == 4
    assert [note.split(":")[0].split(",")[0] for note in run.notes] == [
        "line 4 is cut off",
        "there is no end line",
    ]


def test_a_whole_last_line_needs_no_newline(written: Path) -> None:
    written.write_bytes(written.read_bytes().rstrip(b"\n"))
    run = read_run(written)
    assert (run.closed, run.notes) == (True, ())


def test_a_file_is_overwritten_only_when_asked(path: Path) -> None:
    path.write_text("a measurement, and a long one at that" * 100)
    with pytest.raises(RunLogError, match=r"run.jsonl already exists.*overwrite=True"):
        RunLog(path, make_header())
    assert path.read_text().startswith("a measurement")
    RunLog(path, make_header(), overwrite=True).end(0)
    assert read_run(path).header == make_header()


def test_a_missing_folder_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(RunLogError, match=r"cannot write.*No such file.*folder that exists"):
        RunLog(tmp_path / "no" / "run.jsonl", make_header())


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")  # noqa: PTH110
def test_a_disk_that_is_full_at_the_start_is_one_error() -> None:
    with pytest.raises(RunLogError, match="cannot write the run log /dev/full: No space left"):
        RunLog("/dev/full", make_header(), overwrite=True)


def test_a_disk_that_fills_up_is_an_os_error(path: Path) -> None:
    """A line that the system does not take is the owner's to deal with; the rest is readable."""
    log = RunLog(path, make_header())
    log.write(blocks()[0])
    with files_no_larger_than(path.stat().st_size + 20), pytest.raises(OSError, match="too large"):
        log.write(blocks()[2])
    run = read_run(path)
    assert len(run.steps) == 2
    assert run.notes[0].startswith("line 3 is cut off")
    log.close()


def test_a_log_that_cannot_be_ended_is_closed_all_the_same(path: Path) -> None:
    log = RunLog(path, make_header())
    with files_no_larger_than(path.stat().st_size), pytest.raises(OSError, match="too large"):
        log.end(0)
    assert log._file is None


def test_a_log_keeps_readings_and_gpu_idle_times(tmp_path: Path) -> None:
    """Lines of both kinds may stand anywhere, after the end of their epoch too; none is lost."""
    log = RunLog(tmp_path / "run.jsonl", make_header())
    block, *_ = blocks()
    lines: list[Line] = [
        Readings("gpu", "GPU 0", column(1), {"power_watts": np.array([10.0])}),
        block,
        GpuIdle(0, 0, column(5), column(20)),
        EpochEnd(0, "broken off"),
        Readings("gpu", "GPU 0", column(2), {"power_watts": np.array([20.0])}),
        GpuIdle(0, 1, column(8), column(UNKNOWN)),
    ]
    for line in lines:
        log.write(line)
    log.end(2)
    write_metrics(read_run(log.path), tmp_path / "metrics.json")
    for run in (read_run(log.path), read_run(tmp_path / "metrics.json")):
        assert run.steps.gpu_idle_ns.tolist() == [5, 8]
        assert run.steps.gpu_step_ns.tolist() == [20, UNKNOWN]
        (readings,) = run.readings
        assert (readings.probe, readings.subject, readings.missing) == ("gpu", "GPU 0", None)
        assert readings.time_ns.tolist() == [1, 2]
        assert readings.values["power_watts"].tolist() == [10, 20]


PREFETCHES = (Prefetch(0, 0, 3, 2, 70, 8), Prefetch(1, 1, 3, 2, 90, None))
WINDOWS = (Window(0, 0, "real", 40, 10_000_000), Window(0, 0, "ideal", 20, None))
ALTERNATING_ENDS = (EpochEnd(0, "exhausted", 400, 3), EpochEnd(1, "unmeasured"))


def block(began_ns: int, epoch: int = 0, arm: Arm = "real", pair: int | None = None) -> Block:
    """Two batches requested 20 apart from `began_ns` on, each waiting 10."""
    requests = column(began_ns, began_ns + 20)
    unknown = column(UNKNOWN, UNKNOWN)
    return Block(epoch, arm, requests, column(10, 10), unknown, column(4, 4), unknown, pair)


@pytest.fixture(name="alternating_log")
def _alternating_log(tmp_path: Path) -> Path:
    """An epoch with a pair, and one that was left after its first batches."""
    lines: list[Line] = [
        block(0),
        block(40, pair=0),
        WINDOWS[0],
        PREFETCHES[0],
        block(200, arm="ideal"),
        block(240, arm="ideal", pair=0),
        WINDOWS[1],
        ALTERNATING_ENDS[0],
        block(500, epoch=1),
        PREFETCHES[1],
        ALTERNATING_ENDS[1],
    ]
    log = RunLog(tmp_path / "alternating.jsonl", make_header(mode="alternate"))
    for line in lines:
        log.write(line)
    log.end(10)
    return log.path


def test_an_alternating_run_comes_back(alternating_log: Path, tmp_path: Path) -> None:
    """Pairs, prefetches, windows and ends; from a metrics file too, with a block for each pair."""
    metrics = tmp_path / "metrics.json"
    write_metrics(read_run(alternating_log), metrics)
    kinds = [line["type"] for line in json.loads(metrics.read_text())["run"]]
    assert kinds.count("block") == 5
    for run in (read_run(alternating_log), read_run(metrics)):
        assert metrics_of(run)["mode"] == "alternate"
        assert metrics_of(run)["cached_batches"] == 0
        assert (run.prefetches, run.windows, run.ends) == (PREFETCHES, WINDOWS, ALTERNATING_ENDS)
        assert run.steps.pair.tolist() == [-1, -1, 0, 0, -1, -1, 0, 0, -1, -1]
        assert run.steps.arm.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 0, 0]
        assert run.steps.step_ns.tolist()[-1] == UNKNOWN
        assert (run.closed, run.notes) == (True, ())


@pytest.mark.parametrize("line", [PREFETCHES[0], WINDOWS[0]])
def test_nothing_is_measured_in_an_epoch_that_is_over(alternating_log: Path, line: Line) -> None:
    """A prefetch or a window stands before the end of its epoch, and after it is an error."""
    header = alternating_log.read_bytes().splitlines(keepends=True)[0]
    end, text = (to_text(encode(record)).encode() for record in (EpochEnd(0, "broken off"), line))
    alternating_log.write_bytes(header + end + text)
    with pytest.raises(RunLogError, match="line 3 is of epoch 0, where none was expected after"):
        read_run(alternating_log)
    alternating_log.write_bytes(header + text + end)
    run = read_run(alternating_log)
    assert len(run.prefetches) + len(run.windows) == 1
