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
NOTHING: Count = (UNKNOWN, UNKNOWN)
PAIR = 2
PLAIN_VALUES = (int, float, complex, str, type(None))
PLAIN_RULES = {IterableAdapter.samples, IterableAdapter.nbytes}


class Counter:
    """Counts batches by the adapter, or by `samples`, the user's own count, which wins.

    A count that raises is UNKNOWN from then on, and says so once: counting never ends a
    training run.
    """

    def __init__(self, adapter: Adapter, samples: Callable[[Any], int | None] | None) -> None:
        self._samples = samples or adapter.samples
        self._nbytes = adapter.nbytes
        own_rules = {getattr(rule, "__func__", None) for rule in (self._samples, self._nbytes)}
        self._plain = own_rules == PLAIN_RULES

    def best_for(self, batch: Any) -> Callable[[Any], Count] | None:
        """A function from a batch to its Count, the same object while nothing changes.

        It is right for every batch, and quick for those that are like `batch`. None when
        `batch` is a plain value, in which there is nothing to count.
        """
        if self._plain and isinstance(batch, PLAIN_VALUES):
            return None
        if self._plain and type(batch) in {dict, list, tuple} and len(batch) == PAIR:
            inputs, labels = batch if type(batch) is dict else range(PAIR)
            arrays = is_array(batch[inputs]) and is_array(batch[labels])
            if arrays and len(batch[labels].shape) == 1:
                return _pair_counter(inputs, labels, self.count)
        return self._steady_counter()

    def count(self, batch: Any) -> Count:
        """Samples and bytes of `batch`, the slow and general way."""
        return self._ask("_samples", batch), self._ask("_nbytes", batch)

    def _steady_counter(self) -> Callable[[Any], Count]:
        last = NOTHING

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


def _pair_counter(
    inputs: Any, labels: Any, count_anew: Callable[[Any], Count]
) -> Callable[[Any], Count]:
    """Counts batches of two arrays, the second of one dimension: inputs and labels, mostly.

    A tensor's shape costs twice its size in bytes. While the inputs and the labels, of one
    dimension, keep their bytes, the samples are the same; else they are counted anew.
    """
    input_bytes = label_bytes = UNKNOWN
    counted = NOTHING

    def count(batch: Any) -> Count:
        nonlocal input_bytes, label_bytes, counted
        try:
            of_inputs = batch[inputs].nbytes
            of_labels = batch[labels].nbytes
            if of_inputs == input_bytes and of_labels == label_bytes and len(batch) == PAIR:
                return counted
            input_bytes = of_inputs if len(batch) == PAIR else UNKNOWN
            label_bytes = of_labels
        except (AttributeError, LookupError, TypeError):  # a batch of another kind
            input_bytes = UNKNOWN
        counted = count_anew(batch)
        return counted

    return count
