"""Plain iterables, generators and functions that make a loader for each epoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from loadeval import IterableAdapter, LoaderEvaluator, UsageError
from loadeval.testing import same_batch
from tests.adapters.loaders import contract


def arrays() -> Iterator[dict[str, Any]]:
    for number in range(5):
        yield {"x": np.full((4, 2), number), "y": np.arange(4), "name": f"batch {number}"}


class Restarting:
    """Its own iterator, which starts over whenever it is asked for one."""

    def __init__(self) -> None:
        self.starts = 0

    def __iter__(self) -> Iterator[int]:
        self.starts += 1
        self.left = list(range(100))
        return self

    def __next__(self) -> int:
        if not self.left:
            raise StopIteration
        return self.left.pop(0)


@pytest.mark.parametrize("mode", ["log", "alternate"])
def test_an_epoch_is_started_once(mode: str) -> None:
    loader = Restarting()
    for wrapped in (loader, Restarting):
        evaluator = LoaderEvaluator(wrapped, mode=mode)
        assert [list(evaluator) for _ in range(2)] == [list(range(100))] * 2
    assert loader.starts == 2


def numbers() -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.arange(20)), batch_size=4)


TestIterables = contract(
    IterableAdapter,
    quick=["list"],
    list=lambda: list(arrays()),
    generator=arrays,
    restarting=Restarting,
)


@pytest.mark.parametrize("mode", ["log", "replay", "alternate"])
@pytest.mark.parametrize("make", [arrays, numbers])
def test_what_a_callable_returns_is_served(make: Any, mode: str) -> None:
    with LoaderEvaluator(make, mode, num_cached_batches=5) as evaluator:
        for epoch in (list(evaluator), list(evaluator)):
            assert len(epoch) == 5
            assert all(map(same_batch, epoch, make()))


def test_a_factory_that_makes_no_loader_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot read batches from 'NoneType'"):
        LoaderEvaluator(lambda: None)
