"""A backend: its epochs, and the look at its first batch."""

from __future__ import annotations

import warnings
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from loadeval import Backend, IterableAdapter, LoaderInfo, LoadevalWarning, UsageError
from loadeval.runtime import registry
from loadeval.runtime.backends import Source

if TYPE_CHECKING:
    from collections.abc import Iterator

BATCHES = [np.zeros((4, 2))] * 3


class Reads(list[Any]):
    """A loader that counts how many epochs of it were begun, and ended."""

    begun = closed = 0

    def __iter__(self) -> Iterator[Any]:
        self.begun += 1
        try:
            yield from super().__iter__()
        finally:
            self.closed += 1


class Grumbling(list[Any]):
    """A loader whose adapter warns at each epoch, and has batches ready once it was read."""

    read = False


class GrumblingAdapter(IterableAdapter):
    def epoch(self, loader: Any) -> Iterator[Any]:
        loader.read = True
        warnings.warn("the epoch before was broken off", LoadevalWarning, stacklevel=2)
        return iter(loader)

    def describe(self, loader: Any) -> LoaderInfo:
        return LoaderInfo("Grumbling", ready_batches=int(loader.read))


@pytest.fixture(name="grumbling")
def _grumbling(monkeypatch: pytest.MonkeyPatch) -> Grumbling:
    point = EntryPoint(__name__, f"{__name__}:GrumblingAdapter", registry.GROUP)
    monkeypatch.setattr(EntryPoint, "load", lambda _: GrumblingAdapter)
    monkeypatch.setattr(registry, "registered", lambda: {__name__: point})
    return Grumbling(BATCHES)


def test_a_converter_that_cannot_be_called_is_an_error() -> None:
    """The error says what is expected."""
    with pytest.raises(UsageError, match="convert is 3; expected a callable"):
        Backend([1], convert=3)  # type: ignore[arg-type]  # the error is what is tested


def test_what_is_no_loader_is_an_error() -> None:
    """Something that cannot be iterated is named by its type."""
    with pytest.raises(UsageError, match="cannot read batches from 'int'"):
        Source(Backend(7))


def test_an_iterator_is_an_error() -> None:
    """It has one epoch only; the error says what to pass instead."""
    with pytest.raises(UsageError, match="a generator can be iterated only once"):
        Source(Backend(number for number in range(3)))


def test_an_iterator_that_starts_over_is_a_backend() -> None:
    """Where `iter()` resets it, it has as many epochs as are asked for."""

    class Rewinding:
        def __iter__(self) -> Rewinding:
            self.left = [2, 1]
            return self

        def __next__(self) -> int:
            if not self.left:
                raise StopIteration
            return self.left.pop()

    source = Source(Backend(Rewinding()))
    assert [list(source.open()), list(source.open())] == [[1, 2], [1, 2]]


def test_each_epoch_begins_anew() -> None:
    """A loader serves as many as are opened."""
    source = Source(Backend([1, 2]))
    assert [list(source.open()), list(source.open())] == [[1, 2], [1, 2]]


def test_each_epoch_calls_what_makes_loaders() -> None:
    """A generator function is a backend."""
    source = Source(Backend(lambda: (number for number in range(2))))
    assert [list(source.open()), list(source.open())] == [[0, 1], [0, 1]]


def test_batches_come_converted() -> None:
    """The training step is given what the converter makes."""
    assert list(Source(Backend([1, 2], convert=str)).open()) == ["1", "2"]


def test_closing_ends_the_epoch() -> None:
    """What it does in the background stops; closing twice is no harm."""
    loader = Reads(BATCHES)
    source = Source(Backend(loader, convert=str))
    next(source.open())
    source.close()
    source.close()
    assert (loader.begun, loader.closed) == (1, 1)


def test_the_first_look_reads_one_batch() -> None:
    """And ends the epoch that it comes from."""
    loader = Reads(BATCHES)
    found = Source(Backend(loader)).look(None)
    assert (loader.begun, loader.closed) == (1, 1)
    assert (found.layout.samples, found.layout.length) == (4, 3)
    assert found.layout.in_words() == "(4, 2) float64"


def test_the_look_is_at_the_converted_batch() -> None:
    """What the converter makes has to be like the others'."""
    found = Source(Backend(BATCHES, convert=lambda batch: batch[:2])).look(None)
    assert (found.layout.samples, found.layout.in_words()) == (2, "(2, 2) float64")


def test_samples_can_be_counted_by_the_user() -> None:
    """The count is of the converted batch."""
    assert Source(Backend(["ab"])).look(None).layout.samples is None
    assert Source(Backend(["ab"], convert=str.upper)).look(len).layout.samples == 2


def test_a_loader_without_batches_is_an_error() -> None:
    """There is nothing to compare."""
    with pytest.raises(UsageError, match="the loader gave no batch"):
        Source(Backend([])).look(None)


def test_what_makes_loaders_has_none_ready() -> None:
    """Each of them fills its queue in the epoch start of its epoch."""
    assert Source(Backend(lambda: iter([1]))).look(None).info.ready_batches == 0


def test_the_look_tells_what_is_ready_after_it(grumbling: Grumbling) -> None:
    """So it will be at each turn. Of epochs broken off there is no warning: all of them are."""
    found = Source(Backend(grumbling)).look(None)
    assert found.info.ready_batches == 1


def test_the_workers_of_a_dataloader_end_with_the_epoch() -> None:
    """Even persistent ones."""
    dataset = TensorDataset(torch.zeros(8, 2))
    loader = DataLoader(dataset, batch_size=4, num_workers=1, persistent_workers=True)
    source = Source(Backend(loader))
    assert source.look(None).info.workers == 1
    next(source.open())
    source.fence()
    source.close()
    assert loader._iterator is None
