"""How a run stands, from the lines of its log so far."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis import watched
from loadeval.analysis.outliers import Outlier, Outliers
from loadeval.analysis.standing import Stretch, Watch, added, standing
from loadeval.analysis.summary import summarise
from loadeval.analysis.watched import Watched
from loadeval.evaluator import LoaderEvaluator
from loadeval.runlog.codec import Line, RunEnd
from loadeval.runlog.model import UNKNOWN, Block, EpochEnd, Event, Header, LoaderInfo, Readings
from loadeval.runlog.reader import Follower, read_run
from loadeval.testing import FakeClock, ScriptedLoader

if TYPE_CHECKING:
    from pathlib import Path

    from loadeval.runlog.model import Mode

MS = 1_000_000
SECOND = 1_000 * MS


def header(mode: Mode = "log", warmup: int = 1, **loader: Any) -> Header:
    return Header(
        "id",
        "a run",
        mode,
        "2026-01-31T12:00:00+00:00",
        "images",
        warmup,
        LoaderInfo("loader", length=100, **loader),
    )


def block(
    requests_s: list[int],
    wait_s: int = 1,
    epoch: int = 0,
    pair: int | None = None,
    samples: int = 4,
) -> Block:
    """Batches that waited for `wait_s`, the last step open."""
    count = len(requests_s)
    waits, sizes = np.full(count, wait_s * SECOND), np.full(count, samples)
    requests = np.array(requests_s, dtype=np.int64) * SECOND
    found = Block(epoch, "real", requests, waits, np.full(count, UNKNOWN), sizes, sizes, pair)
    return found.with_steps()


def after(*lines: Line, quiet_s: int = 0) -> Watch:
    """How a run stands after `lines`."""
    found = Watched()
    for line in lines:
        found.take(line)
    state = found.state(quiet_s * SECOND)
    assert state is not None
    return state


def recorded(path: Path, every: int = 1, mode: str = "log", epochs: int = 3) -> Path:
    """500 batches an epoch, of which number 123 waits for a second; steps of 10 ms."""
    clock = FakeClock()
    waits_ns = [SECOND if number == 123 else 2 * MS for number in range(500)]
    loader = ScriptedLoader([np.zeros((4, 2))] * 500, waits_ns, clock)
    options: dict[str, Any] = {"every": every, "log_file": path, "clock": clock, "probes": ()}
    with LoaderEvaluator(loader, mode, **options) as evaluator:
        for _ in range(epochs):
            for _ in evaluator:
                clock.advance(10 * MS)
    return path


def watch(path: Path) -> Watch:
    """How the run whose log is at `path` stands."""
    appended = Follower(path).read()
    assert appended is not None
    return after(*appended.lines)


def test_without_a_header_nothing_is_known() -> None:
    """Not even the name."""
    assert Watched().state(0) is None


def test_before_the_first_batch() -> None:
    """What the header says, and for how long nothing came; no rate is 0."""
    state = after(header(), quiet_s=3)
    assert (state.name, state.mode, state.epoch_batches) == ("a run", "log", 100)
    assert (state.epoch, state.batch, state.batches, state.now, state.overall) == (
        None,
        None,
        0,
        None,
        None,
    )
    assert (state.elapsed_ns, state.silent_ns, state.epoch_start_ns) == (3 * SECOND, None, None)


@pytest.mark.parametrize(
    ("mode", "every"), [("log", 1), ("log", 20), ("replay", 1), ("alternate", 1)]
)
def test_over_all_is_what_a_summary_says(tmp_path: Path, mode: str, every: int) -> None:
    """The same rates and the same share, of the same batches, in every mode."""
    path = recorded(tmp_path / "run.jsonl", every, mode)
    state, summary = watch(path), summarise(read_run(path))
    assert state.overall is not None
    assert (state.batches, state.overall.batches) == (summary.batches, summary.steady_batches)
    assert state.overall.batches_per_s == pytest.approx(summary.batches_per_s, rel=1e-12)
    assert state.overall.samples_per_s == pytest.approx(summary.samples_per_s, rel=1e-12)
    assert state.overall.wait_share == pytest.approx(summary.wait_share, rel=1e-12)
    assert (state.epoch_start_ns, state.last_epoch_start_ns) == (
        summary.epoch_start_ns[0],
        summary.epoch_start_ns[-1],
    )
    assert (state.ended, state.epoch, state.batch, state.silent_ns) == (True, 2, 499, None)


@pytest.mark.parametrize("every", [1, 10])
def test_an_outlier_is_told_with_its_place(tmp_path: Path, every: int) -> None:
    """Its epoch, its number, when it was asked for, and how long it took, kept in detail or not."""
    path = recorded(tmp_path / "run.jsonl", every)
    state = watch(path)
    whole = read_run(recorded(tmp_path / "whole.jsonl")).steps
    assert state.median_iteration_ns == pytest.approx(12 * MS, rel=1 / 16)
    assert state.outlier_count == 3
    assert [(one.epoch, one.batch) for one in state.outliers] == [(0, 123), (1, 123), (2, 123)]
    last = state.outliers[-1]
    (row,) = np.flatnonzero((whole.epoch == 2) & (whole.batch == 123))
    assert last == Outlier(2, 123, int(whole.request_ns[row]), SECOND, 10 * MS)


def test_now_is_the_last_minute() -> None:
    """What was waited before is in all, and not in now."""
    lines = [block([start], wait_s=5 if start < 100 else 1) for start in range(0, 200, 10)]
    state = after(header(), *lines)
    assert state.now is not None
    assert state.overall is not None
    assert (state.now.batches, state.now.wait_share) == (6, 0.1)
    assert (state.overall.batches, state.overall.wait_share) == (18, 0.3)
    assert state.now.batches_per_s == pytest.approx(0.1)


def test_a_minute_without_a_batch_is_no_rate() -> None:
    """Once none came for far longer than usual, the last ones say nothing of now."""
    lines = [block([start]) for start in range(0, 100, 2)]
    assert after(header(), *lines, quiet_s=8).now is not None
    state = after(header(), *lines, quiet_s=92)
    assert (state.now, state.silent_ns) == (None, 92 * SECOND)
    assert state.elapsed_ns == (99 + 92) * SECOND


def test_slow_batches_are_no_silence() -> None:
    """Where each takes over a minute, now is the last one."""
    lines = [block([start]) for start in range(0, 2_000, 100)]
    state = after(header(), *lines, quiet_s=300)
    assert state.silent_ns is None
    assert state.now is not None
    assert state.now.batches == 1


def test_a_batch_that_is_not_kept_is_no_silence(tmp_path: Path) -> None:
    """Where one batch in N is kept, the next word of the run may be an aggregate away."""
    path = recorded(tmp_path / "run.jsonl", every=10_000)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-1]))
    appended = Follower(path).read()
    assert appended is not None
    assert after(*appended.lines, quiet_s=9).silent_ns is None
    assert after(*appended.lines, quiet_s=100).silent_ns is not None


def test_readings_and_events_tell_the_time_too() -> None:
    """While no batch comes, what probes read says how late it is."""
    found = Readings("host", "machine", np.array([50 * SECOND, 93 * SECOND]), {})
    state = after(header(), block([0]), found)
    assert (state.elapsed_ns, state.silent_ns) == (93 * SECOND, 92 * SECOND)
    state = after(header(), block([0]), Event(94 * SECOND, "it happened"))
    assert (state.elapsed_ns, state.events) == (94 * SECOND, ("it happened",))
    assert after(header(), Readings("gpu", "", np.array([], np.int64), {}, "none")).elapsed_ns == 0


def test_silence_before_the_first_batch_is_told() -> None:
    """An epoch start that takes long is one too."""
    assert after(header(), quiet_s=11).silent_ns == 11 * SECOND


def test_a_run_that_ended_is_not_silent() -> None:
    """Nor does its time go on."""
    state = after(header(), block([0, 2]), RunEnd(2), quiet_s=1_000)
    assert (state.ended, state.silent_ns, state.elapsed_ns) == (True, None, 3 * SECOND)


def test_an_open_step_is_closed_by_what_comes_next() -> None:
    """By the epoch's next block or its end; broken off, it is in no rate."""
    ends = (EpochEnd(0, "exhausted", 8 * SECOND, 1), EpochEnd(0, "broken off"))
    for end, batches in zip(ends, (3, 2), strict=True):
        state = after(header(warmup=0), block([0, 2]), block([5]), end)
        assert state.overall is not None
        assert (state.overall.batches, state.batches) == (batches, 3)
    assert after(header(warmup=0), block([0, 2]), block([5]), ends[0]).elapsed_ns == 8 * SECOND + 1


def test_epochs_at_once_are_told_apart() -> None:
    """A block of another epoch does not close a step, and has its own warm-up."""
    state = after(header(), block([0, 2]), block([3, 4], epoch=1), block([9]))
    assert state.overall is not None
    assert (state.overall.batches, state.overall.elapsed_ns) == (1, 7 * SECOND)
    assert (state.epoch_start_ns, state.last_epoch_start_ns) == (SECOND, SECOND)


def test_only_real_blocks_count_of_an_alternating_run() -> None:
    """Wash-outs are in no rate."""
    lines = [block([0, 2]), block([4, 6], pair=0), block([8])]
    state = after(header("alternate"), *lines)
    assert state.overall is not None
    assert (state.overall.batches, state.batches) == (2, 5)


def test_unknown_samples_give_batches() -> None:
    """And no time gives no rate."""
    state = after(header(warmup=0), block([0, 2, 4], samples=UNKNOWN))
    assert state.overall is not None
    assert (state.overall.samples_per_s, state.overall.batches_per_s) == (None, 0.5)
    still = standing([Stretch(5, 2, 0, 0, 8)])
    assert still is not None
    assert (still.batches_per_s, still.samples_per_s, still.wait_share) == (None, None, None)
    assert added(Stretch(samples=3), Stretch(samples=None)).samples is None


def test_a_batch_that_was_ready_is_no_epoch_start() -> None:
    """The first epoch of a loader that had loaded when it was wrapped has none to tell."""
    lines = [block([0, 2]), block([5], epoch=1)]
    state = after(header(ready_batches=2), *lines)
    assert (state.epoch_start_ns, state.last_epoch_start_ns) == (SECOND, None)
    assert after(header(ready_batches=2), lines[0]).epoch_start_ns is None


def test_empty_blocks_are_nothing() -> None:
    """A line that holds no batch changes nothing."""
    assert after(header(), block([])).epoch is None
    none = block([]).numbered(np.array([], np.int64))
    assert after(header(), none).epoch is None


def test_what_is_held_does_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the last minute only sums are left, and five outliers."""
    monkeypatch.setattr(watched, "RECENT_NS", 10 * SECOND)
    found = Watched()
    found.take(header())
    for epoch in range(20):
        for start in range(50):
            wait_s = 9 if start % 10 == 9 else 1
            found.take(block([1_000 * epoch + 10 * start], wait_s=wait_s, epoch=epoch))
        found.take(EpochEnd(epoch, "broken off"))
    assert len(found._recent) < 4
    assert not found._held
    assert not found._next


def test_a_few_iterations_have_no_median() -> None:
    """Before there are twenty nothing is called an outlier."""
    found = Outliers()
    rows = block(list(range(0, 40, 2))).part(slice(-1))
    found.see(rows)
    found.find(rows, np.arange(19))
    found.find_one(Outlier(0, 0, 0, 10**12, 0))
    assert (found.median_ns, found.count) == (None, 0)
    found.see(rows.part(slice(1)))
    assert found.median_ns == pytest.approx(2 * SECOND, rel=1 / 16)
    found.find_one(Outlier(0, 0, 0, 4 * SECOND, SECOND))
    found.find_one(Outlier(0, 0, 0, SECOND, SECOND))
    assert found.count == 1


def test_the_last_outliers_are_shown() -> None:
    """Five of them, the last ones, whether they came together or apart."""
    found = Outliers()
    usual, unusual = block(list(range(0, 400, 2))).part(slice(-1)), block(list(range(0, 80, 10)))
    found.see(usual)
    found.find(unusual.part(slice(-1)), np.arange(7))
    assert (found.count, [one.batch for one in found.last]) == (7, [2, 3, 4, 5, 6])
