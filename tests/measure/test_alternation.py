"""Alternating runs: what is served, what counts, and to the nanosecond when."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections import Counter as Aggregate
from dataclasses import replace
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval import IterableAdapter, LoaderEvaluator, LoaderInfo
from loadeval.runlog.model import ARMS, UNKNOWN
from loadeval.runtime import alternate, measurement, registry
from loadeval.runtime.alternate import planned_blocks
from loadeval.testing import FakeClock, ScriptedLoader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loadeval.runlog.model import Run, Steps

LOAD_NS, STEP_NS = 15, 10


class Prefetching(ScriptedLoader):
    """A loader that may have had some batches ready; without workers, so nobody naps for them."""

    prefetched = 0


class PrefetchingAdapter(IterableAdapter):
    def describe(self, loader: Any) -> LoaderInfo:
        return replace(super().describe(loader), workers=0, prefetch_depth=loader.prefetched)


@pytest.fixture(autouse=True)
def _adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint(__name__, f"{__name__}:PrefetchingAdapter", registry.GROUP)
    monkeypatch.setattr(EntryPoint, "load", lambda _: PrefetchingAdapter)
    monkeypatch.setattr(registry, "registered", lambda: {__name__: point})


def alternating(
    length: int, prefetched: int = 0, **options: Any
) -> tuple[LoaderEvaluator, ScriptedLoader, FakeClock]:
    clock = FakeClock(1000)
    loader = Prefetching(range(length), [LOAD_NS] * length, clock)
    loader.prefetched = prefetched
    return LoaderEvaluator(loader, mode="alternate", clock=clock, **options), loader, clock


def train(evaluator: LoaderEvaluator, clock: FakeClock, epochs: int = 1) -> list[int]:
    served = []
    for _ in range(epochs):
        for batch in evaluator:
            served.append(batch)
            clock.advance(STEP_NS)
    return served


def counted(run: Run, arm: str) -> Any:
    steps: Steps = run.steps
    return (steps.pair != UNKNOWN) & (steps.arm == ARMS.index(arm))


def test_every_batch_is_served_once_in_order() -> None:
    """Without a queue to empty, an epoch is the loader's, batch for batch."""
    evaluator, loader, clock = alternating(100)
    assert train(evaluator, clock) == list(range(100))
    assert train(evaluator, clock) == list(range(100))
    assert loader.asked == 200


def test_real_blocks_wait_and_ideal_blocks_do_not() -> None:
    """Counted real batches wait for the loader, counted ideal ones not at all."""
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
    expected = [(segment.pair, segment.arm) for segment in planned_blocks(3, 5, 0, 8)]
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
        rows = (steps.pair == window.pair) & (steps.arm == ARMS.index(window.arm))
        assert (steps.wait_ns[rows] + steps.step_ns[rows]).sum() == window.elapsed_ns
        assert steps.step_ns[rows].tolist() == [STEP_NS] * 7 + [STEP_NS + fence_ns]


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


def test_start_up_belongs_to_no_block() -> None:
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
    rows = Aggregate(zip(run.steps.pair.tolist(), run.steps.arm.tolist(), strict=True))
    assert rows[0, 0] == rows[0, 1] == rows[1, 0] == rows[1, 1] == 8
    assert {window.epoch for window in run.windows if window.pair == 0} > {0, 1}


def test_after_the_last_pair_the_loader_is_served_unmeasured() -> None:
    """What is left of the epoch, and later epochs, are served by the loader itself."""
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


def test_distributed_training_is_not_stopped_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where several processes train together precision= is off, and the log says so."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    evaluator, _, clock = alternating(400, precision=0.05)
    train(evaluator, clock)
    run = evaluator.recorded()
    assert len(run.steps) == 400
    assert "all ranks" in run.events[0].message


def test_a_framework_may_join_the_ranks_after_wrapping(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether there are several ranks is asked when an epoch begins, not when it is wrapped."""
    evaluator, _, clock = alternating(400, precision=0.05)
    monkeypatch.setenv("WORLD_SIZE", "2")
    train(evaluator, clock)
    assert len(evaluator.recorded().steps) == 400
    train(evaluator, clock)
    assert len(evaluator.recorded().events) == 1


def test_a_running_process_group_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several ranks of torch.distributed are seen, and which this is, without a launcher's word."""
    torch_distributed = pytest.importorskip("torch.distributed")
    assert not measurement.is_distributed()
    monkeypatch.setattr(torch_distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch_distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(torch_distributed, "get_rank", lambda: 1)
    assert measurement.is_distributed()
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
    """A loader that fails during a prefetch fails where it would have by itself."""
    clock = FakeClock()
    batches: list[Any] = [*range(fails_at), OSError("disk gone")]
    loader = Prefetching(batches, [LOAD_NS] * len(batches), clock)
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


@pytest.mark.parametrize("length", range(0, 45, 2))
@pytest.mark.parametrize("prefetched", [0, 4])
def test_epochs_of_any_length_are_whole(length: int, prefetched: int) -> None:
    """Wherever an epoch ends, in a prefetch or in a block, each of its batches is served once."""
    evaluator, _, clock = alternating(length + 1, prefetched)
    for _ in range(3):
        assert sorted(train(evaluator, clock)) == list(range(length + 1))
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
    rows = Aggregate(zip(run.steps.pair.tolist(), run.steps.arm.tolist(), strict=True))
    assert rows[0, 0] == rows[0, 1] == 8


def test_a_prefetch_stays_within_the_caches_bound() -> None:
    """Blocks are served in smaller parts when a whole one does not fit into memory."""
    clock = FakeClock()
    loader = Prefetching([bytes(100)] * 200, [LOAD_NS] * 200, clock)
    evaluator = LoaderEvaluator(loader, mode="alternate", clock=clock, max_cache_bytes=350)
    assert len(train(evaluator, clock)) == 200
    run = evaluator.recorded()
    assert {prefetch.batches for prefetch in run.prefetches} <= {1, 2, 3}
    rows = Aggregate(zip(run.steps.pair.tolist(), run.steps.arm.tolist(), strict=True))
    assert rows[0, 0] == rows[0, 1] == 8


def test_prefetched_batches_are_in_memory_of_their_own() -> None:
    """A loader that reuses its buffer is served with the values that each batch had."""
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


def test_a_process_that_ends_meanwhile_has_no_cpu_time(monkeypatch: pytest.MonkeyPatch) -> None:
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
        """Iterated in the background, so to speak."""

        prefetched = 4

        def __iter__(self) -> Iterator[int]:
            epoch = iter(range(100))
            try:
                yield from epoch
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

    class Ending(Prefetching):
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
    summed: Aggregate[tuple[int, int]] = Aggregate()
    for pair, arm, iteration_ns in zip(
        run.steps.pair, run.steps.arm, run.steps.wait_ns + run.steps.step_ns, strict=True
    ):
        summed[int(pair), int(arm)] += int(iteration_ns)
    for window in run.windows:
        summed[window.pair, ARMS.index(window.arm)] -= window.elapsed_ns
    assert {pair: left for (pair, _), left in summed.items() if left and pair != UNKNOWN} == {}


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
