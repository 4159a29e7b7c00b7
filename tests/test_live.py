"""The state of a run, from the lines of its log so far."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadeval.data.lines import Arm, Block, EpochEnd, Event, Line, Mode, Readings, RunEnd, encode
from loadeval.data.log import read_run
from loadeval.errors import RunLogError
from loadeval.estimate.gap import gap, throughput
from loadeval.estimate.steady import first_waits
from loadeval.live import FollowedRun, LiveRun
from tests.builder import make_header
from tests.runs.measured import record

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


def followed(path: Path) -> LiveRun:
    run = FollowedRun(path)
    assert run.read()
    return run.run


@pytest.mark.parametrize("mode", ["log", "replay", "alternate"])
def test_the_last_minute_is_what_a_report_says(tmp_path: Path, mode: str) -> None:
    waits_ns = [SECOND if number == 123 else 2 * MS for number in range(500)]
    left = set() if mode == "alternate" else {(1, 321)}  # a pair is not measured whole
    path = record(
        tmp_path / "run.jsonl", mode, waits_ns=waits_ns, epochs=3, probes=(), left_after=left
    )
    live, run = followed(path), read_run(path)
    name = "ideal" if mode == "replay" else "real"
    measured = gap(run)
    iteration_ns, wait_ns = measured.real, measured.real_wait
    if mode == "replay":
        iteration_ns, wait_ns = measured.ideal, measured.ideal_wait
    assert iteration_ns
    assert wait_ns
    told = live.last_minute()
    assert live.batches == run.batches
    assert told["batches_per_s"] == pytest.approx(throughput(gap(run), by_sample=False)[name].value)
    assert told["wait_share"] == pytest.approx(wait_ns.value / iteration_ns.value)
    assert (live.epoch, live.epoch_start_ns) == (2, first_waits(run)[0])


def test_the_last_minute_is_one_to_the_second() -> None:
    """Whether batches came in one line or one by one; waits before are not in it."""
    slow, quick = list(range(0, 400, 4)), list(range(400, 500, 2))
    at_once = taken(header(), block([*slow, *quick]), block([500]))
    one_by_one = taken(header(), *(block([request_s]) for request_s in [*slow, *quick, 500]))
    rates = {"batches_per_s": 0.5, "samples_per_s": 2.0, "wait_share": 0.5}
    assert at_once.last_minute() == one_by_one.last_minute() == rates
    waits = [block([start], wait_s=5 if start < 100 else 1) for start in range(0, 200, 10)]
    rates = {"batches_per_s": 0.1, "samples_per_s": 0.4, "wait_share": 0.1}
    assert taken(header(), *waits).last_minute() == pytest.approx(rates)


@pytest.mark.parametrize(
    ("lines", "quiet_s", "silent_s"),
    [
        ([block([start]) for start in range(0, 100, 2)], 92, 92),
        # An epoch start that takes long is a silence too.
        ([], 11, 11),
        # While no batch comes, readings and events tell how late it is.
        ([block([0]), Readings("host", "", [93 * SECOND], {})], 0, 92),
        ([block([0]), Event(93 * SECOND, "it happened")], 0, 92),
        ([Readings("gpu", "", [], {}, "none")], 0, 0),
        # A run that has ended is not silent, nor one of which no more is recorded.
        ([block([0, 2, 4]), RunEnd(3)], 1_000, None),
        ([block([0, 2]), EpochEnd(0, "unmeasured", 4 * SECOND, 0)], 1_000, None),
    ],
)
def test_a_run_is_silent_while_no_batch_comes(
    lines: list[Line], quiet_s: int, silent_s: int | None
) -> None:
    silent_ns = None if silent_s is None else silent_s * SECOND
    assert taken(header(), *lines).silent_ns(quiet_s * SECOND) == silent_ns


def test_epochs_at_once_are_told_apart() -> None:
    """A block of another epoch does not close a step, and has its own warm-up."""
    run = taken(header(), block([0, 2]), block([3, 4], epoch=1), block([9]))
    rates = {"batches_per_s": 1 / 7, "samples_per_s": 4 / 7, "wait_share": 1 / 7}
    assert run.last_minute() == pytest.approx(rates)


def test_only_real_blocks_count_of_an_alternating_run() -> None:
    """Warm-ups and blocks with instruments are in no rate; all waits but for kept ones add up."""
    counts = block([4, 6], pair=0), block([8], pair=0, instrumented=True)
    run = taken(header("alternate"), block([0, 2]), *counts, block([9], arm="ideal"))
    assert (run.last_minute()["batches_per_s"], run.wait_ns) == (0.5, 5 * SECOND)


def test_what_is_not_known_is_no_rate() -> None:
    """Samples of which one is not known, and what took no time by a clock that is too coarse."""
    unknown = taken(header(warmup=0), block([0, 2, 4], samples=[4, None, 4]))
    assert unknown.last_minute() == {"batches_per_s": 0.5, "wait_share": 0.5}
    no_time = taken(header(warmup=0), Block(0, "real", [5, 5], [0, 0], [0, None]))
    assert no_time.last_minute() == {}


def test_what_is_held_does_not_grow() -> None:
    """Beyond the last iterations only sums are left."""
    run, held = taken(header()), []
    for epoch in range(4):
        run.take(block([10_000 * epoch + start for start in range(0, 10_000, 2)], epoch=epoch))
        run.take(EpochEnd(epoch, "broken off"))
        held.append(len(pickle.dumps(run)))
    assert held[-1] <= 1.01 * held[0]


def test_what_is_usual_is_known_of_a_silence() -> None:
    """The longest wait, and whether batches are recorded again."""
    run = taken(header(), block([0, 2, 10]), block([12], wait_s=3))
    assert run.longest_wait_ns == 3 * SECOND
    run.take(EpochEnd(0, "unmeasured", 19 * SECOND, 0))
    run.take(block([25], epoch=1))
    assert run.silent_ns(SECOND) == SECOND


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
        seen.append((run.run.batches, run.run.silent_ns(0) is None))
    assert list(dict.fromkeys(seen)) == [(0, True), (0, False), (2, False), (3, False), (3, True)]
    assert run.run.last_minute() == taken(*lines).last_minute()


def in_place(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def as_another_file(path: Path, content: bytes) -> None:
    path.with_suffix(".new").write_bytes(content)
    path.with_suffix(".new").replace(path)


@pytest.mark.parametrize("replaced", [in_place, as_another_file])
def test_a_log_that_is_replaced_is_begun_anew(
    tmp_path: Path, replaced: Callable[[Path, bytes], None]
) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(encode(header()) + encode(block([0, 2, 4])))
    run = FollowedRun(path)
    assert run.read()
    replaced(path, encode(header(name="another")) + encode(block([0])) + encode(block([2])))
    assert run.read()
    assert (run.run.name, run.run.batches) == ("another", 2)


@pytest.mark.parametrize("content", [b"garbage\n", encode(block([0]))])
def test_what_is_followed_must_be_a_log(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(RunLogError, match=r"other, line 1 is .*; give a log"):
        FollowedRun(path).read()
    with pytest.raises(RunLogError, match="Is a directory"):
        FollowedRun(tmp_path).read()
