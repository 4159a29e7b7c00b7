"""Reading a run log: there is a run that says what is missing, or one error."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import numpy as np
import pytest

from loadeval.data import log as data_log
from loadeval.data.columns import UNKNOWN
from loadeval.data.dali import metrics_of, write_metrics
from loadeval.data.lines import (
    Block,
    EpochEnd,
    Event,
    GpuIdle,
    Line,
    Readings,
    RunEnd,
    StageTimes,
    encode,
)
from loadeval.data.log import read_run
from loadeval.errors import RunLogError
from tests.builder import make_header
from tests.runs.given import write_log

FIRST = Block(0, "real", [0, 17], [10, 10], [7, None], [4, None])
LAST = Block(0, "ideal", [40, 60], [10, 3], pair=5)
OTHER = Block(1, "real", [5, 35], [20, 1], [10, None])
ENDS = EpochEnd(0, "exhausted", 70, 1), EpochEnd(1, "broken off")
LINES: list[Line] = [FIRST, OTHER, LAST, ENDS[0], Event(66, "the step changes its batch"), ENDS[1]]


@pytest.fixture(name="path")
def _path(tmp_path: Path) -> Path:
    """A log of two epochs at once, an event, and an end."""
    return write_log(tmp_path / "run.jsonl", make_header(), *LINES, RunEnd(6))


def notes_of(path: Path, *texts: bytes) -> tuple[str, ...]:
    """What reading these lines behind a header brings up, but for a lacking end."""
    path.write_bytes(encode(make_header()) + b"".join(texts))
    return tuple(note for note in read_run(path).notes if note != data_log.NO_END)


def test_a_run_comes_back(path: Path) -> None:
    """Epoch by epoch, with the steps that the next request closes."""
    run = read_run(path)
    assert (run.header, run.ends, run.events) == (make_header(), ENDS, (LINES[4],))
    assert (run.closed, run.notes, run.path) == (True, (), path)
    assert {name: run.steps[name].tolist() for name in run.steps.names} == {
        "epoch": [0, 0, 0, 0, 1, 1],
        "arm": [0, 0, 1, 1, 0, 0],
        "pair": [UNKNOWN, UNKNOWN, 5, 5, UNKNOWN, UNKNOWN],
        "instrumented": [False] * 6,
        "request_ns": [0, 17, 40, 60, 5, 35],
        "wait_ns": [10, 10, 10, 3, 20, 1],
        "step_ns": [7, 13, 10, 7, 10, UNKNOWN],
        "samples": [4, *[UNKNOWN] * 5],
        "nbytes": [UNKNOWN] * 6,
        "gpu_idle_ns": [UNKNOWN] * 6,
        "gpu_step_ns": [UNKNOWN] * 6,
        "batch": [0, 1, 2, 3, 0, 1],
    }


def test_what_was_read_beside_batches_is_joined(path: Path) -> None:
    """By probe and subject, by epoch and by batch; what a part lacks is not known there."""
    texts = map(
        encode,
        (
            Readings("gpu", "0", [1, 2], {"power_watts": [10, None]}),
            FIRST,
            GpuIdle(0, 1, [8, 9], [20, None]),  # one more than there are batches
            Readings("host", "", [], {}, "there is no /proc"),
            Readings("gpu", "0", [5], {"busy_percent": [70]}, "GPU is lost"),
            StageTimes(1, [0], transform_ns={"crop": [7]}),
            StageTimes(0, [2, 0], worker=[1, None]),
            StageTimes(0, [1], fetch_ns=[9], transform_ns={"crop": [5]}),
        ),
    )
    assert notes_of(path, *texts) == ()
    run = read_run(path)
    gpu = run.readings["gpu", "0"]
    assert gpu.time_ns.tolist() == [1, 2, 5]
    assert np.array_equal(gpu.power_watts, [10, np.nan, np.nan], equal_nan=True)
    assert np.array_equal(gpu.busy_percent, [np.nan, np.nan, 70], equal_nan=True)
    assert run.missing == {("host", ""): "there is no /proc", ("gpu", "0"): "GPU is lost"}
    assert (run.steps.gpu_idle_ns.tolist(), run.steps.gpu_step_ns.tolist()) == ([-1, 8], [-1, 20])
    names = ("epoch", "batch", "worker", "fetch_ns", "pin_ns")
    assert [run.stages[name].tolist() for name in names] == [
        *([0, 0, 0, 1], [0, 1, 2, 0], [-1, -1, 1, -1], [-1, 9, -1, -1], [-1] * 4)
    ]
    assert run.transforms["crop"].ns.tolist() == [7, 5]


COUNTED = b'"request_ns":[0,17]'


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ((b"garbage\n",), "line 2 is no line of a run log"),
        ((b"[" * 100_000 + b"\n",), "line 2 is no line of a run log"),
        ((encode(FIRST).replace(COUNTED, b'"request_ns":[0,17.0]'),), "got `float`"),
        ((encode(FIRST).replace(COUNTED, b'"request_ns":[-1,17]'),), "Expected `int` >= 0"),
        ((encode(FIRST).replace(COUNTED, b'"request_ns":[17]'),), "wait_ns has 2 values"),
        ((b'{"type":"aggregate","mean_ns":3}\n',), "Invalid value 'aggregate'"),
        ((encode(FIRST)[:30],), "line 2 is cut off, as when a process is killed"),
        ((encode(make_header()),), "one header was expected"),
        ((encode(LAST), encode(FIRST)), "left out 2 batches whose times go back"),
        ((encode(Readings("a", "b", [3, 1, 4], {})),), "1 reading of b whose times go back"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else None,
)
def test_a_line_that_cannot_be_is_left_out_and_told(
    path: Path, texts: tuple[bytes, ...], said: str
) -> None:
    (note,) = notes_of(path, *texts)
    assert said in note
    assert "left out" in note
    assert read_run(path).batches == (2 if "batches" in said else 0)


def test_of_many_damaged_lines_some_are_told(path: Path) -> None:
    """The lines around them are read."""
    *told, more = notes_of(path, *[b"{}\n"] * 9, encode(FIRST))
    assert [note.split(" is")[0] for note in told] == ["line 2", "line 3", "line 4"]
    assert more == "left out 6 more lines"
    assert read_run(path).batches == 2


def test_batches_that_the_log_lacks_are_told(path: Path) -> None:
    told = notes_of(path, encode(FIRST), encode(RunEnd(3)))
    assert told == ("the run had 3 batches, of which the log has 2",)


def test_fields_of_another_version_are_passed_over(path: Path) -> None:
    assert notes_of(path, encode(FIRST).replace(b"{", b'{"color":"red",')) == ()


def test_a_killed_log_is_read_to_its_last_whole_line(path: Path) -> None:
    """Wherever it was cut, but in its header; between two epochs nothing is missing."""
    content = path.read_bytes()
    for length in range(content.index(b"\n") + 1, len(content) - 1):
        path.write_bytes(content[:length])
        run, whole = read_run(path), content[: length + 1].count(b"\n")
        assert run.batches == 2 * min(whole - 1, 3)
        is_cut_off = b"\n" not in content[length - 1 : length + 1]
        assert any("is cut off" in note for note in run.notes) is is_cut_off
        assert (data_log.NO_END in run.notes) is (whole < 7)


def test_a_changed_byte_raises_nothing_else(path: Path) -> None:
    content, chosen = path.read_bytes(), random.Random(0)
    for _ in range(500):
        damaged = bytearray(content)
        damaged[chosen.randrange(len(content))] = chosen.randrange(256)
        path.write_bytes(damaged)
        try:
            metrics_of(read_run(path))
        except RunLogError as error:
            assert str(error).startswith(str(path))  # noqa: PT017 - the other case is as good


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"hello\n", b"[" * 100_000, b'{"type":' + b"[" * 100_000, encode(RunEnd(3))),
        *(b'{"run":[]}', b'{"run":[{"type":"block"}]}', encode(make_header(version=2))),
    ],
    ids=lambda value: str(value[:30]),
)
def test_something_else_than_a_log_is_one_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(RunLogError, match=r"other.*give a log that loadeval run or log_file="):
        read_run(path)


def test_what_cannot_be_opened_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(RunLogError, match=r"cannot read .*none: No such file or directory"):
        read_run(tmp_path / "none")
    with pytest.raises(RunLogError, match="Is a directory"):
        read_run(tmp_path)


@pytest.mark.parametrize("start", [b"", b'{"run":[', encode(make_header())])
def test_a_file_without_line_ends_does_not_fill_memory(
    tmp_path: Path, start: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a terabyte, of which no block is on the disk."""
    monkeypatch.setattr(data_log, "LONGEST_LINE_BYTES", 1_000)
    monkeypatch.setattr(data_log, "LARGEST_METRICS_BYTES", 1_000)
    path = tmp_path / "sparse"
    path.write_bytes(start)
    os.truncate(path, 10**12)
    if start.endswith(b"\n"):
        assert "line 2 is cut off" in read_run(path).notes[0]
    else:
        with pytest.raises(RunLogError, match="is no run log"):
            read_run(path)


def test_readings_of_ever_other_quantities_do_not_fill_memory(path: Path) -> None:
    """Each of 300 is known once: what is read of the subject is left out, and why is told."""
    odd = [encode(Readings("own", "", [n], {f"n{n}": [1.0]})) for n in range(300)]
    assert notes_of(path, *odd, encode(Readings("own", "x", [1], {"a": [1.0]}))) == ()
    run = read_run(path)
    assert list(run.readings) == [("own", "x")]
    assert run.missing["own", ""] == "nearly all of its 300 quantities are unknown at any time"


def test_a_run_comes_back_from_its_metrics(path: Path) -> None:
    """The file has the figures under DALI's names, and the lines of the log."""
    run = read_run(path)
    write_metrics(run, path.read_bytes().splitlines(), path.with_suffix(".json"))
    again = read_run(path.with_suffix(".json"))
    for name in run.steps.names:
        assert again.steps[name].tolist() == run.steps[name].tolist()
    for name in ("header", "ends", "events", "closed", "notes"):
        assert getattr(again, name) == getattr(run, name)
    figures = json.loads(path.with_suffix(".json").read_text())
    assert {name: figures[name] for name in metrics_of(run)} == metrics_of(run)
