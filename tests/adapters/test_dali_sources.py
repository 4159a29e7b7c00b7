"""DALI's iterators over an external source, which ends by StopIteration, or does not end."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from nvidia.dali.plugin.pytorch import DALIGenericIterator

from loadeval import LoaderEvaluator, LoadevalWarning
from loadeval.testing import AdapterContract
from loadeval_adapters.dali import DALIAdapter
from tests.adapters.dali_iterators import sourced

if TYPE_CHECKING:
    from collections.abc import Iterator


class Batches:
    """A source of `size` batches, numbered from 0; None: without end."""

    def __init__(self, size: int | None) -> None:
        self.size = size

    def __iter__(self) -> Iterator[list[Any]]:
        self.served = 0
        return self

    def __next__(self) -> list[Any]:
        if self.served == self.size:
            raise StopIteration
        self.served += 1
        return [np.full((3,), self.served - 1, np.int32)] * 4


def iterator(source: Any, batch_size: int = 4, cycle: str | None = "raise", **options: Any) -> Any:
    return DALIGenericIterator(sourced(source, cycle, batch_size), ["number"], **options)


def numbers(loader: Any) -> list[int]:
    """The number of each batch of an epoch."""
    return [int(batch[0]["number"][0, 0]) for batch in loader]


class TestExternalSource(AdapterContract):
    """A source that ends its epochs by StopIteration."""

    adapter_type = DALIAdapter

    def make_loader(self) -> Any:
        return iterator(Batches(6))

    def test_a_released_loader_serves_again(self) -> None:
        """It serves what is left, with a warning: DALI cannot end an epoch before its time."""
        adapter, loader = self.make_adapter(), self.make_loader()
        epoch = adapter.epoch(loader)
        next(epoch)
        adapter.release(loader, epoch)
        with pytest.warns(LoadevalWarning, match="broken off"):
            rest = adapter.epoch(loader)
        assert sum(1 for _ in rest) == 5
        assert sum(1 for _ in adapter.epoch(loader)) == 6


@pytest.mark.parametrize("auto_reset", [False, True])
@pytest.mark.parametrize("mode", ["log", "alternate"])
def test_a_source_that_ends_is_served_epoch_by_epoch(auto_reset: bool, mode: str) -> None:
    """Each epoch has all of the source's batches, and no length is told."""
    evaluator = LoaderEvaluator(iterator(Batches(7), auto_reset=auto_reset), mode=mode)
    assert [sorted(numbers(evaluator)) for _ in range(3)] == [[*range(7)]] * 3
    run = evaluator.recorded()
    assert run.header.loader.length is None
    assert run.steps.samples.tolist() == [4] * 21


@pytest.mark.parametrize("broken_off_after", [1, 3, 5])
def test_after_a_break_the_remainder_is_served(broken_off_after: int) -> None:
    """As DALI does, which near the end of the source reads on into its next epoch."""
    bare, evaluator = iterator(Batches(6)), LoaderEvaluator(iterator(Batches(6)))
    for loader in (bare, evaluator):
        assert len(list(islice(loader, broken_off_after))) == broken_off_after
    with pytest.warns(LoadevalWarning, match="broken off"):
        served = numbers(evaluator)
    assert served == numbers(bare)
    assert served[0] == broken_off_after


def test_an_endless_source_is_logged_and_replayed() -> None:
    """It has no length, though `len` says 0; replay needs a number of batches."""
    loader = iterator(Batches(None))
    assert len(loader) == 0
    logged = LoaderEvaluator(loader)
    assert sum(1 for _ in islice(logged, 20)) == 20
    assert logged.recorded().header.loader.length is None
    endless = iterator(Batches(None))
    replayed = LoaderEvaluator(endless, mode="replay", num_cached_batches=3, epoch_batches=5)
    assert numbers(replayed) == [0, 1, 2, 0, 1]


def test_a_length_that_dali_fails_to_tell_is_unknown() -> None:
    """Without a size, and with batches of one sample, `len` raises: there is no length."""
    loader = iterator(lambda: [np.zeros(3)], batch_size=1, cycle=None)
    with pytest.raises(ValueError, match="len"):
        len(loader)
    assert DALIAdapter().describe(loader).length is None


def test_a_sources_exception_passes_through() -> None:
    """The user sees the error of a source's own code, unchanged, after the batches before it."""
    error = KeyError("sample 5")

    class Failing(Batches):
        def __next__(self) -> list[Any]:
            if self.served == 5:
                raise error
            return super().__next__()

    evaluator = LoaderEvaluator(iterator(Failing(None)))
    with pytest.raises(KeyError) as raised:
        list(evaluator)
    assert raised.value is error
    assert evaluator.recorded().ends[0].cause == "failed"
