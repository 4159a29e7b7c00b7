"""Counting batches by looking at one place in each: quick as long as they are alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loadeval.runlog.model import UNKNOWN
from loadeval.runtime.survey import survey
from loadeval.runtime.way import by_rule, by_structure

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.runtime.counting import Count, Outlines

SELDOM = 32
OFTEN = 4
SPARE = 32
"""Bytes are added up in one batch of SELDOM for each leaf of it, or in more. Where batches differ
they are in one of OFTEN for each leaf, and in the first SPARE that do."""
BESIDES = 8
"""What adding up takes besides, in leaves."""


class Outline:
    """Batches of one structure, and what the last one of them counted.

    The mark of a batch is what its samples follow from: the shape of its first array, or what an
    adapter or the user count by themselves. Its extent is how many items it has, or its type. Both
    are looked at in every batch. While they stay so do the bytes, which are added up now and then
    to be sure. Bytes are UNKNOWN from when the mark changes until they are added up again; once
    they were found to change by themselves, they are wherever they are not added up.

    `count` is a function from a batch to its Count, the same object while nothing changes.
    """

    __slots__ = (
        "_counted",
        "_counter",
        "_extent",
        "_extent_of",
        "_getters",
        "_grows",
        "_inner",
        "_key",
        "_kinds",
        "_left",
        "_loose",
        "_mark",
        "_often",
        "_others",
        "_period",
        "_samples_of",
        "_seldom",
        "_spare",
        "_waits",
        "count",
    )

    def __init__(self, others: Outlines, batch: Any) -> None:
        self._others = others
        self._counter = others.counter
        way = by_structure(batch) if self._counter.plain else None
        way = way or by_rule(self._counter.samples)
        self.count: Callable[[Any], Count] = getattr(self, way.method)
        self._getters, self._kinds = way.getters, way.kinds
        self._samples_of, self._extent_of = way.samples_of, way.extent_of
        self._inner, self._key = way.inner, way.key
        self._extent = way.extent_of(batch)
        self._grows = type(batch) is list
        self._mark: Any = None
        self._counted: Count = (UNKNOWN, UNKNOWN)
        self._loose = False
        leaves = survey(batch)[2] + BESIDES
        self._often, self._seldom, self._spare = OFTEN * leaves, SELDOM * leaves, SPARE
        self._waits = False
        self._period = self._left = 1

    def attempt(self, batch: Any) -> Count | None:
        """The Count of `batch`, or None where it is of another structure."""
        try:
            mark = self._getters[-1](self._leaf_of(batch))
            if mark == self._mark and self._extent_of(batch) == self._extent and self._left > 1:
                self._left -= 1
                return self._counted
            return self._look(batch, mark)
        except Exception:  # noqa: BLE001 - each kind of batch fails in its own way
            return None

    def by_inner(self, batch: Any) -> Count:
        """Of an array by itself, or in an attribute; and by the rules of an adapter or a user."""
        try:
            mark = self._inner(batch)
            if mark == self._mark:
                left = self._left = self._left - 1
                if left:
                    return self._counted
            return self._look(batch, mark)
        except Exception:  # noqa: BLE001 - a batch of another structure fails in its own way
            return self._others.count(batch, self)

    def by_item(self, batch: Any) -> Count:
        """Of an array in a dict, list or tuple."""
        try:
            if len(batch) != self._extent:
                return self._look_at_size(batch)
            mark = batch[self._key].shape
            if mark == self._mark:
                left = self._left = self._left - 1
                if left:
                    return self._counted
            return self._look(batch, mark)
        except Exception:  # noqa: BLE001 - as above
            return self._others.count(batch, self)

    def by_two_items(self, batch: Any) -> Count:
        """Of an array in a dict, list or tuple inside another one."""
        try:
            if len(batch) != self._extent:
                return self._look_at_size(batch)
            mark = batch[self._inner][self._key].shape
            if mark == self._mark:
                left = self._left = self._left - 1
                if left:
                    return self._counted
            return self._look(batch, mark)
        except Exception:  # noqa: BLE001 - as above
            return self._others.count(batch, self)

    def by_item_of_data(self, batch: Any) -> Count:
        """Of a UserDict, such as a tokeniser's BatchEncoding."""
        try:
            data = batch.data
            if len(data) != self._extent:
                return self._look_at_size(batch)
            mark = data[self._key].shape
            if mark == self._mark:
                left = self._left = self._left - 1
                if left:
                    return self._counted
            return self._look(batch, mark)
        except Exception:  # noqa: BLE001 - as above
            return self._others.count(batch, self)

    def by_getters(self, batch: Any) -> Count:
        """Of an array anywhere; and of the first leaf where there is no array."""
        try:
            mark = batch
            for get in self._getters:
                mark = get(mark)
            if mark == self._mark and self._extent_of(batch) == self._extent:
                left = self._left = self._left - 1
                if left:
                    return self._counted
            return self._look(batch, mark)
        except Exception:  # noqa: BLE001 - as above
            return self._others.count(batch, self)

    def _leaf_of(self, batch: Any) -> Any:
        """The leaf that is looked at; LookupError where the way to it is another one.

        A tensor can be asked for items too, so without an error it does not say that it is none.
        """
        for kind, get in zip(self._kinds, self._getters, strict=False):
            if type(batch) is not kind:
                raise LookupError
            batch = get(batch)
        return batch

    def _look_at_size(self, batch: Any) -> Count:
        """Count a batch of another extent: a list that grew or shrank, or another structure."""
        if self._grows:
            return self._look(batch, self._getters[-1](self._leaf_of(batch)))
        return self._others.count(batch, self)

    def _look(self, batch: Any, mark: Any) -> Count:
        """Count a batch that differs from the one before, or whose turn it is to be added up.

        Raises LookupError where it is of another structure.
        """
        samples = self._samples_of(mark)
        if self._waits and self._left > 1 and (not self._kinds or type(batch) is self._kinds[0]):
            self._left -= 1
            self._mark = mark
            if samples != self._counted[0]:
                self._counted = samples, UNKNOWN
            return self._counted
        extent = self._extent_of(batch)
        if extent != self._extent and not self._grows:
            raise LookupError
        self._leaf_of(batch)
        alike = mark == self._mark and extent == self._extent
        if not alike and not self._may_add_up():
            self._mark, self._extent = mark, extent
            return self._keep(samples, UNKNOWN)
        found = self._counter.count(batch, samples)
        if found[0] != samples:  # the first array was not the one that is looked at
            self._mark, self._samples_of = None, _none_of_any
            raise LookupError
        self._settle(found, alike=alike)
        self._mark, self._extent = mark, extent
        counted = self._keep(samples, UNKNOWN if self._loose else found[1])
        return found if self._loose else counted

    def _may_add_up(self) -> bool:
        """Whether a batch that differs may be added up now; else one will soon be."""
        self._left -= 1
        since = self._period - self._left
        if not self._left or since >= self._often:
            return True
        if self._spare:
            self._spare -= 1
            return True
        self._period, self._left = self._often, self._often - since
        self._waits = True
        return False

    def _settle(self, found: Count, *, alike: bool) -> None:
        """Settle when bytes will be added up again, now that they were."""
        before = self._counted
        if alike and UNKNOWN != before[1] != found[1]:
            self._loose = True
        if self._mark is None:
            self._period = 1
        elif self._loose and self._spare:
            self._spare -= 1
            self._period = 1
        else:
            self._period = min(2 * self._period, self._seldom) if found == before else self._often
        self._left = self._period
        self._waits = self._loose

    def _keep(self, samples: int, nbytes: int) -> Count:
        if samples != self._counted[0] or nbytes != self._counted[1]:
            self._counted = samples, nbytes
        return self._counted


def _none_of_any(_mark: Any) -> int:
    raise LookupError
