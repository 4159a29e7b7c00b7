"""Counts a batch's samples and bytes, fast enough for the hot loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import accumulate
from operator import attrgetter, itemgetter
from typing import Any

from loadeval.adapter import Adapter, IterableAdapter
from loadeval.core.recorder import NOTHING, Count
from loadeval.data.columns import UNKNOWN
from loadeval.errors import in_words, warn
from loadeval.runtime.batches.padding import padding_of
from loadeval.runtime.batches.tree import (
    LARGEST_COUNT,
    MOST_NODES,
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

PLAIN_VALUES = (int, float, complex, str, type(None))
PLAIN_RULES = {IterableAdapter.samples, IterableAdapter.nbytes}
MOST_STRUCTURES = 4
SELDOM = 32
OFTEN = 4
SPARE = 32
"""Bytes are added up in one batch of SELDOM for each leaf of it, or in more. Where batches differ
they are in one of OFTEN for each leaf, and in the first SPARE that do."""
FIRST_SUMS = 128
"""Padding is looked at in so many of the batches that are added up, and then in one of SELDOM."""
BESIDES = 8
"""Adding up takes so much besides, in leaves."""


class Counter:
    """Counts batches by the adapter, or by `samples`, the user's own count, which wins.

    A count that raises, or is no count, is UNKNOWN from then on, and says so once: counting never
    ends a training run. So are all once a batch has had too many nodes to look at. `plain` tells
    that samples and bytes follow from the arrays in a batch alone. `sums` counts the batches that
    were added up and may tell their padding.
    """

    def __init__(self, adapter: Adapter, samples: Callable[[Any], int | None] | None) -> None:
        self._samples = samples or adapter.samples
        self._nbytes: Callable[[Any], int | None] = adapter.nbytes
        own_rules = {getattr(rule, "__func__", None) for rule in (self._samples, self._nbytes)}
        self.plain = own_rules == PLAIN_RULES
        self.sums = 0
        self._gave_up = False

    def best_for(self, batch: Any) -> Callable[[Any], Count] | None:
        """A function from a batch to its Count, the same object while nothing changes.

        Samples are right for every batch; bytes are, or UNKNOWN, as long as they change with the
        shape of the first array, and else in most. It is quick for batches that are like `batch`.
        None when `batch` is a plain value, in which there is nothing to count.
        """
        if self.plain and (self._gave_up or issubclass(type(batch), PLAIN_VALUES)):
            return None
        return Structures(self).learn(batch).best()

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


class Structures:
    """Counts batches of the structures that an epoch has: one, or a few that alternate."""

    def __init__(self, counter: Counter) -> None:
        self.counter = counter
        self._known: list[Structure] = []

    def learn(self, batch: Any) -> Structure:
        """What counts batches like `batch`; of many, those learned first are forgotten."""
        structure = Structure(self, batch)
        self._known = [structure, *self._known][:MOST_STRUCTURES]
        return structure

    def count(self, batch: Any, asker: Structure) -> Count:
        """The Count of a batch of another structure than that of `asker`."""
        for known in self._known:
            counted = None if known is asker else known.attempt(batch)
            if counted is not None:
                return counted
        counted = self.learn(batch).attempt(batch)
        return self.counter.count(batch) if counted is None else counted


class Structure:
    """Counts batches of one structure by the way to their first array, found once.

    The mark of a batch is what its samples follow from: the shape of its first array, or what an
    adapter or the user count by themselves. Its extent is how many items it has, or its type. While
    both stay, so do the bytes, which are added up now and then to be sure. They are UNKNOWN from
    when the mark changes until they are added up again; once they were found to change by
    themselves, they are wherever they are not added up.
    """

    def __init__(self, others: Structures, batch: Any) -> None:
        self._others, self._counter = others, others.counter
        self._mark_of: Callable[[Any], Any] = self._counter.samples
        self._samples_of: Callable[[Any], int] = int
        self._extent_of: Callable[[Any], Any] = type
        self._way: list[tuple[Callable[[Any], Any], type]] = []
        self._keys: tuple[Any, ...] = ()
        if self._counter.plain:
            self._follow(batch)
        # In an object of anybody's class other arrays may not agree any more.
        self._is_sure = all(is_collection_type(kind) for _, kind in self._way)
        self._extent = self._extent_of(batch)
        self._grows = type(batch) is list
        self._mark: Any = None
        self._counted: Count = NOTHING
        self._bytes_vary = False
        leaves = survey(batch)[2] + BESIDES
        self._often, self._seldom, self._spare = OFTEN * leaves, SELDOM * leaves, SPARE
        self._period = self._left = 1
        self._tells_padding = True

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
            extent_of: Callable[[Any], Any] = type
            if issubclass(type(batch), (dict, list, tuple)):
                extent_of = len
            elif steps and steps[0] == (attrgetter, "data"):  # a UserDict, as of a tokeniser
                extent_of = _length_of_data
            extent_of(batch)
        except TooLargeError:
            self._mark_of, self._samples_of = type, partial(_none_of, type(batch))
            return
        except Exception:  # noqa: BLE001 - each container that is odd raises its own error
            return
        self._way = list(zip(getters, map(type, nodes), strict=False))
        self._samples_of = (
            int if name else itemgetter(0) if route else partial(_none_of, type(leaf))
        )
        makes, keys = {make for make, _ in steps}, [key for _, key in steps]
        if steps and route and not name and makes == {itemgetter} and extent_of is len:
            self._keys, self._mark_of, self._extent_of = (
                tuple(keys),
                partial(_at, getters, last),
                len,
            )
        elif route and not name and itemgetter not in makes:
            self._mark_of = attrgetter(".".join([*keys, "shape"]))
        elif not steps:
            self._mark_of = last
        else:
            self._extent_of = extent_of
            samples_of = self._samples_of
            self._mark_of = lambda batch: (_at(getters, last, batch), extent_of(batch))
            self._samples_of = lambda mark: samples_of(mark[0])

    def best(self) -> Callable[[Any], Count]:
        """What counts a batch the quickest."""
        if not self._keys:
            return self.by_mark
        return self.by_item if len(self._keys) == 1 else self.by_items

    def by_mark(self, batch: Any) -> Count:
        """Count by an array alone or in an attribute, or by the rules of an adapter or a user."""
        try:
            mark = self._mark_of(batch)
            if mark == self._mark:
                left = self._left = self._left - 1
                if left:
                    return self._counted
            return self._look(batch, mark)
        except Exception:  # noqa: BLE001 - a batch of another structure fails in its own way
            return self._others.count(batch, self)

    def by_item(self, batch: Any) -> Count:
        """Count by an array in a dict, list or tuple."""
        try:
            mark = batch[self._keys[0]].shape
            if mark == self._mark and len(batch) == self._extent:
                left = self._left = self._left - 1
                if left:
                    return self._counted
            return self._look(batch, mark)
        except Exception:  # noqa: BLE001 - a batch of another structure fails in its own way
            return self._others.count(batch, self)

    def by_items(self, batch: Any) -> Count:
        """Count by an array in dicts, lists or tuples that lie in each other."""
        try:
            node = batch
            for key in self._keys:
                node = node[key]
            mark = node.shape
            if mark == self._mark and len(batch) == self._extent:
                left = self._left = self._left - 1
                if left:
                    return self._counted
            return self._look(batch, mark)
        except Exception:  # noqa: BLE001 - a batch of another structure fails in its own way
            return self._others.count(batch, self)

    def attempt(self, batch: Any) -> Count | None:
        """The Count of `batch`, or None where it is of another structure."""
        try:
            mark = self._mark_of(batch)
            if self._left > 1 and mark == self._mark and self._extent_of(batch) == self._extent:
                self._check(batch)
                self._left -= 1
                return self._counted
            return self._look(batch, mark)
        except Exception:  # noqa: BLE001 - each kind of batch fails in its own way
            return None

    def _check(self, batch: Any) -> None:
        """Raise LookupError where the way to the leaf is another one.

        A tensor can be asked for items too, so without an error it does not say that it is none.
        """
        node = batch
        for get, kind in self._way:
            if type(node) is not kind:
                raise LookupError
            node = get(node)

    def _look(self, batch: Any, mark: Any) -> Count:
        """Count a batch that differs from the one before, or whose turn it is to be added up.

        Raises LookupError where it is of another structure.
        """
        samples, extent = self._samples_of(mark), self._extent_of(batch)
        if not UNKNOWN <= samples <= LARGEST_COUNT or (extent != self._extent and not self._grows):
            raise LookupError
        self._check(batch)
        is_alike = mark == self._mark and extent == self._extent
        if not is_alike and self._is_sure and not self._may_add_up():
            self._mark, self._extent = mark, extent
            return self._keep(samples, UNKNOWN)
        exact = self._counter.count(batch, samples)
        if exact[0] != samples:  # the first array was not the one that is looked at
            self._mark, self._samples_of = None, _none_of_any
            raise LookupError
        before = self._counted
        if is_alike and UNKNOWN != before[1] != exact[1]:
            self._bytes_vary = True
        if self._mark is None:
            self._period = 1
        elif self._bytes_vary and self._spare:
            self._spare -= 1
            self._period = 1
        else:
            self._period = min(2 * self._period, self._seldom) if exact == before else self._often
        self._left, self._mark, self._extent = self._period, mark, extent
        kept = self._keep(samples, UNKNOWN if self._bytes_vary else exact[1])
        return self._with_padding(batch, exact if self._bytes_vary else kept)

    def _may_add_up(self) -> bool:
        """Whether a batch that differs may be added up now; else one will soon be."""
        self._left -= 1
        since = self._period - self._left
        if self._left <= 0 or since >= self._often:
            return True
        if self._spare:
            self._spare -= 1
            return True
        self._period, self._left = self._often, self._often - since
        return False

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

    def _keep(self, samples: int, nbytes: int) -> Count:
        if samples != self._counted[0] or nbytes != self._counted[1]:
            self._counted = samples, nbytes
        return self._counted


def _at(getters: list[Callable[[Any], Any]], last: Callable[[Any], Any], batch: Any) -> Any:
    for get in getters:
        batch = get(batch)
    return last(batch)


def _length_of_data(batch: Any) -> int:
    return len(batch.data)


def _is_leaf(node: Any) -> bool:
    return not is_container(node)


def _none_of_any(_mark: Any) -> int:
    raise LookupError


def _none_of(kind: type, mark: type) -> int:
    if mark is not kind:
        raise LookupError
    return UNKNOWN
