"""Counts a batch's samples and bytes, fast enough for the hot loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import accumulate
from operator import attrgetter, itemgetter
from typing import Any

from loadeval.adapter import Adapter, IterableAdapter
from loadeval.core.batch import (
    LARGEST_COUNT,
    MOST_NODES,
    Step,
    TooLargeError,
    as_count,
    by_own_count,
    is_collection_type,
    is_container,
    own_count_name,
    route_to,
    route_to_samples,
    survey,
)
from loadeval.core.padding import padding_of
from loadeval.core.recorder import NOTHING, Count
from loadeval.data.columns import UNKNOWN
from loadeval.errors import in_words, warn

MISSING = object()
"""It is no mark of any batch."""
PLAIN_VALUES = (int, float, complex, str, type(None))
PLAIN_RULES = {IterableAdapter.samples, IterableAdapter.nbytes}
SELDOM = 32
"""Bytes are added up in one batch of SELDOM for each leaf of it, or in more."""
OFTENER = 8
"""Where they change by themselves, they are added up so many times as often."""
FIRST_SUMS = 128
"""Padding is looked at in so many of the batches that are added up, and then in one of SELDOM."""
BESIDES = 8
"""Adding up takes so much besides, in leaves."""
MOST_STRUCTURES = 4
"""So many are remembered of an epoch whose batches are built in several ways."""
MOST_MARKS = 1024
"""So many shapes of the first array are remembered, with what batches of each have."""


class Counter:
    """Counts batches by the adapter, or by `samples`, the user's own count, which wins.

    A count that raises, or is no count, is UNKNOWN from then on, and says so once: counting never
    ends a training run. So are all once a batch has had too many nodes to look at. `plain` tells
    that samples and bytes follow from the arrays in a batch alone, and `adds_up` that bytes do.
    `sums` counts the batches that were added up and may tell their padding.
    """

    def __init__(self, adapter: Adapter, samples: Callable[[Any], int | None] | None) -> None:
        self._samples = samples or adapter.samples
        self._nbytes: Callable[[Any], int | None] = adapter.nbytes
        own_rules = {getattr(rule, "__func__", None) for rule in (self._samples, self._nbytes)}
        self.plain = own_rules == PLAIN_RULES
        self.adds_up = IterableAdapter.nbytes in own_rules
        self.sums = 0
        self._gave_up = False

    def best_for(self, batch: Any) -> Callable[[Any], Count] | None:
        """A function from a batch to its Count, the same object while nothing changes.

        Samples are right for every batch; bytes are, or UNKNOWN, as long as they change with the
        shape of the first array, and else in most. It is quick for batches that are built alike.
        None when `batch` is a plain value, in which there is nothing to count.
        """
        if self.plain and (self._gave_up or issubclass(type(batch), PLAIN_VALUES)):
            return None
        return Structure(self, batch, []).count

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
    """Counts batches of one structure by the way to their first array, found once.

    The mark of a batch is what its samples follow from: how many items it has, and the shape of
    its first array, or what an adapter or the user count by themselves. Batches of one mark have
    the same bytes, which are added up when the mark comes first, and now and then to be sure. Where
    they are found to change by themselves they are UNKNOWN, but in those that are added up.
    """

    def __init__(self, counter: Counter, batch: Any, structures: list[Structure]) -> None:
        self._counter, self._structures = counter, structures
        structures.insert(0, self)
        del structures[MOST_STRUCTURES:]
        self._mark: Any = MISSING
        self._counted: Count = NOTHING
        self._left = self._period = 1
        self._known: dict[Any, Count] = {}
        self._bytes_vary = False
        self._tells_padding = True
        # What an adapter adds up by itself nobody else knows to follow from the samples.
        self._seldom = SELDOM * (survey(batch)[2] + BESIDES) if counter.adds_up else 1
        self._kind = type(batch)
        self._way: list[tuple[Callable[[Any], Any], type]] = []
        self._mark_of: Callable[[Any], Any] = counter.samples
        self._samples_of: Callable[[Any], int] = int
        if counter.plain:
            self._follow(batch)
        # In an object of anybody's class other arrays may not agree any more.
        self._is_sure = all(is_collection_type(kind) for _, kind in self._way)

    def count(self, batch: Any) -> Count:
        """The Count of `batch`, the same object while nothing changes."""
        try:
            mark = self._mark_of(batch)
            if mark == self._mark:
                left = self._left = self._left - 1
                if left:
                    return self._counted
            elif self._left > 1 and self._is_sure and type(batch) is self._kind:
                known = self._known.get(mark)
                if known is not None:
                    self._left -= 1
                    self._mark, self._counted = mark, known
                    return known
            return self._look(batch, mark)
        except Exception:  # noqa: BLE001 - a batch of another structure fails in its own way
            return self._count_another(batch)

    def _count_another(self, batch: Any) -> Count:
        """Count a batch of another structure, by what was learned of some, or is of it now."""
        for structure in self._structures:
            counted = None if structure is self else structure.attempt(batch)
            if counted is not None:
                return counted
        counted = Structure(self._counter, batch, self._structures).attempt(batch)
        return self._counter.count(batch) if counted is None else counted

    def attempt(self, batch: Any) -> Count | None:
        """The Count of `batch`; None where it is of another structure."""
        try:
            return self._look(batch, self._mark_of(batch))
        except Exception:  # noqa: BLE001 - each kind of batch fails in its own way
            return None

    def _follow(self, batch: Any) -> None:
        """Find the way to what tells the samples, the first array as a rule; else the first leaf.

        The type of the first leaf, where nothing tells the samples, and that of the batch where it
        has too many nodes to look at. An odd container, which does not give what it holds, is
        counted as a whole each time.
        """
        try:
            route = route_to_samples(batch)
            steps, leaf = route or route_to(batch, _is_leaf) or ([], batch)
            name = own_count_name(leaf) if route else None
            last = by_own_count(name) if name else attrgetter("shape") if route else type
            getters = [make(key) for make, key in steps]
            nodes = list(accumulate([*getters, last], lambda node, get: get(node), initial=batch))
            if nodes[-1] != last(leaf) or not issubclass(type(nodes[-1]), (tuple, type, int)):
                return
            mark_of = _mark_of(steps, last, sized=issubclass(type(batch), (dict, list, tuple)))
            mark_of(batch)
        except TooLargeError:
            self._mark_of, self._samples_of = type, partial(_none_of, type(batch))
            return
        except Exception:  # noqa: BLE001 - each container that is odd raises its own error
            return
        self._way = list(zip(getters, map(type, nodes), strict=False))
        of_last = int if name else itemgetter(0) if route else partial(_none_of, type(leaf))
        self._mark_of = mark_of
        self._samples_of = (lambda mark: of_last(mark[1])) if steps else of_last

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
        if before is not None and self._is_sure and self._left > 1:
            self._left -= 1
            self._mark, self._counted = mark, before
            return before
        exact = self._counter.count(batch, samples)
        if exact[0] != samples:  # the first array was not the one that is looked at
            self._mark, self._known, self._samples_of = MISSING, {}, _none_of_any
            raise LookupError
        is_new = before is None
        if before is not None and UNKNOWN != before[1] != exact[1]:
            self._bytes_vary = True
        if self._mark is not MISSING and not is_new:
            most = self._seldom // OFTENER if self._bytes_vary else self._seldom
            self._period = min(2 * self._period, max(most, 1))
        self._left, self._mark = self._period, mark
        if len(self._known) > MOST_MARKS:
            self._known.clear()
        counted = (samples, UNKNOWN) if self._bytes_vary else exact
        self._counted = self._known[mark] = before if before == counted else counted
        return self._with_padding(batch, exact if self._bytes_vary else self._counted)

    def _with_padding(self, batch: Any, counted: Count) -> Count:
        """`counted`, with the Padding of the batch where that tells it and its turn has come."""
        if not self._tells_padding:
            return counted
        self._counter.sums += 1
        if self._counter.sums > FIRST_SUMS and self._counter.sums % SELDOM:
            return counted
        padding = padding_of(batch)
        self._tells_padding = padding is not None
        return counted if padding is None else (*counted, *padding)


def _mark_of(steps: list[Step], last: Callable[[Any], Any], *, sized: bool) -> Callable[[Any], Any]:
    """A function from a batch to its mark, quick where the way is short, and it mostly is."""
    makes, keys = {make for make, _ in steps}, [key for _, key in steps]
    is_shape = type(last) is attrgetter
    if not steps:
        return last
    if sized and is_shape and makes == {itemgetter}:
        first, *others = keys
        if not others:
            return lambda batch: (len(batch), batch[first].shape)
        if len(others) == 1:
            second = others[0]
            return lambda batch: (len(batch), batch[first][second].shape)
    if is_shape and itemgetter not in makes:
        shape_of = attrgetter(".".join([*keys, "shape"]))
        return lambda batch: (type, shape_of(batch))
    getters = [make(key) for make, key in steps]

    def through_all(batch: Any) -> Any:
        node = getters[0](batch)
        size = len(batch) if sized else len(node) if keys[0] == "data" else 0
        for get in getters[1:]:
            node = get(node)
        return size, last(node)

    return through_all


def _is_leaf(node: Any) -> bool:
    return not is_container(node)


def _none_of_any(_mark: Any) -> int:
    raise LookupError


def _none_of(kind: type, mark: type) -> int:
    if mark is not kind:
        raise LookupError
    return UNKNOWN
