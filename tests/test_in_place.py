"""evaluate_in_place: a DataLoader is measured where it is, and where it was built anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.data import DataLoader, SequentialSampler, TensorDataset

from loadeval import LoaderEvaluator, LoadevalWarning, UsageError, evaluate_in_place

if TYPE_CHECKING:
    from collections.abc import Iterator

PLAIN = DataLoader.__iter__


def loader(dataset: Any = None) -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.arange(20.0)) if dataset is None else dataset, 4)


def numbers(batches: Any) -> list[float]:
    return [float(value) for (batch,) in batches for value in batch]


@pytest.mark.parametrize("mode", ["log", "replay", "alternate"])
def test_the_loader_itself_is_measured(mode: str) -> None:
    """Iterated as before, it serves its batches, and each has its row; it stays of its class."""
    own = loader()
    evaluator = evaluate_in_place(own, mode)
    assert type(own) is DataLoader
    assert numbers(own) == list(range(20))
    assert len(evaluator.recorded().steps) == 5
    evaluator.close()


def test_a_loader_built_from_it_is_measured() -> None:
    """One with the same dataset counts, as a framework makes it; one with another does not."""
    own = loader()
    evaluator = evaluate_in_place(own)
    rebuilt = DataLoader(own.dataset, 2, sampler=SequentialSampler(own.dataset))  # type: ignore[arg-type]  # it is sized
    assert numbers(rebuilt) == list(range(20))
    assert len(evaluator.recorded().steps) == 10
    assert numbers(loader()) == list(range(20))
    assert len(evaluator.recorded().steps) == 10
    evaluator.close()


def test_replay_has_as_many_batches_as_the_loader_that_was_built() -> None:
    """A part of the batches for each process is a part in replay too."""
    own = loader()
    evaluator = evaluate_in_place(own, "replay", num_cached_batches=2)
    assert len(list(DataLoader(own.dataset, 10))) == 2
    evaluator.close()


@pytest.mark.parametrize("first", [0, 1])
def test_the_class_is_left_as_it_was(first: int) -> None:
    """With the last of several evaluators that is closed, whichever that is."""
    evaluators = [evaluate_in_place(loader()) for _ in range(2)]
    own = evaluators[1 - first].dataloader
    with pytest.warns(LoadevalWarning, match="nothing was measured"):
        evaluators[first].close()
    assert DataLoader.__iter__ is not PLAIN
    assert numbers(own) == list(range(20))
    assert len(evaluators[1 - first].recorded().steps) == 5
    evaluators[1 - first].close()
    assert DataLoader.__iter__ is PLAIN
    assert numbers(own) == list(range(20))


def test_the_evaluator_can_be_iterated_too() -> None:
    """Each batch counts once."""
    with evaluate_in_place(loader()) as evaluator:
        assert numbers(evaluator) == list(range(20))
        assert len(evaluator.recorded().steps) == 5


class Doubling(DataLoader[Any]):
    """Has an `__iter__` of its own, on top of DataLoader's."""

    def __iter__(self) -> Any:
        for batch in super().__iter__():
            yield [2 * leaf for leaf in batch]


def test_a_subclass_is_measured_once() -> None:
    """By what it serves itself, not by what it takes from DataLoader."""
    own = Doubling(TensorDataset(torch.arange(20.0)), 4)
    with evaluate_in_place(own) as evaluator:
        assert numbers(own) == [2.0 * value for value in range(20)]
        assert len(evaluator.recorded().steps) == 5


def test_a_loader_of_another_class_is_not_measured_silently() -> None:
    """Built with the same dataset, it serves its batches; that nothing was measured is told."""
    own = loader()
    evaluator = evaluate_in_place(own)
    assert numbers(Doubling(own.dataset, 4)) == [2.0 * value for value in range(20)]
    with pytest.warns(LoadevalWarning, match="nothing was measured"):
        evaluator.close()


def test_the_loaders_exceptions_pass_through() -> None:
    """Unchanged, and what was measured before is kept."""

    class Broken(torch.utils.data.IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            yield torch.zeros(1)
            raise KeyError("broken")

    own = DataLoader(Broken(), 1)
    with evaluate_in_place(own) as evaluator:
        with pytest.raises(KeyError, match="broken"):
            list(own)
        assert len(evaluator.recorded().steps) == 1


def test_what_cannot_be_measured_in_place_is_refused() -> None:
    """What is no DataLoader, and a loader that is measured already."""
    for other in ([1, 2], loader().dataset, LoaderEvaluator(loader())):
        with pytest.raises(UsageError, match=r"a torch DataLoader. Wrap other loaders: Load"):
            evaluate_in_place(other)
    own = loader()
    with (
        pytest.warns(LoadevalWarning, match="nothing was measured"),
        evaluate_in_place(own),
        pytest.raises(UsageError, match="is measured in place already"),
    ):
        evaluate_in_place(own)


def test_an_evaluator_that_served_nothing_says_so() -> None:
    """By a warning when it is closed, and by an event in the run; a copy has nothing to say."""
    evaluator = LoaderEvaluator(loader())
    with pytest.warns(LoadevalWarning, match="another loader in its place"):
        evaluator.close()
    assert "nothing was measured" in evaluator.recorded().events[0].message
