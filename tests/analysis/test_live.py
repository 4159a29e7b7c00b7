"""The state of a run, from the lines of its log so far."""

from __future__ import annotations

from dataclasses import astuple
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis import live
from loadeval.analysis.estimate.summary import summarise
from loadeval.analysis.live import LiveJob, LiveRun, LiveState, Outlier, Silence
from loadeval.analysis.rates import BatchSums, Rates, rates, together, total
from loadeval.data.columns import UNKNOWN
from loadeval.data.lines import Block, EpochEnd, Event, Header, Line, LoaderInfo, Readings, RunEnd
from loadeval.data.log import Follower, read_run
from loadeval.data.run import ARMS
from tests.runs import given
from tests.runs.given import HEADER, MS
from tests.runs.measured import record
from tests.runs.tables import replace

if TYPE_CHECKING:
    from pathlib import Path

    from loadeval.data.lines import Mode

SECOND = 1_000 * MS


def header(mode: Mode = "log", warmup: int = 1, **loader: Any) -> Header:
    info = LoaderInfo("loader", length=100, **loader)
    created = "2026-01-31T12:00:00+00:00"
    return replace(HEADER, name="a run", mode=mode, created=created, warmup=warmup, loader=info)


def block(requests_s: list[int], wait_s: int = 1, epoch: int = 0, **options: Any) -> Block:
    """Batches of four samples that waited for `wait_s`, the last step open."""
    sizes = options.pop("samples", 4)
    request_ns = np.array(requests_s, dtype=np.int64) * SECOND
    step_ns = np.append(np.diff(request_ns) - wait_s * SECOND, UNKNOWN)[: len(request_ns)]
    times = {"request_ns": request_ns, "epoch": epoch, **options}
    return given.block("real", wait_s * SECOND, step_ns, samples=sizes, nbytes=sizes, **times)


def after(*lines: Line, quiet_s: int = 0) -> LiveState:
    """The state after `lines`."""
    run = LiveRun()
    for line in lines:
        run.take(line)
    state = run.state(quiet_s * SECOND)
    assert state is not None
    return state


def overall(*lines: Line) -> Rates:
    rates = after(*lines).overall
    assert rates is not None
    return rates


def recorded(path: Path, mode: str = "log") -> Path:
    """Three epochs of 500 batches, of which number 123 waits for a second; steps of 10 ms."""
    waits_ns = [SECOND if number == 123 else 2 * MS for number in range(500)]
    return record(path, mode, waits_ns=waits_ns, epochs=3, probes=())


def watch(path: Path, **options: Any) -> LiveState:
    """The state of the run whose log is at `path`."""
    appended = Follower(path).read()
    assert appended is not None
    return after(*appended.lines, **options)


def test_now_is_the_last_minute_of_a_long_block() -> None:
    """It is exact to the second, as if its batches had come one by one."""
    slow, quick = list(range(0, 400, 4)), list(range(400, 500, 2))
    whole = after(header(), block([*slow, *quick]), block([500]))
    single = after(header(), *(block([request_s]) for request_s in [*slow, *quick, 500]))
    assert whole.now == single.now
    assert whole.overall == single.overall
    assert whole.now is not None
    assert whole.now.batches == 30


def test_before_the_first_batch() -> None:
    """Without a header nothing is known, and with it no rate is 0."""
    assert LiveRun().state(0) is None
    state = after(header(), quiet_s=3)
    assert (state.name, state.mode, state.epoch_batches) == ("a run", "log", 100)
    assert (state.epoch, state.batch, state.batches) == (None, None, 0)
    assert (state.now, state.overall, state.epoch_start_ns) == (None, None, None)
    assert (state.elapsed_ns, state.silent_ns) == (3 * SECOND, None)


@pytest.mark.parametrize("mode", ["log", "replay", "alternate"])
def test_the_whole_run_is_what_a_summary_says(tmp_path: Path, mode: str) -> None:
    """The same rates and the same share, of the same batches, in every mode."""
    path = recorded(tmp_path / "run.jsonl", mode)
    state, summary = watch(path), summarise(read_run(path))
    assert state.overall is not None
    assert (state.batches, state.overall.batches) == (summary.batches, summary.steady_batches)
    for name in ("batches_per_s", "samples_per_s", "wait_share"):
        expected = pytest.approx(getattr(summary, name), rel=1e-12)
        assert getattr(state.overall, name) == expected
    assert state.epoch_start_ns == summary.epoch_start_ns[0]
    assert state.last_epoch_start_ns == summary.epoch_start_ns[-1]
    assert (state.ended, state.epoch, state.batch, state.silent_ns) == (True, 2, 499, None)


def test_an_outlier_has_its_place(tmp_path: Path) -> None:
    """Its epoch, its number, when it was asked for, and how long it took."""
    path = recorded(tmp_path / "run.jsonl")
    state, whole = watch(path), read_run(path).steps
    assert state.median_iteration_ns == pytest.approx(12 * MS, rel=0.02)
    assert state.outlier_count == 3
    assert [(outlier.epoch, outlier.batch) for outlier in state.outliers] == [
        (0, 123),
        (1, 123),
        (2, 123),
    ]
    (row,) = np.flatnonzero((whole.epoch == 2) & (whole.batch == 123))
    assert state.outliers[-1] == Outlier(2, 123, int(whole.request_ns[row]), SECOND, 10 * MS)


def test_now_is_the_last_minute() -> None:
    """Waits before it are in the whole run, and not in now."""
    lines = [block([start], wait_s=5 if start < 100 else 1) for start in range(0, 200, 10)]
    state = after(header(), *lines)
    assert state.now is not None
    assert state.overall is not None
    assert astuple(state.now) == pytest.approx((6, 60 * SECOND, 0.1, 0.4, 0.1))
    assert (state.overall.batches, state.overall.wait_share) == (18, 0.3)


@pytest.mark.parametrize(
    ("lines", "quiet_s", "silent_s", "now"),
    [
        ([block([start]) for start in range(0, 100, 2)], 8, None, 26),
        # The last ones say nothing of now once none came for far longer than usual.
        ([block([start]) for start in range(0, 100, 2)], 92, 92, None),
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
def test_silence(lines: list[Line], quiet_s: int, silent_s: int | None, now: int | None) -> None:
    """For how long no batch came, where that is far longer than usual; else how many are now."""
    state = after(header(), *lines, quiet_s=quiet_s)
    assert state.silent_ns == (None if silent_s is None else silent_s * SECOND)
    assert (state.now and state.now.batches) == now


def test_the_time_of_a_run_that_ended_stands_still() -> None:
    """It is that of its last batch."""
    state = after(header(), block([0, 2]), RunEnd(2), quiet_s=1_000)
    assert (state.ended, state.elapsed_ns) == (True, 3 * SECOND)


def test_the_last_events_are_kept() -> None:
    """Three of them."""
    events = [Event(number, str(number)) for number in range(5)]
    assert after(header(), *events).events == ("2", "3", "4")


@pytest.mark.parametrize(
    ("end", "counted", "elapsed_ns"),
    [
        (EpochEnd(0, "exhausted", 8 * SECOND, 1), 3, 8 * SECOND + 1),
        (EpochEnd(0, "broken off"), 2, 6 * SECOND),
    ],
)
def test_an_open_step_is_closed_by_what_comes_next(
    end: EpochEnd, counted: int, elapsed_ns: int
) -> None:
    """The epoch's next block or its end closes it; broken off, it is in no rate."""
    lines = header(warmup=0), block([0, 2]), block([5]), end
    state = after(*lines)
    assert (overall(*lines).batches, state.batches, state.elapsed_ns) == (counted, 3, elapsed_ns)


def test_epochs_at_once_are_told_apart() -> None:
    """A block of another epoch does not close a step, and has its own warm-up."""
    lines = header(), block([0, 2]), block([3, 4], epoch=1), block([9])
    assert (overall(*lines).batches, overall(*lines).elapsed_ns) == (1, 7 * SECOND)
    state = after(*lines)
    assert (state.epoch_start_ns, state.last_epoch_start_ns) == (SECOND, SECOND)


def test_only_real_blocks_count_of_an_alternating_run() -> None:
    """Warm-ups are in no rate."""
    lines = header("alternate"), block([0, 2]), block([4, 6], pair=0), block([8])
    assert (overall(*lines).batches, after(*lines).batches) == (2, 5)


def test_what_is_not_known_is_no_rate() -> None:
    """Samples of which one is not known, and a time of 0."""
    overall_rates = overall(header(warmup=0), block([0, 2, 4], samples=UNKNOWN))
    assert (overall_rates.samples_per_s, overall_rates.batches_per_s) == (None, 0.5)
    assert rates([BatchSums(5, 2, 0, 0, 8)]) == Rates(2, 0, None, None, None)
    assert total([BatchSums(samples=3), BatchSums(samples=None)]).samples is None


def test_a_batch_that_was_ready_is_no_epoch_start() -> None:
    """The first epoch of a loader that had loaded when it was wrapped has none to tell."""
    lines = header(ready_batches=2), block([0, 2]), block([5], epoch=1)
    assert after(*lines[:2]).epoch_start_ns is None
    state = after(*lines)
    assert (state.epoch_start_ns, state.last_epoch_start_ns) == (SECOND, None)


def test_the_arms_add_up_all_batches(tmp_path: Path) -> None:
    """Warm-up too: batches, samples, waits and steps, of each arm."""
    path = recorded(tmp_path / "run.jsonl", "alternate")
    state, whole = watch(path), read_run(path).steps
    assert set(state.arms) == {"real", "ideal"}
    for arm, sums in state.arms.items():
        rows = whole.arm == ARMS.index(arm)
        assert (sums.batches, sums.samples) == (rows.sum(), 4 * rows.sum())
        assert (sums.wait_ns, sums.step_ns) == (
            whole.wait_ns[rows].sum(),
            whole.step_ns[rows].sum(),
        )


def test_a_step_that_nobody_saw_end_is_in_no_arm() -> None:
    """Of a killed run the last batch."""
    assert after(header(), block([0])).arms == {}


def test_the_last_memory_that_was_read_is_kept() -> None:
    """Of the process and of its workers; a gap or another quantity changes nothing."""
    time_ns = [SECOND, 2 * SECOND]
    read = {"pss_bytes": [5.0, 7.0], "rss_bytes": [9.0, 9.0]}
    gap = {"pss_bytes": [None, None]}
    state = after(
        header(),
        Readings("host", "process", time_ns, read),
        Readings("host", "process", time_ns, gap),
        Readings("host", "machine", time_ns, {"busy_percent": [1.0, 2.0]}),
        Readings("other", "workers", time_ns, read),
    )
    assert state.memory_bytes == {"process": 7.0}


def test_empty_blocks_are_nothing() -> None:
    """A line that holds no batch changes nothing."""
    assert after(header(), block([])).epoch is None


def test_what_is_held_does_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the last minute only sums are left."""
    monkeypatch.setattr(live, "RECENT_NS", 10 * SECOND)
    run = LiveRun()
    run.take(header())
    for epoch in range(20):
        for start in range(50):
            run.take(block([1_000 * epoch + 10 * start], epoch=epoch))
        run.take(EpochEnd(epoch, "broken off"))
    assert len(run._recent) < 4
    assert not run._open
    assert not run._next


def test_a_few_iterations_have_no_median() -> None:
    """Before there are twenty nothing is called an outlier."""
    starts = [*range(0, 36, 2), 80]
    few = after(header(warmup=0), block(starts))
    assert (few.median_iteration_ns, few.outlier_count) == (None, 0)
    more = after(header(warmup=0), block(starts), block([82, 84, 90]))
    assert more.median_iteration_ns == pytest.approx(2 * SECOND, rel=0.02)
    assert more.outlier_count == 1


def test_the_last_outliers_are_kept() -> None:
    """Five of them, whether they came together or apart."""
    quick, slow = list(range(0, 400, 2)), list(range(400, 480, 10))
    state = after(header(), block([*quick, *slow]))
    assert state.outlier_count == 7
    assert [outlier.batch for outlier in state.outliers] == [202, 203, 204, 205, 206]


def test_the_ranks_of_a_job_are_added_up() -> None:
    """The job waits no less than the rank that waits most."""
    first, other = Rates(10, 100, 5.0, 20.0, 0.1), Rates(12, 90, 6.0, 24.0, 0.3)
    assert together([first, other]) == Rates(10, 100, 5.0, 44.0, 0.3)


def test_of_ranks_without_samples_batches_are_told() -> None:
    first, other = Rates(10, 100, 5.0, 20.0, 0.1), Rates(12, 90, 6.0, None, 0.3)
    rates = together([first, other])
    assert rates is not None
    assert rates.samples_per_s is None


@pytest.mark.parametrize("ranks", [[], [None], [Rates(10, 100, 5.0, 20.0, 0.1), None]])
def test_a_rank_that_has_no_batch_yet(ranks: list[Rates | None]) -> None:
    assert together(ranks) is None


def test_the_ranks_that_wait_most_come_first() -> None:
    run = LiveRun()
    run.take(header(warmup=0))
    state = run.state(0)
    assert state is not None
    few, many = (replace(state, overall=Rates(9, 9, None, None, part)) for part in (0.1, 0.2))
    job = LiveJob((("none", state), ("few", few), ("many", many)))
    assert [name for name, _ in job.most_waiting] == ["many", "few", "none"]
    assert not job.ended
    assert (job.now, job.overall) == (None, None)


def silence(*lines: Line, quiet_s: int = 0) -> Silence | None:
    run = LiveRun()
    for line in lines:
        run.take(line)
    return run.silence(quiet_s * SECOND)


def test_how_long_no_batch_came() -> None:
    """With what is usual: the longest wait, and the longest time between two batches."""
    known = silence(header(), block([0, 2, 10]), block([12], wait_s=3), quiet_s=5)
    assert known is not None
    assert (known.silent_ns, known.batches) == (5 * SECOND, 4)
    assert (known.longest_wait_ns, known.longest_gap_ns) == (3 * SECOND, 8 * SECOND)
    assert known.is_open
    assert known.environment == HEADER.environment


def test_before_the_first_batch_the_whole_time_is_silent() -> None:
    """Its epoch goes on; a run without a header, or that has ended, is not silent."""
    known = silence(header(), quiet_s=5)
    assert known is not None
    assert (known.silent_ns, known.longest_wait_ns, known.is_open) == (5 * SECOND, None, True)
    assert silence(quiet_s=5) is None
    assert silence(header(), block([0]), RunEnd(1), quiet_s=5) is None


def test_between_two_epochs_none_is_open() -> None:
    ended = silence(header(), block([0]), EpochEnd(0, "exhausted", 4 * SECOND, 1), quiet_s=9)
    assert ended is not None
    assert not ended.is_open
    begun = silence(header(), EpochEnd(0, "exhausted", 4, 1), block([5], epoch=1))
    assert begun is not None
    assert begun.is_open


def test_what_is_not_recorded_any_more_is_not_silent() -> None:
    """Until another epoch is recorded."""
    lines = header(), block([0]), EpochEnd(0, "unmeasured", 4 * SECOND, 0)
    assert silence(*lines, quiet_s=1_000) is None
    again = silence(*lines, block([9], epoch=1), quiet_s=5)
    assert again is not None
    assert again.silent_ns == 5 * SECOND
