"""What the hot loop measures, to the nanosecond, and what it passes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from loadeval import LoaderEvaluator, read_run
from loadeval.core.loop import CHUNK
from loadeval.data.columns import UNKNOWN
from loadeval.data.run import Run
from loadeval.testing import FakeClock, ScriptedLoader


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
    run = evaluator.recorded()
    assert columns(run) == {
        "request": [0, 11, 33, 66, 81, 106],
        "wait": [10, 20, 30, 10, 20, 30],
        "step": [1, 2, 3, 5, 5, 5],
    }
    assert run.steps.epoch.tolist() == [0, 0, 0, 1, 1, 1]
    assert [end.cause for end in run.ends] == ["exhausted"] * 2


def test_a_broken_off_epoch_leaves_its_last_step_open() -> None:
    evaluator, clock = logged([10, 20, 30])
    for number in evaluator:
        clock.advance(7)
        if number == 1:
            break
    run = evaluator.recorded()
    assert columns(run) == {"request": [0, 17], "wait": [10, 20], "step": [7, UNKNOWN]}
    assert run.ends[0].cause == "broken off"
    assert evaluator.get_metrics()["total_time"] == 37e-9


class Closing(ScriptedLoader):
    """Its iterators take 500 ns to end."""

    def __iter__(self) -> Iterator[Any]:
        try:
            yield from super().__iter__()
        finally:
            self.clock.advance(500)


@pytest.mark.parametrize("options", [{}, {"mode": "alternate", "pairs": 2}])
def test_a_broken_off_epoch_has_the_time_that_its_iterator_takes_to_end(options: Any) -> None:
    """Unless it does so in the midst of another epoch, whose steps have that time."""
    clock = FakeClock(1_000_000)
    evaluator = LoaderEvaluator(Closing(range(9), [10] * 9, clock), clock=clock, **options)
    next(iter(evaluator))
    batches = iter(evaluator)
    next(batches)
    later = iter(evaluator)
    next(later)
    del batches
    ends = evaluator.recorded().ends
    assert [(end.request_ns, end.wait_ns) for end in ends] == [(None, 500), (None, None)]


def test_opening_the_loader_counts_as_epoch_start() -> None:
    clock = FakeClock()

    class Slow(ScriptedLoader):
        def __iter__(self) -> Iterator[Any]:
            clock.advance(1000)
            return super().__iter__()

    evaluator = LoaderEvaluator(Slow(range(2), [10, 10], clock), clock=clock)
    list(evaluator)
    assert evaluator.recorded().steps.wait_ns.tolist() == [1010, 10]


def test_two_epochs_at_once_do_not_mix() -> None:
    evaluator, _ = logged([10, 20])
    for _ in zip(evaluator, evaluator, strict=True):
        pass
    steps = evaluator.recorded().steps
    assert steps.epoch.tolist() == [0, 0, 1, 1]
    assert steps.wait_ns.tolist() == [10, 20, 10, 20]


@pytest.mark.parametrize("mode", ["log", "replay"])
@pytest.mark.parametrize("count", [1, 2 * CHUNK + 5])
def test_epochs_longer_than_a_chunk_are_whole(mode: Any, count: int) -> None:
    evaluator, clock = logged([3] * count, mode=mode, num_cached_batches=2)
    for _ in evaluator:
        clock.advance(2)
    wait_ns = 3 if mode == "log" else 0
    recorded = columns(evaluator.recorded())
    period_ns = wait_ns + 2
    assert len(recorded["wait"]) == count
    assert recorded["request"] == list(range(0, period_ns * count, period_ns))
    assert set(recorded["wait"]) == {wait_ns}
    assert set(recorded["step"]) == {2}


CORRUPT = {13, 14, 50, 99}


class Corrupt(Dataset[int]):
    """A hundred numbers, some of which cannot be decoded."""

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        if index in CORRUPT:
            raise ValueError(f"sample {index} is corrupt")
        return index


class Stream(IterableDataset[int]):
    """The same as a stream, which can be read on too."""

    def __iter__(self) -> Iterator[int]:
        return map(Corrupt().__getitem__, range(100))


class Scripted:
    """Serves numbers, each 10 ns after it was asked for, and raises what is in their place."""

    def __init__(self, *batches: Any) -> None:
        self.batches = batches
        self.clock = FakeClock()

    def __iter__(self) -> Iterator[Any]:
        return map(self._served, self.batches)

    def _served(self, batch: Any) -> Any:
        self.clock.advance(10)
        if isinstance(batch, BaseException):
            raise batch
        return batch


def read_on(batches: Iterator[Any]) -> list[Any]:
    """Everything that comes out of it: batches as lists, errors as their last line."""
    outcomes: list[Any] = []
    while True:
        try:
            batch = next(batches)
        except StopIteration:  # noqa: PERF203 - it is about what follows an exception
            return outcomes
        except (ValueError, KeyboardInterrupt) as error:
            outcomes.append(str(error).strip().splitlines()[-1])
        else:
            outcomes.append(batch.tolist() if isinstance(batch, torch.Tensor) else batch)


@pytest.mark.parametrize("annotate", [None, "torch"])
@pytest.mark.parametrize("dataset", [Corrupt(), Stream()], ids=["map", "iterable"])
@pytest.mark.parametrize("workers", [0, 2])
def test_the_epoch_goes_on_as_the_loaders_own(
    workers: int, dataset: Dataset[int], annotate: str | None
) -> None:
    loader = DataLoader(dataset, 4, num_workers=workers)
    expected = read_on(iter(loader))
    assert any(isinstance(outcome, str) for outcome in expected)
    assert read_on(iter(LoaderEvaluator(loader, annotate=annotate))) == expected


@pytest.mark.parametrize("annotate", [None, "torch"])
@pytest.mark.parametrize("workers", [0, 2])
def test_an_alternating_epoch_goes_on_too(workers: int, annotate: str | None) -> None:
    loader = DataLoader(Corrupt(), 4, num_workers=workers)
    expected = read_on(iter(loader))
    served = read_on(iter(LoaderEvaluator(loader, "alternate", annotate=annotate)))
    assert sorted(map(str, served)) == sorted(map(str, expected))
    for error in (outcome for outcome in served if isinstance(outcome, str)):
        before = served[: served.index(error)]
        assert all(outcome in before for outcome in expected[: expected.index(error)])


def test_what_an_error_took_is_waited_for_the_next_batch() -> None:
    """That is from the request that raised to the delivery of the batch behind, and in no step."""
    loader = Scripted(0, 1, ValueError("bad"), 3, 4)
    evaluator = LoaderEvaluator(loader, clock=loader.clock)
    epoch = iter(evaluator)
    for _ in range(2):
        next(epoch)
        loader.clock.advance(5)
    with pytest.raises(ValueError, match="bad"):
        next(epoch)
    loader.clock.advance(2)
    assert list(epoch) == [3, 4]
    steps = evaluator.recorded().steps
    assert steps.wait_ns.tolist() == [10, 10, 22, 10]
    assert steps.step_ns.tolist() == [5, 5, 0, 0]
    assert [end.cause for end in evaluator.recorded().ends] == ["exhausted"]


def test_an_error_ends_the_epoch_for_who_does_not_read_on(tmp_path: Path) -> None:
    loader = Scripted(0, ValueError("bad"), 2)
    evaluator = LoaderEvaluator(loader, clock=loader.clock, log_file=tmp_path / "run.jsonl")
    epoch = iter(evaluator)
    next(epoch)
    with pytest.raises(ValueError, match="bad"):
        next(epoch)
    (end,) = evaluator.recorded().ends
    assert (end.cause, end.request_ns, end.wait_ns) == ("failed", 10, 10)
    assert end.error == "ValueError: bad"
    evaluator.close()
    assert read_run(tmp_path / "run.jsonl").ends == (end,)
    assert next(epoch) == 2
    del epoch
    assert read_run(tmp_path / "run.jsonl").ends == (end,)
