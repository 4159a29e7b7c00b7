"""Alternating runs: what is served, what counts, and to the nanosecond when."""

from __future__ import annotations

import inspect
import sys
import weakref
from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice, pairwise, repeat
from types import FrameType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadeval import LoaderEvaluator
from loadeval.core.alternate import LOADS_AHEAD, log_side_effects
from loadeval.core.loop import Serving
from loadeval.core.schedule import FIXED_REAL_BLOCK, arms_of
from loadeval.data.columns import UNKNOWN
from loadeval.data.run import ARMS, Run
from loadeval.estimate.steady import whole_epochs
from loadeval.testing import FakeClock, ScriptedLoader
from tests.scripted import SerialAdapter, SerialLoader, register

MS = 1_000_000
LOAD_NS, STEP_NS = 150 * MS, 100 * MS

pytestmark = pytest.mark.usefixtures("serial")


def alternating(
    length: int, prefetched: int = 0, **options: Any
) -> tuple[LoaderEvaluator, SerialLoader, FakeClock]:
    """By default without instruments: with some, one pair in three is for these."""
    clock = FakeClock(1000)
    loader = SerialLoader(range(length), [LOAD_NS] * length, clock)
    loader.prefetched = prefetched
    options = {"probes": ()} | options
    return LoaderEvaluator(loader, mode="alternate", clock=clock, **options), loader, clock


def train(evaluator: LoaderEvaluator, clock: FakeClock, epochs: int = 1) -> list[int]:
    served = []
    for _ in range(epochs):
        for batch in evaluator:
            served.append(batch)
            clock.advance(STEP_NS)
    return served


def rows(run: Run) -> Counter[tuple[int, int]]:
    """How many batches each arm of each pair has."""
    return Counter(zip(run.steps.pair.tolist(), run.steps.arm.tolist(), strict=True))


def counted(run: Run, arm: str) -> Any:
    steps = run.steps
    return (steps.pair != UNKNOWN) & (steps.arm == ARMS.index(arm))


@pytest.mark.parametrize("length", [2000, 5])
def test_no_batch_counts_that_was_served_while_instruments_were_read(length: int) -> None:
    """They are read in every third pair, its warm-ups included, and before the first block."""
    looks = [(True, 0)]

    class Looking:
        """Looks into the loader, and notes what it is told after how many batches."""

        def begin(self, _: Any) -> Any:
            return lambda _: None

        def take(self) -> list[Any]:
            return []

        def close(self) -> None:
            looks.append((False, loader.asked))

        def look(self, on: bool) -> None:
            looks.append((on, loader.asked))

    class Adapter(SerialAdapter):
        def stages(self, _: Any) -> Any:
            return Looking()

    clock = FakeClock(1000)
    loader = SerialLoader(range(length), [LOAD_NS] * length, clock)
    with pytest.MonkeyPatch.context() as patch:
        register(patch, SerialLoader.__module__, Adapter)
        evaluator = LoaderEvaluator(loader, mode="alternate", clock=clock, probes=(), pairs=8)
    train(evaluator, clock, epochs=1 if length > 100 else 30)
    run = evaluator.recorded()
    asked = np.zeros(loader.asked + 1, bool)
    for (on, since), (_, until) in pairwise(looks):
        asked[since:until] = on
    numbers = np.arange(len(run.steps))  # without prefetched batches, they come in order
    assert (asked[numbers] == run.steps.instrumented).all()
    assert run.steps.instrumented.sum() > 2 * 8
    assert not (run.steps.instrumented & (run.steps.pair != UNKNOWN)).any()
    assert sorted({*run.steps.pair.tolist()} - {UNKNOWN}) == [0, 1, 3, 4, 6, 7, 9, 10]
    assert {each.pair for each in run.prefetches if each.instrumented} == {2, 5, 8}


def test_a_window_is_the_sum_of_its_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    fence_ns, clocks = 1000, list[FakeClock]()
    monkeypatch.setattr(SerialAdapter, "fence", lambda _: clocks[0].advance(fence_ns))
    evaluator, _, clock = alternating(120, pairs=3)
    clocks.append(clock)
    train(evaluator, clock)
    run = evaluator.recorded()
    steps = run.steps
    for window in run.windows:
        of_block = (steps.pair == window.pair) & (steps.arm == ARMS.index(window.arm))
        assert (steps.wait_ns[of_block] + steps.step_ns[of_block]).sum() == window.elapsed_ns
        *others, last = steps.step_ns[of_block].tolist()
        assert set(others) == {STEP_NS}
        assert last == STEP_NS + fence_ns


def test_the_prefetch_times_the_loader_alone() -> None:
    evaluator, _, clock = alternating(200, pairs=4)
    train(evaluator, clock)
    run = evaluator.recorded()
    assert len(run.prefetches) == 4
    assert all(
        prefetch.elapsed_ns == prefetch.timed * LOAD_NS == 11 * LOAD_NS
        for prefetch in run.prefetches
    )
    assert run.steps.wait_ns[run.steps.pair != UNKNOWN].max() == LOAD_NS


@pytest.mark.parametrize("prefetched", [0, 4])
def test_an_epoch_begins_in_plain_order_and_uncounted(prefetched: int) -> None:
    """With as many batches as the queue holds and one, three at least, and as without loadeval."""
    head = max(3, prefetched + 1)
    evaluator, _, clock = alternating(40, prefetched)
    for _ in range(4):
        assert train(evaluator, clock)[:head] == list(range(head))
    steps = evaluator.recorded().steps
    heads = steps.batch < head
    assert (steps.pair[heads] == UNKNOWN).all()
    assert (steps.arm[heads] == ARMS.index("real")).all()
    assert set(steps.wait_ns[heads].tolist()) == {LOAD_NS}


@pytest.mark.parametrize("prefetched", [0, 4, 16])
def test_short_epochs_alternate_whole(prefetched: int) -> None:
    """In order, each batch once. The first is warm-up, and of others the first batch counts not."""
    evaluator, loader, clock = alternating(5, prefetched)
    loader.end_ns = 700
    assert train(evaluator, clock, epochs=9) == list(range(5)) * 9
    run = evaluator.recorded()
    assert loader.asked == 9 * 5
    assert set(rows(run)) == {
        (UNKNOWN, 0),
        (UNKNOWN, 1),
        *((p, a) for p in range(4) for a in (0, 1)),
    }
    assert [(window.pair, window.arm) for window in run.windows] == [
        (pair, arm) for pair in range(4) for arm in arms_of(0, pair)
    ]
    assert {window.epoch for window in run.windows} == set(range(1, 9))
    assert whole_epochs(run) == {window.epoch: window.pair for window in run.windows}
    assert (run.steps.pair[run.steps.batch == 0] == UNKNOWN).all()
    assert set(run.steps.wait_ns[counted(run, "real")].tolist()) == {LOAD_NS}
    assert set(run.steps.wait_ns[counted(run, "ideal")].tolist()) == {0}
    assert {(prefetch.batches, prefetch.end_ns) for prefetch in run.prefetches} == {(5, 700)}
    ideal = {prefetch.epoch for prefetch in run.prefetches}
    assert {end.wait_ns for end in run.ends if end.epoch not in ideal} == {700}


def test_epochs_that_a_training_breaks_off_are_measured_too() -> None:
    clock = FakeClock(1000)
    loader = SerialLoader(range(1000), [MS] * 1000, clock)
    evaluator = LoaderEvaluator(loader, mode="alternate", clock=clock, probes=())
    for _ in range(20):
        for _ in islice(evaluator, 20):
            clock.advance(MS)
    gap = evaluator.headroom()
    assert gap.speedup is not None
    assert gap.speedup.value == 2


def test_after_the_last_pair_the_loader_is_served_unmeasured() -> None:
    evaluator, _, clock = alternating(100, pairs=1)
    assert train(evaluator, clock) == list(range(100))
    assert iter(evaluator).__name__ == "__iter__"  # type: ignore[attr-defined]
    assert train(evaluator, clock) == list(range(100))
    run = evaluator.recorded()
    assert len(run.steps) < 30
    assert [end.cause for end in run.ends] == ["unmeasured"]


@pytest.mark.parametrize(("ranks", "room"), [("2", 1000), ("1", 3)], ids=["ranks", "little memory"])
@pytest.mark.parametrize("seed", range(2))
def test_a_run_whose_short_epochs_are_no_blocks_ends_too(
    ranks: str, room: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All ranks with the pair that was asked for."""
    monkeypatch.setenv("WORLD_SIZE", ranks)
    clock = FakeClock(1000)
    loader = SerialLoader([b"1"] * 10, [LOAD_NS] * 10, clock)
    options: dict[str, Any] = {"pairs": 1, "probes": (), "max_cache_bytes": room, "seed": seed}
    evaluator = LoaderEvaluator(loader, mode="alternate", clock=clock, **options)
    train(evaluator, clock, epochs=20)
    run = evaluator.recorded()
    assert run.ends[-1].cause == "unmeasured"
    assert ranks == "1" or {window.pair for window in run.windows} == {0}


@pytest.mark.parametrize("prefetched", [0, 4])
def test_an_interrupt_just_before_a_batch_is_handed_over_loses_none(prefetched: int) -> None:
    """It comes again then, and is recorded once."""
    lines, first = inspect.getsourcelines(Serving.__next__)
    (last,) = (number for number, line in enumerate(lines, first) if "return batch" in line)

    def interrupt(frame: FrameType, *_: object) -> Any:
        if frame.f_code is Serving.__next__.__code__ and frame.f_lineno == last:
            raise KeyboardInterrupt
        return interrupt

    before = sys.gettrace()
    for caught_at in range(40):
        evaluator, *_ = alternating(40, prefetched)
        epoch = iter(evaluator)
        served = list(islice(epoch, caught_at))
        try:
            sys.settrace(interrupt)
            with pytest.raises(KeyboardInterrupt):
                next(epoch)
        finally:
            sys.settrace(before)
        served += epoch
        assert sorted(served) == list(range(40))
        assert len(evaluator.recorded().steps) == 40


def environment() -> dict[str, Any]:
    return dict(alternating(1)[0].recorded().header.environment)


def test_a_launcher_tells_the_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert (environment()["rank"], environment()["world_size"]) == (3, 4)
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert "rank" not in environment()


def test_a_real_block_begins_with_an_empty_queue() -> None:
    """What was prefetched is taken before a real block, and served in the next ideal one."""
    evaluator, _, clock = alternating(200, prefetched=4)
    served = train(evaluator, clock)
    assert served != list(range(200))
    assert sorted(served) == list(range(200))
    assert max(batch - place for place, batch in enumerate(served)) == 4


def test_what_was_taken_out_of_the_queue_counts_towards_the_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is taken out before a real block, and waits in memory for the next ideal one."""
    copies: list[weakref.ref[Any]] = []

    def keep(_: object, batch: int) -> Any:
        copy = np.full(100, batch, np.int8)
        copies.append(weakref.ref(copy))
        return copy

    monkeypatch.setattr(SerialAdapter, "keep", keep)
    clock = FakeClock()
    loader = SerialLoader([np.zeros(100, np.int8)] * 200, [LOAD_NS] * 200, clock)
    loader.prefetched = 4
    evaluator = LoaderEvaluator(loader, mode="alternate", clock=clock, max_cache_bytes=700)
    for _ in evaluator:
        clock.advance(STEP_NS)
        assert sum(copy() is not None for copy in copies) <= 7
    assert rows(evaluator.recorded())[0, 1]


class Reusing(SerialLoader):
    """Writes each batch over the one before."""

    def __iter__(self) -> Iterator[Any]:
        buffer = np.zeros(2)
        for number in super().__iter__():
            buffer[:] = number
            yield buffer


@pytest.mark.parametrize("prefetched", [0, 4])
@pytest.mark.parametrize("fits", [0, 2])
def test_a_batch_that_cannot_be_copied_is_served_itself(
    monkeypatch: pytest.MonkeyPatch, prefetched: int, fits: int
) -> None:
    """Before the loader is asked for the next one, which may come in the same memory."""
    copied = 0
    keep = SerialAdapter.keep

    def keep_some(adapter: SerialAdapter, batch: Any) -> Any:
        nonlocal copied
        copied += 1
        if copied % (fits + 1) == 0:
            raise MemoryError("out of memory")
        return keep(adapter, batch)

    monkeypatch.setattr(SerialAdapter, "keep", keep_some)
    clock = FakeClock()
    loader = Reusing(range(200), [LOAD_NS] * 200, clock)
    loader.prefetched = prefetched
    evaluator = LoaderEvaluator(loader, mode="alternate", clock=clock)
    served = []
    for batch in evaluator:
        served.append(int(batch[1]))
        clock.advance(STEP_NS)
    assert (sorted(served) if prefetched else served) == list(range(200))
    run = evaluator.recorded()
    assert {prefetch.batches for prefetch in run.prefetches} <= set(range(fits + 2))


@pytest.mark.parametrize("prefetched", [0, 4])
@pytest.mark.parametrize("length", [20, 44])
def test_the_end_of_an_epoch_is_in_no_step(length: int, prefetched: int) -> None:
    """However long the loader takes to find that it has no more, as to stop its workers."""
    evaluator, loader, clock = alternating(length, prefetched)
    loader.end_ns = 500
    train(evaluator, clock, epochs=6)
    assert set(evaluator.recorded().steps.step_ns.tolist()) == {STEP_NS}


def test_what_it_changes_of_a_training_is_said_once_in_a_process(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In one short line, however many loaders alternate; it is no warning."""
    log_side_effects.cache_clear()
    for _ in range(2):
        evaluator, _, clock = alternating(40)
        train(evaluator, clock, epochs=2)
    assert [record.message for record in caplog.records] == [LOADS_AHEAD]


@pytest.mark.parametrize(("rank", "times"), [("0", 1), ("1", 0)])
def test_of_several_ranks_the_first_says_what_it_changes(
    rank: str, times: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", rank)
    log_side_effects.cache_clear()
    evaluator, _, clock = alternating(40, 4)
    train(evaluator, clock)
    assert len(caplog.records) == times


@pytest.mark.parametrize("prefetched", [0, 4])
def test_all_ranks_switch_arms_at_the_same_batch(
    monkeypatch: pytest.MonkeyPatch, prefetched: int
) -> None:
    """However long each of them loads and computes, over short epochs too."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    columns = []
    for wait_ns, step_ns in ((0, 0), (LOAD_NS, STEP_NS), (1000, MS)):
        clock = FakeClock()
        loader = SerialLoader(range(90), [wait_ns] * 90, clock)
        loader.prefetched = prefetched
        evaluator = LoaderEvaluator(loader, mode="alternate", clock=clock)
        for number, _ in enumerate(chain.from_iterable(repeat(evaluator, 5))):
            clock.advance(step_ns * (number % 7))
        steps = evaluator.recorded().steps
        columns.append((steps.pair.tolist(), steps.arm.tolist()))
    assert columns[0] == columns[1] == columns[2]
    assert rows(evaluator.recorded())[3, 0] >= FIXED_REAL_BLOCK // 2


@pytest.mark.parametrize("first", [0, 3, 5, 7])
def test_blocks_meet_a_regular_stall_as_often_as_training_does(first: int) -> None:
    """A loader that stalls at every tenth batch doubles the time of a step of 10 ms."""
    clock = FakeClock()
    waits_ns = [(100 if number % 10 == first else 0) * MS for number in range(250)]
    evaluator = LoaderEvaluator(
        ScriptedLoader(range(250), waits_ns, clock), "alternate", clock=clock
    )
    for _ in evaluator:
        clock.advance(10 * MS)
    low, high = evaluator.headroom().speedup.bounds
    assert low <= 2 <= high


@pytest.mark.parametrize("prefetched", [0, 4])
def test_a_rank_with_less_memory_switches_arms_with_the_others(
    monkeypatch: pytest.MonkeyPatch, prefetched: int
) -> None:
    """What it cannot prefetch of an ideal block it loads uncounted."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    batch = np.zeros(100)
    runs = []
    for room in (None, 6 * batch.nbytes):
        clock = FakeClock()
        loader = SerialLoader([batch.copy() for _ in range(300)], [LOAD_NS] * 300, clock)
        loader.prefetched = prefetched
        memory: dict[str, Any] = {} if room is None else {"max_cache_bytes": room}
        evaluator = LoaderEvaluator(loader, mode="alternate", clock=clock, **memory)
        for _ in evaluator:
            clock.advance(STEP_NS)
        runs.append(evaluator.recorded())
    whole, limited = (run.steps for run in runs)
    counts = limited.pair != -1
    for name in ("pair", "arm"):
        assert (getattr(whole, name)[counts] == getattr(limited, name)[counts]).all()
    of_real = whole.arm == 0
    assert (whole.pair[of_real] == limited.pair[of_real]).all()
    assert 0 < counts[~of_real].sum() < (whole.pair != -1)[~of_real].sum()


@given(
    st.lists(st.integers(1, 120), min_size=1, max_size=6),
    st.integers(0, 8),
    st.integers(0, 50) | st.integers(0, 500 * MS),
    st.integers(0, 500 * MS),
    st.booleans(),
)
def test_every_batch_is_served_once(
    lengths: list[int], prefetched: int, wait_ns: int, step_ns: int, fixed: bool
) -> None:
    """This holds in each epoch, whatever its length and however long anything takes."""
    clock = FakeClock()
    with pytest.MonkeyPatch.context() as patch:
        register(patch, SerialLoader.__module__, SerialAdapter)
        loader = SerialLoader([], [], clock)
        loader.prefetched = prefetched
        evaluator = LoaderEvaluator(loader, mode="alternate", clock=clock)
    alternation = evaluator._measurement.alternation
    assert alternation is not None
    alternation.schedule.fixed = fixed
    for length in lengths:
        loader.batches, loader.waits_ns = range(length), [wait_ns] * length
        served = []
        for batch in evaluator:
            served.append(batch)
            clock.advance(step_ns)
        assert (sorted(served) if prefetched else served) == list(range(length))
