"""Alternating runs: what is served, what counts, and to the nanosecond when."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadeval import LoaderEvaluator
from loadeval.runlog.model import ARMS, UNKNOWN
from loadeval.runtime import alternate, measurement
from loadeval.runtime.alternate import SHORTEST_WARMUP, SMALLEST_BLOCK, block_for, planned_blocks
from loadeval.testing import FakeClock
from tests.scripted import SerialLoader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loadeval.runlog.model import Run, Steps

LOAD_NS, STEP_NS = 15, 10


pytestmark = pytest.mark.usefixtures("serial")


def alternating(
    length: int, prefetched: int = 0, **options: Any
) -> tuple[LoaderEvaluator, SerialLoader, FakeClock]:
    clock = FakeClock(1000)
    loader = SerialLoader(range(length), [LOAD_NS] * length, clock)
    loader.prefetched = prefetched
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
    steps: Steps = run.steps
    return (steps.pair != UNKNOWN) & (steps.arm == ARMS.index(arm))


def test_real_blocks_wait_and_ideal_blocks_do_not() -> None:
    evaluator, _, clock = alternating(300)
    train(evaluator, clock)
    run = evaluator.recorded()
    steps = run.steps
    real, ideal = counted(run, "real"), counted(run, "ideal")
    assert set(steps.wait_ns[real].tolist()) == {LOAD_NS}
    assert set(steps.wait_ns[ideal].tolist()) == {0}
    assert set(steps.step_ns[real | ideal].tolist()) == {STEP_NS}
    assert real.sum() > 50
    assert abs(int(real.sum()) - int(ideal.sum())) <= 8


def test_blocks_are_whole_and_in_the_order_of_the_schedule() -> None:
    """Each pair has its two blocks, of equal size, in the seeded order."""
    evaluator, _, clock = alternating(300, pairs=5, seed=3)
    train(evaluator, clock)
    windows = evaluator.recorded().windows
    expected = [(block.pair, block.arm) for block in planned_blocks(3, 5, 0, 8)]
    assert [(window.pair, window.arm) for window in windows] == expected
    sizes = {"real": 8 * (LOAD_NS + STEP_NS), "ideal": 8 * STEP_NS}
    assert all(window.elapsed_ns == sizes[window.arm] for window in windows)


def test_a_window_is_the_sum_of_its_batches() -> None:
    """Waits and steps of a counted block add up to its window, fences included."""
    evaluator, _, clock = alternating(120, pairs=3)
    fence_ns = 1000
    evaluator._measurement.alternation.fence = lambda: clock.advance(fence_ns)  # type: ignore[union-attr]
    train(evaluator, clock)
    run = evaluator.recorded()
    steps = run.steps
    for window in run.windows:
        of_block = (steps.pair == window.pair) & (steps.arm == ARMS.index(window.arm))
        assert (steps.wait_ns[of_block] + steps.step_ns[of_block]).sum() == window.elapsed_ns
        assert steps.step_ns[of_block].tolist() == [STEP_NS] * 7 + [STEP_NS + fence_ns]


def test_the_prefetch_times_the_loader_alone() -> None:
    """Batches prefetched ahead take what the loader takes; the wait for them counts nowhere."""
    evaluator, _, clock = alternating(200, pairs=4)
    train(evaluator, clock)
    run = evaluator.recorded()
    assert len(run.prefetches) == 4
    assert all(
        prefetch.elapsed_ns == prefetch.timed * LOAD_NS == 11 * LOAD_NS
        for prefetch in run.prefetches
    )
    assert run.steps.wait_ns[run.steps.pair != UNKNOWN].max() == LOAD_NS


def test_an_epoch_start_belongs_to_no_block() -> None:
    """The first batch of each epoch is served, and counts nowhere."""
    evaluator, _, clock = alternating(20)
    train(evaluator, clock, epochs=4)
    steps = evaluator.recorded().steps
    first = np.append(0, np.flatnonzero(np.diff(steps.epoch)) + 1)
    assert (steps.pair[first] == UNKNOWN).all()
    assert (steps.wait_ns[first] == LOAD_NS).all()


def test_short_epochs_carry_blocks_over() -> None:
    """Epochs shorter than a block still fill blocks, over their boundaries."""
    evaluator, _, clock = alternating(5)
    assert train(evaluator, clock, epochs=40) == list(range(5)) * 40
    run = evaluator.recorded()
    assert [rows(run)[pair, arm] for pair in (0, 1) for arm in (0, 1)] == [8] * 4
    assert {window.epoch for window in run.windows if window.pair == 0} > {0, 1}


def test_after_the_last_pair_the_loader_is_served_unmeasured() -> None:
    evaluator, _, clock = alternating(100, pairs=1)
    assert train(evaluator, clock) == list(range(100))
    assert iter(evaluator).__name__ == "__iter__"  # type: ignore[attr-defined]
    assert train(evaluator, clock) == list(range(100))
    run = evaluator.recorded()
    assert len(run.steps) < 30
    assert [end.cause for end in run.ends] == ["unmeasured"]


def test_no_pair_begins_after_the_budget_of_batches() -> None:
    """batches= ends the measurement with the pair in which it is reached."""
    evaluator, _, clock = alternating(300, batches=50)
    train(evaluator, clock)
    assert 50 <= len(evaluator.recorded().steps) < 80


def test_a_precise_run_stops_by_itself() -> None:
    """precision= ends a run whose pairs agree, and not one whose pairs do not."""
    evaluator, _, clock = alternating(400, precision=0.05)
    train(evaluator, clock)
    assert len(evaluator.recorded().steps) < 200
    noisy, _, clock = alternating(400, precision=0.05)
    for batch in noisy:
        clock.advance(STEP_NS * (1 + 20 * (batch % 37 == 0)))
    assert len(noisy.recorded().steps) == 400


@pytest.mark.parametrize("joined", ["before wrapping", "after wrapping"])
def test_distributed_training_is_not_stopped_early(
    monkeypatch: pytest.MonkeyPatch, joined: str
) -> None:
    """Where several ranks train together precision= is off, and the log says so, once."""
    if joined == "before wrapping":
        monkeypatch.setenv("WORLD_SIZE", "2")
    evaluator, _, clock = alternating(400, precision=0.05)
    monkeypatch.setenv("WORLD_SIZE", "2")
    train(evaluator, clock)
    assert len(evaluator.recorded().steps) == 400
    train(evaluator, clock)
    (event,) = evaluator.recorded().events
    assert "all ranks" in event.message


def test_a_running_process_group_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several ranks of torch.distributed are seen, and which this is, without a launcher's word."""
    torch_distributed = pytest.importorskip("torch.distributed")
    assert measurement.place_among_ranks() == {}
    monkeypatch.setattr(torch_distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch_distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(torch_distributed, "get_rank", lambda: 1)
    assert measurement.place_among_ranks() == {"rank": 1, "world_size": 2}


def test_a_launcher_tells_the_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stands in the run's environment; of a process by itself nothing does."""
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    environment = alternating(1)[0].recorded().header.environment
    assert (environment["rank"], environment["world_size"]) == (3, 4)
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert "rank" not in alternating(1)[0].recorded().header.environment


def test_a_real_block_begins_with_an_empty_queue() -> None:
    """What was prefetched is taken before a real block, and served in the next ideal one."""
    evaluator, _, clock = alternating(200, prefetched=4)
    served = train(evaluator, clock)
    assert served != list(range(200))
    assert sorted(served) == list(range(200))
    assert max(abs(place - batch) for place, batch in enumerate(served)) <= 40


@pytest.mark.parametrize("fails_at", range(1, 40, 3))
@pytest.mark.parametrize("prefetched", [0, 4])
def test_the_loaders_error_comes_after_the_batches_before_it(
    fails_at: int, prefetched: int
) -> None:
    """Batches that were prefetched are served before the error is raised."""
    clock = FakeClock()
    batches: list[Any] = [*range(fails_at), OSError("disk gone")]
    loader = SerialLoader(batches, [LOAD_NS] * len(batches), clock)
    loader.prefetched = prefetched
    evaluator = LoaderEvaluator(loader, mode="alternate", clock=clock)
    served: list[int] = []

    def run() -> None:
        for batch in evaluator:
            served.append(batch)
            clock.advance(STEP_NS)

    with pytest.raises(OSError, match="disk gone"):
        run()
    assert sorted(served) == list(range(fails_at))
    assert evaluator.recorded().ends[0].cause == "failed"


@pytest.mark.parametrize("length", [*range(0, 45, 2), 99])
@pytest.mark.parametrize("prefetched", [0, 4])
def test_epochs_of_any_length_are_whole(length: int, prefetched: int) -> None:
    """Each batch is served once wherever an epoch ends, in order if there is no queue to empty."""
    evaluator, loader, clock = alternating(length + 1, prefetched)
    for _ in range(3):
        served = train(evaluator, clock)
        assert (sorted(served) if prefetched else served) == list(range(length + 1))
    assert loader.asked == 3 * (length + 1)
    assert {end.cause for end in evaluator.recorded().ends} == {"exhausted"}


def test_an_epoch_can_be_broken_off_anywhere() -> None:
    """`break` in either arm leaves a run that goes on in the next epoch."""
    evaluator, _, clock = alternating(60)
    for stop in range(1, 50, 3):
        for number, _ in enumerate(evaluator):
            clock.advance(STEP_NS)
            if number == stop:
                break
    run = evaluator.recorded()
    assert {end.cause for end in run.ends} == {"broken off"}
    assert rows(run)[0, 0] == rows(run)[0, 1] == 8


def test_a_prefetch_stays_within_the_caches_bound() -> None:
    """Blocks are served in smaller parts when a whole one does not fit into memory."""
    clock = FakeClock()
    loader = SerialLoader([bytes(100)] * 200, [LOAD_NS] * 200, clock)
    evaluator = LoaderEvaluator(loader, mode="alternate", clock=clock, max_cache_bytes=350)
    assert len(train(evaluator, clock)) == 200
    run = evaluator.recorded()
    assert {prefetch.batches for prefetch in run.prefetches} <= {1, 2, 3}
    assert rows(run)[0, 0] == rows(run)[0, 1] == 8


def test_prefetched_batches_are_in_memory_of_their_own() -> None:
    buffer = np.zeros(2)

    def reusing() -> Iterator[Any]:
        for number in range(60):
            buffer[:] = number
            yield buffer

    served = [float(batch[0]) for batch in LoaderEvaluator(reusing, mode="alternate")]
    assert served == list(range(60))


def test_a_batch_is_the_consumers_to_free() -> None:
    """What a step makes of its batch is freed with the batch, in the ideal arm too."""
    made: list[weakref.ref[Any]] = []
    most_alive = 0
    for batch in LoaderEvaluator(lambda: ({} for _ in range(60)), mode="alternate"):
        batch["made"] = np.ones(4)
        made.append(weakref.ref(batch["made"]))
        del batch
        most_alive = max(most_alive, sum(one() is not None for one in made))
    assert most_alive == 1


def test_children_are_seen_and_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPU time of this process while it naps is background work; the wait for it has an end."""
    monkeypatch.setattr(alternate, "NAP_S", 0.001)
    background = alternate.WorkerActivity()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE):
        assert background.workers_cpu_ns() is not None
    assert background._busy_s() >= 0
    monkeypatch.setattr(background, "_busy_s", lambda: 0.0)
    assert background.wait_until_idle(1.0)
    monkeypatch.setattr(background, "_busy_s", iter(range(10_000)).__next__)
    assert not background.wait_until_idle(0.01)


def test_a_process_that_has_ended_has_no_cpu_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children that end while they are read count 0, and an unreadable process is unknown."""
    background = alternate.WorkerActivity()
    error = background._psutil.NoSuchProcess(1)

    class Gone:
        def cpu_times(self) -> None:
            raise error

        def children(self, *, recursive: bool) -> list[Any]:
            del recursive
            raise error

    assert background._cpu_s(Gone()) == 0.0  # type: ignore[arg-type]
    monkeypatch.setattr(background, "_self", Gone())
    assert background.workers_cpu_ns() is None


def test_an_epoch_that_was_broken_off_leaves_nothing_behind() -> None:
    """Its iterator, and so the loader's workers, are gone without the garbage collector."""
    gone = []

    class Batches:
        def __iter__(self) -> Iterator[int]:
            try:
                yield from range(100)
            finally:
                gone.append(True)

    evaluator = LoaderEvaluator(Batches(), mode="alternate")
    gc.disable()
    try:
        for number in evaluator:
            if number == 50:
                break
        assert gone == [True]
    finally:
        gc.enable()


@pytest.mark.parametrize("prefetched", [0, 4])
@pytest.mark.parametrize("length", range(20, 60))
def test_the_end_of_an_epoch_is_in_no_step(length: int, prefetched: int) -> None:
    """However long the loader takes to find that it has no more, as to stop its workers."""

    class Ending(SerialLoader):
        def __iter__(self) -> Iterator[Any]:
            yield from super().__iter__()
            self.clock.advance(500)

    clock = FakeClock(1000)
    loader = Ending(range(length), [LOAD_NS] * length, clock)
    loader.prefetched = prefetched
    evaluator = LoaderEvaluator(loader, mode="alternate", clock=clock)
    train(evaluator, clock, epochs=6)
    run = evaluator.recorded()
    assert set(run.steps.step_ns.tolist()) == {STEP_NS}
    steps = run.steps
    for pair, arm in rows(run):
        windows = [one for one in run.windows if (one.pair, ARMS.index(one.arm)) == (pair, arm)]
        of_block = (steps.pair == pair) & (steps.arm == arm)
        if pair != UNKNOWN:
            found_ns = (steps.wait_ns + steps.step_ns)[of_block].sum()
            assert found_ns == sum(one.elapsed_ns for one in windows)


@pytest.mark.parametrize(
    ("prefetched", "said"),
    [(4, "a few places earlier or later"), (0, "they draw different numbers")],
)
def test_what_it_changes_of_a_training_is_said_once(
    prefetched: int, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """When the first epoch begins, with the mode that changes nothing; it is no warning."""
    evaluator, _, clock = alternating(40, prefetched)
    train(evaluator, clock, epochs=2)
    (record,) = caplog.records
    assert said in record.message
    assert "mode='log'" in record.message


SEEDS = st.integers()
SIZES = st.integers(0, 200)


@given(SEEDS, st.integers(0, 40), SIZES, SIZES)
def test_every_pair_has_both_arms(seed: int, pairs: int, depth: int, block: int) -> None:
    """One after the other, with as many counted batches, and pairs in their order."""
    found = list(planned_blocks(seed, pairs, depth, block))
    assert [one.pair for one in found] == [number for number in range(pairs) for _ in range(2)]
    for first, second in zip(found[::2], found[1::2], strict=True):
        assert {first.arm, second.arm} == {"real", "ideal"}
    assert {one.counted for one in found} <= {block}


@given(SEEDS, SIZES)
def test_what_the_loader_prefetched_is_warm_up(seed: int, depth: int) -> None:
    """More than its queue holds in the real arm; in either until steps are steady."""
    warmup = {one.arm: one.warmup for one in planned_blocks(seed, 1, depth, 8)}
    assert warmup["ideal"] == SHORTEST_WARMUP <= warmup["real"]
    assert warmup["real"] > depth


@given(SEEDS, st.integers(1, 40), SIZES, SIZES)
def test_the_order_depends_on_the_seed_alone(seed: int, pairs: int, depth: int, block: int) -> None:
    """Not on how many pairs there are to be, nor on the loader, nor on a draw elsewhere."""
    found = [one.arm for one in planned_blocks(seed, pairs, depth, block)]
    assert found == [one.arm for one in islice(planned_blocks(seed, None, 0, 8), 2 * pairs)]


@given(SEEDS)
def test_either_arm_is_first_about_as_often(seed: int) -> None:
    """In 400 pairs between 140 and 260 times, six standard deviations; other seeds differ."""
    orders = [
        [one.arm for one in planned_blocks(number, 400, 0, 8)][::2] for number in (seed, seed + 1)
    ]
    assert 140 <= orders[0].count("real") <= 260
    assert orders[0] != orders[1]


@given(SIZES)
def test_a_block_goes_well_beyond_the_queue(depth: int) -> None:
    """And is never of a few batches."""
    assert block_for(depth) > 2 * depth
    assert block_for(depth) >= SMALLEST_BLOCK
