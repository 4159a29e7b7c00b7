"""Loaders that are given whole epochs of an iterable-style dataset."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from loadeval.errors import UsageError
from loadeval.runtime.whole_epochs import LONGEST_EPOCH_NS, StreamEpoch, WholeEpochs


class Stream(IterableDataset[Any]):
    """Ten samples, of which one may be bad."""

    bad: int | None = None

    def __iter__(self) -> Any:
        for number in range(10):
            if number == self.bad:
                raise ValueError("a bad sample")
            yield torch.tensor(number)


def feeding(workers: int = 0, **options: Any) -> WholeEpochs:
    return WholeEpochs(DataLoader(Stream(), batch_size=2, num_workers=workers, **options))


@pytest.mark.parametrize("workers", [0, 1])
def test_an_epoch_is_the_loaders_own(workers: int) -> None:
    """It has one each time that it is given one, and stops its workers."""
    own = feeding()
    made = own.make({"num_workers": workers})
    made.open()
    assert not made.unserved
    for _ in range(2):
        made.put(own.indices(is_first=False))
        assert [batch.tolist() for batch in made] == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
        assert made.served == 5
        made.ended(1)
    made.put([StreamEpoch()])
    assert len(list(islice(made, 2))) == 2
    (epoch,) = made.unserved
    made.close()
    assert not made.unserved
    assert workers == 0 or not any(process.is_alive() for process in epoch.iterator._workers)  # type: ignore[union-attr]


def test_another_loader_goes_on_after_an_error() -> None:
    """It raises the error, which the program has not got, and then serves the rest."""
    own = feeding()
    first, second = own.make({}), own.make({})
    first.put([StreamEpoch()])
    next(first)
    assert first.failed(ValueError("a bad sample"))
    second.put(first.unserved)
    first.close()
    with pytest.raises(ValueError, match="a bad sample"):
        next(second)
    second.unserved.popleft()
    assert [batch.tolist() for batch in second] == [[2, 3], [4, 5], [6, 7], [8, 9]]


def test_an_epoch_of_which_nothing_was_served_begins_anew() -> None:
    """Another setting may be able to serve it."""
    made = feeding().make({})
    made.loader.dataset.bad = 0
    made.put([StreamEpoch()])
    with pytest.raises(ValueError, match="a bad sample"):
        next(made)
    assert not made.failed(ValueError("a bad sample"))
    (epoch,) = made.unserved
    assert epoch.iterator is None


@pytest.mark.parametrize(
    ("workers", "batches", "is_alike"),
    [(2, 100, True), (2, 112, True), (2, 88, True), (2, 200, False), (2, 50, False)],
)
def test_epochs_of_other_settings_have_about_as_many_batches(
    workers: int, batches: int, is_alike: bool
) -> None:
    """Each worker may have one that is not full, and a tenth may differ by chance."""
    own = feeding(1)
    own.check(100, 1, 1)
    if is_alike:
        own.check(batches, 1, workers)
    else:
        with pytest.raises(UsageError, match=f"{batches} batches, and one .* settings 100"):
            own.check(batches, 1, workers)


def test_epochs_that_are_too_long_are_refused() -> None:
    """By the first one, which has the present settings; others may be slower."""
    with pytest.raises(UsageError, match=r"takes 11 s; expected at most 10 s"):
        feeding().check(100, LONGEST_EPOCH_NS + 10**9, 0)
    own = feeding()
    own.check(100, LONGEST_EPOCH_NS, 0)
    own.check(100, 2 * LONGEST_EPOCH_NS, 0)


def test_an_epoch_that_has_begun_is_not_taken_over() -> None:
    """It is served to its end."""
    with pytest.raises(UsageError, match="cannot be served with other settings"):
        feeding().take_over(iter([]))
