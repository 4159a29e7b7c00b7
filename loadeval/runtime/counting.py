"""Counting a batch's samples and bytes, at a cost that a hot loop can bear."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from loadeval.errors import LoadevalWarning
from loadeval.runlog.model import UNKNOWN
from loadeval.runtime.adapter import IterableAdapter
from loadeval.runtime.outline import Outline
from loadeval.runtime.survey import survey

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.runtime.adapter import Adapter

Count = tuple[int, int]
"""Samples and bytes; UNKNOWN is -1."""
NOTHING: Count = (UNKNOWN, UNKNOWN)
PLAIN_VALUES = (int, float, complex, str, type(None))
PLAIN_RULES = {IterableAdapter.samples, IterableAdapter.nbytes}
MOST_OUTLINES = 4


class Counter:
    """Counts batches by the adapter, or by `samples`, the user's own count, which wins.

    A count that raises is UNKNOWN from then on, and says so once: counting never ends a
    training run. `plain` tells that samples and bytes follow from the arrays in a batch alone.
    """

    def __init__(self, adapter: Adapter, samples: Callable[[Any], int | None] | None) -> None:
        self._samples = samples or adapter.samples
        self._nbytes: Callable[[Any], int | None] = adapter.nbytes
        own_rules = {getattr(rule, "__func__", None) for rule in (self._samples, self._nbytes)}
        self.plain = own_rules == PLAIN_RULES

    def best_for(self, batch: Any) -> Callable[[Any], Count] | None:
        """A function from a batch to its Count, the same object while nothing changes.

        Samples are right for every batch; bytes are, or UNKNOWN, as long as they change with the
        shape of the first array, and else in most. It is quick for batches that are like `batch`.
        None when `batch` is a plain value, in which there is nothing to count.
        """
        if self.plain and issubclass(type(batch), PLAIN_VALUES):
            return None
        return Outlines(self).learn(batch).count

    def count(self, batch: Any, samples: int | None = None) -> Count:
        """Samples and bytes of `batch`, the slow and exact way.

        `samples` is what `self.samples` has found already: a user may count what it is asked.
        """
        if self.plain:
            found, nbytes, _ = survey(batch)
            return UNKNOWN if found is None else found, UNKNOWN if nbytes is None else nbytes
        return self.samples(batch) if samples is None else samples, self._bytes(batch)

    def samples(self, batch: Any) -> int:
        """How many samples `batch` holds, by the adapter or the user."""
        try:
            answer = self._samples(batch)
            return UNKNOWN if answer is None else int(answer)
        except Exception as error:  # noqa: BLE001 - a count may not end a training run
            self._samples = _unknown
            return _say_unknown("samples", error)

    def _bytes(self, batch: Any) -> int:
        try:
            answer = self._nbytes(batch)
            return UNKNOWN if answer is None else int(answer)
        except Exception as error:  # noqa: BLE001 - as above
            self._nbytes = _unknown
            return _say_unknown("nbytes", error)


class Outlines:
    """The structures that the batches of an epoch have: one, or a few that alternate."""

    def __init__(self, counter: Counter) -> None:
        self.counter = counter
        self._known: list[Outline] = []

    def learn(self, batch: Any) -> Outline:
        """The outline of `batch`; of many, those learned first are forgotten."""
        outline = Outline(self, batch)
        self._known = [outline, *self._known][:MOST_OUTLINES]
        return outline

    def count(self, batch: Any, asker: Outline) -> Count:
        """The Count of a batch that `asker` is not the outline of."""
        for outline in self._known:
            if outline is not asker:
                counted = outline.attempt(batch)
                if counted is not None:
                    return counted
        counted = self.learn(batch).attempt(batch)
        return self.counter.count(batch) if counted is None else counted


def _say_unknown(what: str, error: Exception) -> int:
    warnings.warn(
        f"counting the {what} of a batch failed with {error!r}; they are unknown from here on. "
        "Pass samples=, a callable from a batch to its number of samples",
        LoadevalWarning,
        stacklevel=2,
    )
    return UNKNOWN


def _unknown(_batch: Any) -> None:
    return None
