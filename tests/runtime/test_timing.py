"""What the hot loops note, to the nanosecond, on a clock that moves only when told."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

import pytest

from loadeval import LoaderEvaluator
from loadeval.runlog.model import UNKNOWN
from loadeval.runtime.loop import CHUNK
from loadeval.testing import FakeClock, ScriptedLoader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loadeval.runlog.model import Run


def logged(waits_ns: list[int], **options: Any) -> tuple[LoaderEvaluator, FakeClock]:
    clock = FakeClock(1_000_000)
    loader = ScriptedLoader(range(len(waits_ns)), waits_ns, clock)
    return LoaderEvaluator(loader, clock=clock, **options), clock


def columns(run: Run) -> dict[str, list[int]]:
    steps = run.steps
    return {
        "request": steps.request_ns.tolist(),
        "wait": steps.wait_ns.tolist(),
        "step": steps.step_ns.tolist(),
    }


def test_requests_waits_and_steps_are_exact() -> None:
    """A wait ends with the delivery, a step with the next request, the last with the epoch."""
    evaluator, clock = logged([10, 20, 30])
    for number in evaluator:
        clock.advance(number + 1)
    for _ in evaluator:
        clock.advance(5)
    assert columns(evaluator.recorded()) == {
        "request": [0, 11, 33, 66, 81, 106],
        "wait": [10, 20, 30, 10, 20, 30],
        "step": [1, 2, 3, 5, 5, 5],
    }


def test_every_epoch_is_kept() -> None:
    """A run holds the batches of all epochs, numbered."""
    evaluator, _ = logged([1, 2])
    for _ in range(3):
        list(evaluator)
    run = evaluator.recorded()
    assert run.steps.epoch.tolist() == [0, 0, 1, 1, 2, 2]
    assert [end.cause for end in run.ends] == ["exhausted"] * 3


def test_a_broken_off_epoch_leaves_its_last_step_open() -> None:
    """After `break` the last wait is known, the last step is not, and no time is negative."""
    evaluator, clock = logged([10, 20, 30])
    for number in evaluator:
        clock.advance(7)
        if number == 1:
            break
    run = evaluator.recorded()
    assert columns(run) == {"request": [0, 17], "wait": [10, 20], "step": [7, UNKNOWN]}
    assert run.ends[0].cause == "broken off"
    assert evaluator.get_metrics()["total_time"] == 37e-9


def test_the_time_of_a_failing_batch_is_kept() -> None:
    """The loader's exception passes through, and how long it took to fail is on record."""
    clock = FakeClock()
    loader = ScriptedLoader([0, ValueError("bad image")], [10, 500], clock)
    evaluator = LoaderEvaluator(loader, clock=clock)
    with pytest.raises(ValueError, match="bad image"):
        list(evaluator)
    run = evaluator.recorded()
    (end,) = run.ends
    assert (end.cause, end.request_ns, end.wait_ns) == ("failed", 10, 500)
    assert end.error == "ValueError: bad image"
    assert run.steps.step_ns.tolist() == [0]


def test_the_loaders_exception_keeps_its_traceback() -> None:
    """The innermost frame of an exception from the loader is the loader's own."""

    def fails() -> Iterator[int]:
        yield 1
        raise KeyError("missing")

    with pytest.raises(KeyError) as caught:
        list(LoaderEvaluator(fails))
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "fails"


def test_the_consumers_exception_passes_through() -> None:
    """What the training step raises reaches the user, and the batches before it are kept."""
    evaluator, _ = logged([1, 2, 3])

    def train() -> None:
        for number in evaluator:
            if number == 1:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()
    assert len(evaluator.recorded().steps) == 2


def test_opening_the_loader_counts_as_epoch_start() -> None:
    """What `iter(loader)` takes, as when workers start, is part of the first wait."""
    clock = FakeClock()

    class Slow(ScriptedLoader):
        def __iter__(self) -> Iterator[Any]:
            clock.advance(1000)
            return super().__iter__()

    evaluator = LoaderEvaluator(Slow(range(2), [10, 10], clock), clock=clock)
    list(evaluator)
    assert evaluator.recorded().steps.wait_ns.tolist() == [1010, 10]


def test_two_epochs_at_once_do_not_mix() -> None:
    """Two iterators of one evaluator are two epochs, each with its own times."""
    evaluator, _ = logged([10, 20])
    for _ in zip(evaluator, evaluator, strict=True):
        pass
    steps = evaluator.recorded().steps
    assert steps.epoch.tolist() == [0, 0, 1, 1]
    assert steps.wait_ns.tolist() == [10, 20, 10, 20]


@pytest.mark.parametrize("count", [CHUNK, CHUNK + 1, 2 * CHUNK + 5])
def test_epochs_longer_than_a_chunk_are_whole(count: int) -> None:
    """Nothing is lost or doubled where the hot loop begins a new chunk."""
    evaluator, clock = logged([3] * count)
    for _ in evaluator:
        clock.advance(2)
    steps = evaluator.recorded().steps
    assert len(steps) == count
    assert steps.request_ns.tolist() == list(range(0, 5 * count, 5))
    assert set(steps.wait_ns.tolist()) == {3}
    assert set(steps.step_ns.tolist()) == {2}


@pytest.mark.parametrize("count", [1, CHUNK, 2 * CHUNK + 5])
def test_replayed_epochs_longer_than_a_chunk_are_whole(count: int) -> None:
    """A replayed epoch has exactly the batches asked for, and no time of the loader's."""
    evaluator, clock = logged([3] * 4, mode="replay", num_cached_batches=2, epoch_batches=count)
    for _ in evaluator:
        clock.advance(2)
    steps = evaluator.recorded().steps
    assert len(steps) == count
    assert set(steps.wait_ns.tolist()) == {0}
    assert set(steps.step_ns.tolist()) == {2}


def test_a_replayed_epoch_can_be_broken_off() -> None:
    """`break` in a replayed epoch is recorded as such, and the next epoch is whole."""
    evaluator, _ = logged([3] * 4, mode="replay")
    for _ in evaluator:
        break
    assert len(list(evaluator)) == 4
    assert [end.cause for end in evaluator.recorded().ends] == ["broken off", "exhausted"]


def test_an_evaluator_that_nobody_holds_lives_while_it_is_iterated() -> None:
    """A loop over an evaluator made in the `for` line is measured to its end."""
    clock = FakeClock()
    loader = ScriptedLoader(range(3), [1, 1, 1], clock)
    assert list(iter(LoaderEvaluator(loader, clock=clock))) == [0, 1, 2]


def test_a_batch_that_is_none_does_not_end_the_epoch() -> None:
    """None is a batch like any other."""
    assert list(LoaderEvaluator([1, None, 2])) == [1, None, 2]


def test_another_loaders_time_is_not_this_ones() -> None:
    """Validation inside a training step is billed to the step, not to the training loader."""
    clock = FakeClock()
    train = LoaderEvaluator(ScriptedLoader(range(2), [1, 1], clock), clock=clock)
    validate = LoaderEvaluator(ScriptedLoader(range(2), [50, 50], clock), clock=clock)
    for _ in train:
        list(validate)
    assert train.recorded().steps.wait_ns.tolist() == [1, 1]
    assert train.recorded().steps.step_ns.tolist() == [100, 100]
