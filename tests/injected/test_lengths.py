"""Lengths and iterators that plain training never asks, or asks only for a batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader, Dataset, Sampler

from tests.injected.reading import IN_EACH_MODE, read

LENGTHS = [
    NotImplementedError("no length"),
    RuntimeError("call reset() first"),
    TypeError("no len()"),
    10**30,
    -1,
    "many",
]


class Lies:
    """`len()` of it raises, or answers, what it was made with."""

    def __init__(self, length: Any) -> None:
        self.length = length

    def __len__(self) -> int:
        if isinstance(self.length, Exception):
            raise self.length
        return self.length  # type: ignore[no-any-return]  # it may be anything


class Loader(Lies):
    def __iter__(self) -> Iterator[int]:
        return iter(range(30))


class Indices(Lies, Sampler[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(range(30))


class Batches(Lies, Sampler[Any]):
    def __iter__(self) -> Iterator[Any]:
        return ([number] for number in range(30))


class Numbers(Lies, Dataset[int]):
    def __getitem__(self, index: int) -> int:
        return index


def a_loader(length: Any) -> Any:
    return Loader(length)


def of_a_sampler(length: Any) -> Any:
    return DataLoader(Numbers(30), sampler=Indices(length), batch_size=None)


def of_a_batch_sampler(length: Any) -> Any:
    return DataLoader(Numbers(30), batch_sampler=Batches(length), collate_fn=lambda batch: batch[0])


@pytest.mark.parametrize("length", LENGTHS, ids=repr)
@pytest.mark.parametrize("make", [a_loader, of_a_sampler, of_a_batch_sampler])
def test_a_length_that_plain_training_does_not_ask_ends_no_training(
    make: Any, length: Any, tmp_path: Path
) -> None:
    outcome = read(make(length), "log", tmp_path, 2)
    assert outcome.epochs == [list(range(30))] * 2
    assert outcome.said == []


class OnlyNext:
    """An iterator that a `for` statement takes, and `iter()` does not."""

    def __init__(self) -> None:
        self.next = 0

    def __next__(self) -> int:
        if self.next == 30:
            raise StopIteration
        self.next += 1
        return self.next - 1


class Refuses(OnlyNext):
    def __iter__(self) -> Any:
        raise RuntimeError("it was begun already")


class Giving:
    """A loader whose iterator is a new one of `kind`."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind

    def __len__(self) -> int:
        return 30

    def __iter__(self) -> Any:
        return self.kind()


@pytest.mark.parametrize("kind", [OnlyNext, Refuses])
@IN_EACH_MODE
def test_an_iterator_need_only_have_a_next(kind: Any, mode: str, tmp_path: Path) -> None:
    """Its `__iter__` is not called, which a `for` statement does not do either."""
    outcome = read(Giving(kind), mode, tmp_path, 2, num_cached_batches=30)
    assert outcome.epochs == [list(range(30))] * 2
