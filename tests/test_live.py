"""The state of a run, from the lines of its log so far."""

from __future__ import annotations

import json
import os
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.data.lines import (
    Arm,
    Block,
    EpochEnd,
    Event,
    Line,
    Mode,
    Readings,
    RunEnd,
    encode,
)
from loadeval.data.log import read_run
from loadeval.errors import RunLogError
from loadeval.estimate.epochs import first_waits
from loadeval.estimate.gap import gap, throughput
from loadeval.live import FollowedRun, LiveRun, LiveState, Rates
from tests.builder import make_header
from tests.runs.measured import record

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MS = 1_000_000
SECOND = 1_000 * MS
CODE = {"type": "code", "worker": 0, "running": {}, "blocked": {"data.py:31 read": 9}, "calls": {}}


def header(mode: Mode = "log", **changes: Any) -> Line:
    return make_header(**{"mode": mode, "length": 100, "environment": {"pid": 7}, **changes})


def block(requests_s: list[int], wait_s: int = 1, epoch: int = 0, **changes: Any) -> Block:
    """Batches of four samples that were asked for at these seconds; the last step is open."""
    request_ns = [at * SECOND for at in requests_s]
    step_ns = (np.diff(request_ns) - wait_s * SECOND).tolist()
    samples = changes.pop("samples", [4] * len(request_ns))
    arm: Arm = changes.pop("arm", "real")
    waits_ns = [wait_s * SECOND] * len(request_ns)
    return Block(
        epoch, arm, request_ns, waits_ns, [*step_ns, None][: len(request_ns)], samples, **changes
    )


def taken(*lines: Line) -> LiveRun:
    run = LiveRun()
    for line in lines:
        run.take(line)
    return run


def after(*lines: Line, quiet_s: int = 0) -> LiveState:
    state = taken(*lines).state(quiet_s * SECOND)
    assert state is not None
    return state


def counted(*lines: Line) -> int:
    overall = after(*lines).overall
    return 0 if overall is None else overall.batches


def followed(path: Path) -> LiveState:
    run = FollowedRun(path)
    assert run.read()
    state = run.run.state(0)
    assert state is not None
    return state


def test_before_the_first_batch() -> None:
    """Without a header nothing is known, and with it no rate is 0."""
    assert LiveRun().state(0) is None
    assert LiveRun().silent_ns(0) is None
    assert after(header(), block([]), quiet_s=3) == LiveState(
        name="a run",
        mode="log",
        unit="images",
        created="2026-01-31T12:00:00+00:00",
        epoch_batches=100,
        elapsed_ns=3 * SECOND,
    )


@pytest.mark.parametrize("mode", ["log", "replay", "alternate"])
def test_the_whole_run_is_what_its_report_says(tmp_path: Path, mode: str) -> None:
    """The same rates and the same share, of the same batches, in every mode."""
    waits_ns = [SECOND if number == 123 else 2 * MS for number in range(500)]
    path = record(tmp_path / "run.jsonl", mode, waits_ns=waits_ns, epochs=3, probes=())
    state, run = followed(path), read_run(path)
    overall, name = state.overall, "ideal" if mode == "replay" else "real"
    measured = gap(run)
    iteration_ns, wait_ns, batches = measured.real, measured.real_wait, measured.real_batches
    if mode == "replay":
        iteration_ns, wait_ns, batches = measured.ideal, measured.ideal_wait, measured.ideal_batches
    assert overall
    assert iteration_ns
    assert wait_ns
    assert (state.batches, overall.batches) == (run.batches, batches)
    assert overall.batches_per_s == pytest.approx(throughput(gap(run), by_sample=False)[name].value)
    assert overall.wait_share == pytest.approx(wait_ns.value / iteration_ns.value)
    first, *_, last = first_waits(run).tolist()
    assert (state.epoch_start_ns, state.last_epoch_start_ns) == (first, last)
    assert (state.ended, state.epoch, state.batch, state.silent_ns) == (True, 2, 499, None)


def test_now_is_the_last_minute() -> None:
    """To the second, whether batches came in one line or one by one; waits before are not in it."""
    slow, quick = list(range(0, 400, 4)), list(range(400, 500, 2))
    at_once = after(header(), block([*slow, *quick]), block([500]))
    one_by_one = after(header(), *(block([request_s]) for request_s in [*slow, *quick, 500]))
    assert at_once == one_by_one
    assert at_once.now == Rates(30, 60 * SECOND, 0.5, 2.0, 0.5)
    waits = [block([start], wait_s=5 if start < 100 else 1) for start in range(0, 200, 10)]
    state = after(header(), *waits)
    assert state.now == Rates(6, 60 * SECOND, pytest.approx(0.1), pytest.approx(0.4), 0.1)
    assert state.overall == Rates(18, 180 * SECOND, pytest.approx(0.1), pytest.approx(0.4), 0.3)


@pytest.mark.parametrize(
    ("lines", "quiet_s", "silent_s", "now"),
    [
        ([block([start]) for start in range(0, 100, 2)], 8, None, 26),
        # The last ones say nothing of now once none came for far longer than usual.
        ([block([start]) for start in range(0, 100, 2)], 92, 92, None),
        # Before, they do.
        ([block([start], 0) for start in range(100)], 15, 15, 45),
        # Where each batch takes over a minute, now is the last one.
        ([block([start]) for start in range(0, 2_000, 100)], 300, None, 1),
        # An epoch start that takes long is a silence too.
        ([], 11, 11, None),
        # While no batch comes, readings and events tell how late it is.
        ([block([0]), Readings("host", "", [93 * SECOND], {})], 0, 92, None),
        ([block([0]), Event(93 * SECOND, "it happened")], 0, 92, None),
        ([Readings("gpu", "", [], {}, "none")], 0, None, None),
        # A run that has ended is not silent, nor one of which no more is recorded.
        ([block([0, 2, 4]), RunEnd(3)], 1_000, None, 1),
        ([block([0, 2]), EpochEnd(0, "unmeasured", 4 * SECOND, 0)], 1_000, None, 1),
    ],
)
def test_a_run_is_silent_after_far_longer_than_usual(
    lines: list[Line], quiet_s: int, silent_s: int | None, now: int | None
) -> None:
    state = after(header(), *lines, quiet_s=quiet_s)
    assert state.silent_ns == (None if silent_s is None else silent_s * SECOND)
    assert (state.now and state.now.batches) == now


@pytest.mark.parametrize(
    ("end", "batches", "elapsed_ns"),
    [
        (EpochEnd(0, "exhausted", 8 * SECOND, 1), 3, 8 * SECOND + 1),
        (EpochEnd(0, "broken off"), 2, 6 * SECOND),
    ],
)
def test_an_open_step_is_closed_by_what_comes_next(
    end: EpochEnd, batches: int, elapsed_ns: int
) -> None:
    """The epoch's next block or its end closes it; broken off, it is in no rate."""
    lines = header(warmup=0), block([0, 2]), block([5]), end
    state = after(*lines)
    assert (counted(*lines), state.batches, state.elapsed_ns) == (batches, 3, elapsed_ns)


def test_epochs_at_once_are_told_apart() -> None:
    """A block of another epoch does not close a step, and has its own warm-up and first wait."""
    state = after(header(), block([0, 2]), block([3, 4], epoch=1), block([9]))
    assert state.overall == Rates(1, 7 * SECOND, 1 / 7, pytest.approx(4 / 7), 1 / 7)
    assert (state.epoch_start_ns, state.last_epoch_start_ns) == (SECOND, SECOND)


def test_only_real_blocks_count_of_an_alternating_run() -> None:
    """Warm-ups and blocks with instruments are in no rate; all waits but for kept ones add up."""
    counts = block([4, 6], pair=0), block([8], pair=0, instrumented=True)
    lines = header("alternate"), block([0, 2]), *counts, block([9], arm="ideal")
    assert (counted(*lines), after(*lines).wait_ns) == (2, 5 * SECOND)


def test_what_is_not_known_is_no_rate() -> None:
    """Samples of which one is not known, and what took no time by a clock that is too coarse."""
    unknown = after(header(warmup=0), block([0, 2, 4], samples=[4, None, 4]))
    assert unknown.overall == Rates(2, 4 * SECOND, 0.5, None, 0.5)
    no_time = after(header(warmup=0), Block(0, "real", [5, 5], [0, 0], [0, None]))
    assert no_time.overall is None


def test_a_run_goes_on_where_no_more_of_it_is_recorded() -> None:
    left = header(), block([0, 2]), EpochEnd(0, "unmeasured", 4 * SECOND, 0)
    assert after(*left, quiet_s=900).elapsed_ns == 904 * SECOND
    assert after(*left, RunEnd(2), quiet_s=900).elapsed_ns == 4 * SECOND


def test_the_last_three_events_are_kept() -> None:
    state = after(header(), *(Event(number, str(number)) for number in range(5)))
    assert state.events == ("2", "3", "4")


def test_what_is_held_does_not_grow() -> None:
    """Beyond the last iterations only sums are left."""
    run, held = taken(header()), []
    for epoch in range(4):
        run.take(block([10_000 * epoch + start for start in range(0, 10_000, 2)], epoch=epoch))
        run.take(EpochEnd(epoch, "broken off"))
        held.append(len(pickle.dumps(run)))
    assert held[-1] <= 1.01 * held[0]


def test_what_is_usual_is_known_of_a_silence() -> None:
    """The longest wait, the longest time between two batches, and whether an epoch is open."""
    run = taken(header())
    assert (run.silent_ns(5 * SECOND), run.is_open) == (5 * SECOND, True)
    assert not taken(header(), EpochEnd(0, "exhausted", 0, 1)).is_open
    run = taken(header(), block([0, 2, 10]), block([12], wait_s=3))
    assert run.silent_ns(5 * SECOND) == 5 * SECOND
    assert (run.longest_wait_ns, run.longest_gap_ns) == (3 * SECOND, 8 * SECOND)
    run.take(EpochEnd(0, "exhausted", 16 * SECOND, 1))
    assert not run.is_open
    run.take(block([17], epoch=1))
    assert run.is_open
    run.take(EpochEnd(1, "unmeasured", 19 * SECOND, 0))
    assert run.silent_ns(SECOND) is None
    run.take(block([25], epoch=2))
    assert run.silent_ns(SECOND) == SECOND
    run.take(RunEnd(6))
    assert run.silent_ns(SECOND) is None


def test_lines_without_a_time_do_not_end_a_silence(tmp_path: Path) -> None:
    """What a worker is seen doing is written while it hangs."""
    path = record(tmp_path / "run.jsonl", probes=())
    *lines, _ = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines))
    os.utime(path, (1_000, 1_000))
    run = FollowedRun(path)
    assert run.read()
    assert run.quiet_ns(1_003) == 3 * SECOND
    with path.open("a") as file:
        file.write(json.dumps(CODE, separators=(",", ":")) + "\n")
    os.utime(path, (1_020, 1_020))
    assert run.read()
    assert run.quiet_ns(1_021) == 21 * SECOND
    assert run.quiet_ns(990) == 0


def test_a_log_that_is_followed_comes_line_by_line(tmp_path: Path) -> None:
    """Each once; half a line waits for its end, and one that is damaged is passed over."""
    lines = header(), block([0, 2]), Event(6 * SECOND, "it happened"), block([8]), RunEnd(3)
    content = b"garbage\n".join(map(encode, lines))
    path, seen = tmp_path / "run.jsonl", []
    run = FollowedRun(path)
    assert not run.read()
    for start in range(0, len(content), 7):
        with path.open("ab") as file:
            file.write(content[start : start + 7])
        assert run.read()
        seen.append((run.run.so_far.batches, len(run.run.so_far.events), run.run.so_far.ended))
    states = [(0, 0, False), (2, 0, False), (2, 1, False), (3, 1, False), (3, 1, True)]
    assert list(dict.fromkeys(seen)) == states
    assert run.run.so_far == taken(*lines).so_far


def in_place(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def as_another_file(path: Path, content: bytes) -> None:
    path.with_suffix(".new").write_bytes(content)
    path.with_suffix(".new").replace(path)


def shorter(path: Path, content: bytes) -> None:
    path.write_bytes(content.split(b"\n")[0] + b"\n")


@pytest.mark.parametrize(
    ("replaced", "batches"), [(in_place, 2), (as_another_file, 2), (shorter, 0)]
)
def test_a_log_that_is_replaced_is_begun_anew(
    tmp_path: Path, replaced: Callable[[Path, bytes], None], batches: int
) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(encode(header()) + encode(block([0, 2, 4])))
    run = FollowedRun(path)
    assert run.read()
    replaced(path, encode(header(name="another")) + encode(block([0])) + encode(block([2])))
    assert run.read()
    assert (run.run.so_far.name, run.run.so_far.batches) == ("another", batches)


@pytest.mark.parametrize("content", [b"garbage\n", encode(block([0]))])
def test_what_is_followed_must_be_a_log(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(RunLogError, match=r"other, line 1 is .*; give a file"):
        FollowedRun(path).read()
    with pytest.raises(RunLogError, match="Is a directory"):
        FollowedRun(tmp_path).read()
