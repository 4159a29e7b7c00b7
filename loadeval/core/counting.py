"""Counts a batch's samples and bytes, fast enough for the hot loop."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from operator import attrgetter, itemgetter
from typing import Any

from loadeval.adapter import Adapter, IterableAdapter
from loadeval.core.batch import (
    LARGEST_COUNT,
    MOST_NODES,
    Step,
    as_count,
    own_count_of,
    route_to_samples,
    survey,
)
from loadeval.core.padding import padding_of
from loadeval.core.recorder import NOTHING, Count
from loadeval.data.columns import UNKNOWN
from loadeval.errors import in_words, warn

PLAIN_VALUES = (int, float, complex, str, type(None))
PLAIN_RULES = {IterableAdapter.samples, IterableAdapter.nbytes}
SELDOM = 32
"""Bytes are added up in one batch of SELDOM for each leaf of it, or in more."""
OFTENER = 8
"""Where they change by themselves, they are added up so many times as often."""
BESIDES = 8
"""Adding up takes so much besides, in leaves."""
MOST_MARKS = 1024
"""So many shapes of the first array are remembered, with what batches of each have."""


class Counter:
    """Counts batches by the adapter, or by `samples`, the user's own count, which wins.

    A count that raises, or is no count, is UNKNOWN from then on, and says so once: counting never
    ends a training run. So are all once a batch has had too many nodes to look at. `plain` tells
    that samples and bytes follow from the arrays in a batch alone, and `adds_up` that bytes do.
    """

    def __init__(self, adapter: Adapter, samples: Callable[[Any], int | None] | None) -> None:
        self._samples = samples or adapter.samples
        self._nbytes: Callable[[Any], int | None] = adapter.nbytes
        own_rules = {getattr(rule, "__func__", None) for rule in (self._samples, self._nbytes)}
        self.plain = own_rules == PLAIN_RULES
        self.adds_up = IterableAdapter.nbytes in own_rules
        self._gave_up = False

    def best_for(self, batch: Any) -> Callable[[Any], Count] | None:
        """A function from a batch to its Count, the same object while nothing changes.

        Samples are right for every batch; bytes are, or UNKNOWN, as long as they change with the
        shape of the first array, and else in most. It is quick for batches that are built alike.
        None when `batch` is a plain value, in which there is nothing to count.
        """
        if self.plain and (self._gave_up or issubclass(type(batch), PLAIN_VALUES)):
            return None
        return Structure(self, batch).count

    def count(self, batch: Any, samples: int | None = None) -> Count:
        """Samples and bytes of `batch`, the slow and exact way.

        `samples` is what `self.samples` has found already: a user may count what it is asked.
        """
        if self._gave_up:
            return NOTHING
        if self.plain:
            surveyed, nbytes, number = survey(batch)
            self._gave_up = number >= MOST_NODES
            return UNKNOWN if surveyed is None else surveyed, UNKNOWN if nbytes is None else nbytes
        return self.samples(batch) if samples is None else samples, self._bytes(batch)

    def samples(self, batch: Any) -> int:
        """How many samples `batch` holds, by the adapter or the user."""
        try:
            answer = self._samples(batch)
            # Nearly all counts are plain, and this is quick.
            if type(answer) is int and 0 <= answer <= LARGEST_COUNT:
                return answer
            return UNKNOWN if answer is None else as_count(answer)
        except Exception as error:  # noqa: BLE001 - a count may not end a training run
            self._samples = lambda _: None
            return _say_unknown("samples", error)

    def _bytes(self, batch: Any) -> int:
        try:
            answer = self._nbytes(batch)
            return UNKNOWN if answer is None else as_count(answer)
        except Exception as error:  # noqa: BLE001 - a count may not end a training run
            self._nbytes = lambda _: None
            return _say_unknown("nbytes", error)


def _say_unknown(what: str, error: Exception) -> int:
    warn(
        f"counting the {what} of a batch failed with {in_words(error)}; they are unknown from "
        "now on. Pass samples=, a callable that returns a batch's number of samples"
    )
    return UNKNOWN


class Structure:
    """Counts batches that are built like `batch` by the way to their first array, found once.

    The mark of a batch is what its samples follow from: how many items it has, and the shape of
    its first array, or what an adapter or the user count by themselves. Batches of one mark have
    the same bytes, which are added up when the mark comes first, and now and then to be sure. Where
    they are found to change by themselves they are UNKNOWN, but in those that are added up. A batch
    that is built in another way is counted by itself, and those after it are taken to be like it.
    """

    def __init__(self, counter: Counter, batch: Any) -> None:
        self._counter = counter
        self._tells_padding = True
        self._bytes_vary = False
        self._begin(batch)

    def _begin(self, batch: Any) -> None:
        """Find the way to what tells the samples, the first array as a rule."""
        counter = self._counter
        self._known: dict[Any, Count] = {}
        self._mark: Any = None  # that of no batch
        self._counted: Count = NOTHING
        self._left = self._period = 1
        # What an adapter adds up by itself nobody else knows to follow from the samples.
        self._seldom = SELDOM * (survey(batch)[2] + BESIDES) if counter.adds_up else 1
        self._way: list[tuple[Callable[[Any], Any], type]] = []
        self._mark_of: Callable[[Any], Any] = counter.samples
        self._samples_of: Callable[[Any], int] = int
        if counter.plain:
            self._mark_of, self._samples_of = type, lambda _: UNKNOWN
            with suppress(Exception):  # it is too large, or an odd container does not let go
                self._follow(batch)

    def _follow(self, batch: Any) -> None:
        """Find the way to what tells the samples, the first array as a rule."""
        route = route_to_samples(batch)
        if route is None:
            return
        steps, leaf = route
        way: list[tuple[Callable[[Any], Any], type]] = []
        node = batch
        for make, key in steps:
            get = make(key)
            way.append((get, type(node)))
            node = get(node)
        if node is leaf:
            own_count = own_count_of(leaf)
            is_sized = issubclass(type(batch), (dict, list, tuple))
            self._mark_of = _mark_of(steps, own_count or attrgetter("shape"), is_sized)
            self._samples_of = int if own_count else itemgetter(0)
            if steps:
                of_last = self._samples_of
                self._samples_of = lambda mark: of_last(mark[1])
            self._way = way

    def count(self, batch: Any) -> Count:
        """The Count of `batch`, the same object while nothing changes."""
        try:
            mark = self._mark_of(batch)
            if mark == self._mark:
                left = self._left = self._left - 1
                if left:
                    return self._counted
            return self._look(batch, mark)
        except Exception:  # noqa: BLE001 - a batch of another structure fails in its own way
            counted = self._counter.count(batch)
            self._begin(batch)
            return counted

    def _look(self, batch: Any, mark: Any) -> Count:
        """Count a batch of another mark than the one before, or whose turn it is to be added up.

        Raises LookupError where it is of another structure.
        """
        samples = self._samples_of(mark)
        if not UNKNOWN <= samples <= LARGEST_COUNT:
            raise LookupError
        node = batch
        for get, kind in self._way:  # a tensor can be asked for items too: it does not say no
            if type(node) is not kind:
                raise LookupError
            node = get(node)
        before = self._known.get(mark)
        if before is not None and self._left > 1:
            self._left -= 1
            self._mark, self._counted = mark, before
            return before
        exact = self._counter.count(batch, samples)
        if exact[0] != samples:  # the first array was not the one that is looked at
            raise LookupError
        if before is not None:
            self._bytes_vary |= UNKNOWN != before[1] != exact[1]
            most = self._seldom // OFTENER if self._bytes_vary else self._seldom
            self._period = min(2 * self._period, max(most, 1))
        self._left, self._mark = self._period, mark
        if len(self._known) > MOST_MARKS:
            self._known.clear()
        counted = (samples, UNKNOWN) if self._bytes_vary else exact
        self._counted = self._known[mark] = before if before == counted else counted
        counted = exact if self._bytes_vary else self._counted
        padding = padding_of(batch) if self._tells_padding else None
        self._tells_padding = padding is not None
        return counted if padding is None else (*counted, *padding)


def _mark_of(steps: list[Step], last: Callable[[Any], Any], is_sized: bool) -> Callable[[Any], Any]:
    """A function from a batch to its mark, quick where the way is short, and it mostly is."""
    if not steps:
        return last
    makes, keys = {make for make, _ in steps}, [key for _, key in steps]
    is_shape = type(last) is attrgetter
    if is_sized and is_shape and makes == {itemgetter} and len(keys) == 1:
        (first,) = keys
        return lambda batch: (len(batch), batch[first].shape)
    if is_sized and is_shape and makes == {itemgetter} and len(keys) == 2:  # noqa: PLR2004 - a pair
        first, second = keys
        return lambda batch: (len(batch), batch[first][second].shape)
    if is_shape and makes == {attrgetter}:
        shape_of = attrgetter(".".join([*keys, "shape"]))
        return lambda batch: (type, shape_of(batch))
    getters = [make(key) for make, key in steps]

    def through_all(batch: Any) -> Any:
        node = batch
        for get in getters:
            node = get(node)
        return len(batch) if is_sized else 0, last(node)

    return through_all
