"""Counting a batch's samples and bytes, at a cost that a hot loop can bear."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from loadeval.errors import LoadevalWarning
from loadeval.measure.adapter import IterableAdapter
from loadeval.measure.tree import is_array
from loadeval.record.model import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.measure.adapter import Adapter

Count = tuple[int, int]
"""Samples and bytes; UNKNOWN is -1."""
PLAIN_RULES = {IterableAdapter.samples, IterableAdapter.nbytes}


class Counter:
    """Counts batches by the adapter, or by `samples`, the user's own count, which wins.

    A count that raises is UNKNOWN from then on, and says so once: counting never ends a
    training run.
    """

    def __init__(self, adapter: Adapter, samples: Callable[[Any], int | None] | None) -> None:
        self._samples = samples or adapter.samples
        self._nbytes = adapter.nbytes
        own_rules = {getattr(type(adapter), name, None) for name in ("samples", "nbytes")}
        self._plain = samples is None and own_rules == PLAIN_RULES

    def best_for(self, batch: Any) -> Callable[[Any], Count]:
        """A function from a batch to its Count, the same object while nothing changes.

        It is right for every batch, and quick for those that are like `batch`.
        """
        if self._plain and type(batch) is dict and _ends_in_vector([*batch.values()]):
            return _flat_counter(dict.values, self.count)
        if self._plain and type(batch) in {list, tuple} and _ends_in_vector(batch):
            return _flat_counter(iter, self.count)
        return self._steady_counter()

    def count(self, batch: Any) -> Count:
        """Samples and bytes of `batch`, the slow and general way."""
        return self._ask("_samples", batch), self._ask("_nbytes", batch)

    def _steady_counter(self) -> Callable[[Any], Count]:
        last = (UNKNOWN, UNKNOWN)

        def count(batch: Any) -> Count:
            nonlocal last
            found = self.count(batch)
            if found != last:
                last = found
            return last

        return count

    def _ask(self, question: str, batch: Any) -> int:
        try:
            answer = getattr(self, question)(batch)
            return UNKNOWN if answer is None else int(answer)
        except Exception as error:  # noqa: BLE001 - a count may not end a training run
            setattr(self, question, _unknown)
            warnings.warn(
                f"counting the {question[1:]} of a batch failed with {error!r}; they are unknown "
                "from here on. Pass samples=, a callable from a batch to its number of samples",
                LoadevalWarning,
                stacklevel=2,
            )
            return UNKNOWN


def _unknown(_batch: Any) -> None:
    return None


def _ends_in_vector(items: list[Any] | tuple[Any, ...]) -> bool:
    return bool(items) and all(map(is_array, items)) and len(items[-1].shape) == 1


def _flat_counter(
    items: Callable[[Any], Any], count_anew: Callable[[Any], Count]
) -> Callable[[Any], Count]:
    """Counts flat batches whose last leaf has one dimension, labels mostly.

    A tensor's shape costs twice its size in bytes. While the last leaf, one-dimensional,
    keeps its bytes, and all leaves theirs, the samples are the same; else they are counted
    anew.
    """
    last_total = last_size = UNKNOWN
    counted = (UNKNOWN, UNKNOWN)

    def count(batch: Any) -> Count:
        nonlocal last_total, last_size, counted
        total = size = 0
        try:
            for leaf in items(batch):
                size = leaf.nbytes
                total += size
        except (AttributeError, TypeError):
            last_total = UNKNOWN
            return count_anew(batch)
        if total != last_total or size != last_size:
            last_total = total
            last_size = size
            counted = count_anew(batch)
        return counted

    return count
