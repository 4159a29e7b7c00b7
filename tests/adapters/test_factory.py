"""Callables that make a loader for each epoch."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from loadeval import LoaderEvaluator, LoadevalError, UsageError
from loadeval.runtime.adapter import FactoryAdapter
from loadeval.testing import AdapterContract

if TYPE_CHECKING:
    from collections.abc import Iterator


def arrays(batches: int = 5) -> Iterator[dict[str, Any]]:
    for number in range(batches):
        yield {"x": np.full((4, 2), number), "y": np.arange(4), "name": f"batch {number}"}


def numbers() -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.arange(20)), batch_size=4)


class TestGenerators(AdapterContract):
    """A generator function: as many epochs as are wanted."""

    adapter_type = FactoryAdapter

    def make_loader(self) -> Any:
        return partial(arrays, 6)


class TestDataLoaders(AdapterContract):
    """A function that returns a new DataLoader."""

    adapter_type = FactoryAdapter

    def make_loader(self) -> Any:
        return numbers


class Counted:
    """Counts how often it is asked for a loader."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> Iterator[int]:
        self.calls += 1
        return iter([self.calls] * 3)


def test_it_is_called_once_for_each_epoch() -> None:
    """What the first call makes is the first epoch, though it is called when it is wrapped."""
    factory = Counted()
    evaluator = LoaderEvaluator(factory)
    assert [list(evaluator) for _ in range(3)] == [[1] * 3, [2] * 3, [3] * 3]
    assert factory.calls == 3


def test_what_it_makes_is_described() -> None:
    """Workers, batch size and length are those of the DataLoader that it returns."""
    evaluator = LoaderEvaluator(numbers)
    info = evaluator.recorded().header.loader
    assert info.backend == "torch.utils.data.dataloader.DataLoader"
    assert (info.workers, info.batch_size, info.length) == (0, 4, 5)


def test_a_factory_that_makes_no_loader_is_refused() -> None:
    """The error says what it returned, and what was expected."""
    with pytest.raises(UsageError, match=r"returned 'NoneType'.*expected a callable"):
        LoaderEvaluator(lambda: None)


def test_what_a_factory_raises_passes_unchanged() -> None:
    """Its own exception, when it is wrapped."""

    def broken() -> Iterator[Any]:
        raise OSError("no such disk")

    with pytest.raises(OSError, match="no such disk") as caught:
        LoaderEvaluator(broken)
    assert not isinstance(caught.value, LoadevalError)
