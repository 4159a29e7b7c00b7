"""Counts a batch's samples and bytes, fast enough for the hot loop."""

from __future__ import annotations

from functools import partial
from itertools import accumulate
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from loadeval.core.batch import (
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
from loadeval.core.padding import padding_of
from loadeval.data.columns import UNKNOWN
from loadeval.errors import in_words, warn
from loadeval.runtime.adapter import IterableAdapter
from loadeval.runtime.recording.chunk import NOTHING, Count

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.core.batch import Step
    from loadeval.runtime.adapter import Adapter


PLAIN_VALUES = (int, float, complex, str, type(None))
PLAIN_RULES = {IterableAdapter.samples, IterableAdapter.nbytes}
MOST_STRUCTURES = 4


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
        return StructureCounters(self).learn(batch).count

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


class StructureCounters:
    """Counters for the structures that an epoch's batches have: one, or a few that alternate."""

    def __init__(self, counter: Counter) -> None:
        self.counter = counter
        self._known: list[StructureCounter] = []

    def learn(self, batch: Any) -> StructureCounter:
        """What counts batches like `batch`; of many, those learned first are forgotten."""
        counter = StructureCounter(self, batch)
        self._known = [counter, *self._known][:MOST_STRUCTURES]
        return counter

    def count(self, batch: Any, asker: StructureCounter) -> Count:
        """The Count of a batch of another structure than those of `asker`."""
        for counter in self._known:
            if counter is not asker:
                counted = counter.attempt(batch)
                if counted is not None:
                    return counted
        counted = self.learn(batch).attempt(batch)
        return self.counter.count(batch) if counted is None else counted


def _say_unknown(what: str, error: Exception) -> int:
    warn(
        f"counting the {what} of a batch failed with {in_words(error)}; they are unknown from "
        "now on. Pass samples=, a callable that returns a batch's number of samples",
        stacklevel=2,
    )
    return UNKNOWN


SELDOM = 32
OFTEN = 4
SPARE = 32
"""Bytes are added up in one batch of SELDOM for each leaf of it, or in more. Where batches differ
they are in one of OFTEN for each leaf, and in the first SPARE that do."""
FIRST_SUMS = 128
"""Padding is looked at in so many of the batches that are added up, and then in one of SELDOM."""
BESIDES = 8
"""Adding up takes so much besides, in leaves."""


class StructureCounter:
    """Counts batches of one structure, and keeps what the last one of them counted.

    The mark of a batch is what its samples follow from: the shape of its first array, or what an
    adapter or the user count by themselves. Its extent is how many items it has, or its type. Both
    are looked at in every batch. While they stay so do the bytes, which are added up now and then
    to be sure. Bytes are UNKNOWN from when the mark changes until they are added up again; once
    they were found to change by themselves, they are wherever they are not added up.

    `count` is a function from a batch to its Count, the same object while nothing changes.
    """

    __slots__ = (
        "_bytes_vary",
        "_countdown",
        "_counted",
        "_counter",
        "_extent",
        "_extent_of",
        "_getters",
        "_grows",
        "_inner",
        "_is_postponed",
        "_is_sure",
        "_key",
        "_kinds",
        "_mark",
        "_often",
        "_others",
        "_period",
        "_samples_of",
        "_seldom",
        "_spare_sums",
        "_tells_padding",
        "count",
    )

    def __init__(self, others: StructureCounters, batch: Any) -> None:
        self._others = others
        self._counter = others.counter
        lookup = by_structure(batch) if self._counter.plain else None
        if lookup is None:  # what an adapter or the user count is the mark
            samples = self._counter.samples
            lookup = Lookup((samples,), (), int, type, "by_inner", samples)
        self.count: Callable[[Any], Count] = getattr(self, lookup.method)
        self._getters, self._kinds = lookup.getters, lookup.kinds
        self._samples_of, self._extent_of = lookup.samples_of, lookup.extent_of
        self._inner, self._key = lookup.inner, lookup.key
        # In an object of anybody's class other arrays may not agree any more.
        self._is_sure = all(map(is_collection_type, lookup.kinds))
        self._extent = lookup.extent_of(batch)
        self._grows = type(batch) is list
        self._mark: Any = None
        self._counted: Count = (UNKNOWN, UNKNOWN)
        self._bytes_vary = False
        leaves = survey(batch)[2] + BESIDES
        self._often, self._seldom, self._spare_sums = OFTEN * leaves, SELDOM * leaves, SPARE
        self._is_postponed = False
        self._period = self._countdown = 1
        self._tells_padding = True

    def attempt(self, batch: Any) -> Count | None:
        """The Count of `batch`, or None where it is of another structure."""
        try:
            mark = self._getters[-1](self._leaf_of(batch))
            if (
                mark == self._mark
                and self._extent_of(batch) == self._extent
                and self._countdown > 1
            ):
                self._countdown -= 1
                return self._counted
            return self._look(batch, mark)
        except Exception:  # noqa: BLE001 - each kind of batch fails in its own way
            return None

    def by_inner(self, batch: Any) -> Count:
        """Count by an array alone or in an attribute, or by the rules of an adapter or a user."""
        try:
            mark = self._inner(batch)
            if mark == self._mark:
                left = self._countdown = self._countdown - 1
                if left:
                    return self._counted
            return self._look(batch, mark)
        except Exception:  # noqa: BLE001 - a batch of another structure fails in its own way
            return self._others.count(batch, self)

    def by_item(self, batch: Any) -> Count:
        """Count by an array in a dict, list or tuple."""
        try:
            if len(batch) != self._extent:
                return self._look_at_size(batch)
            mark = batch[self._key].shape
            if mark == self._mark:
                left = self._countdown = self._countdown - 1
                if left:
                    return self._counted
            return self._look(batch, mark)
        except Exception:  # noqa: BLE001 - a batch of another structure fails in its own way
            return self._others.count(batch, self)

    def by_two_items(self, batch: Any) -> Count:
        """Count by an array in a dict, list or tuple inside another one."""
        try:
            if len(batch) != self._extent:
                return self._look_at_size(batch)
            mark = batch[self._inner][self._key].shape
            if mark == self._mark:
                left = self._countdown = self._countdown - 1
                if left:
                    return self._counted
            return self._look(batch, mark)
        except Exception:  # noqa: BLE001 - a batch of another structure fails in its own way
            return self._others.count(batch, self)

    def by_item_of_data(self, batch: Any) -> Count:
        """Count by an array in a UserDict, such as a tokeniser's BatchEncoding."""
        try:
            data = batch.data
            if len(data) != self._extent:
                return self._look_at_size(batch)
            mark = data[self._key].shape
            if mark == self._mark:
                left = self._countdown = self._countdown - 1
                if left:
                    return self._counted
            return self._look(batch, mark)
        except Exception:  # noqa: BLE001 - a batch of another structure fails in its own way
            return self._others.count(batch, self)

    def by_getters(self, batch: Any) -> Count:
        """Count by an array anywhere, or by the first leaf where there is no array."""
        try:
            mark = batch
            for get in self._getters:
                mark = get(mark)
            if mark == self._mark and self._extent_of(batch) == self._extent:
                left = self._countdown = self._countdown - 1
                if left:
                    return self._counted
            return self._look(batch, mark)
        except Exception:  # noqa: BLE001 - a batch of another structure fails in its own way
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
        if not UNKNOWN <= samples <= LARGEST_COUNT:
            raise LookupError
        is_sure = self._is_sure
        if (
            self._is_postponed
            and self._countdown > 1
            and is_sure
            and (not self._kinds or type(batch) is self._kinds[0])
        ):
            self._countdown -= 1
            self._mark = mark
            if samples != self._counted[0]:
                self._counted = samples, UNKNOWN
            return self._counted
        extent = self._extent_of(batch)
        if extent != self._extent and not self._grows:
            raise LookupError
        self._leaf_of(batch)
        alike = mark == self._mark and extent == self._extent
        if not alike and is_sure and not self._may_add_up():
            self._mark, self._extent = mark, extent
            return self._keep(samples, UNKNOWN)
        exact = self._counter.count(batch, samples)
        if exact[0] != samples:  # the first array was not the one that is looked at
            self._mark, self._samples_of = None, _none_of_any
            raise LookupError
        self._settle(exact, alike=alike)
        self._mark, self._extent = mark, extent
        counted = self._keep(samples, UNKNOWN if self._bytes_vary else exact[1])
        counted = exact if self._bytes_vary else counted
        return self._with_padding(batch, counted) if self._tells_padding else counted

    def _with_padding(self, batch: Any, counted: Count) -> Count:
        """`counted`, with the Padding of the batch where that tells it and its turn has come."""
        self._counter.sums += 1
        if self._counter.sums > FIRST_SUMS and self._counter.sums % SELDOM:
            return counted
        padding = padding_of(batch)
        self._tells_padding = padding is not None
        return counted if padding is None else (*counted, *padding)

    def _may_add_up(self) -> bool:
        """Whether a batch that differs may be added up now; else one will soon be."""
        self._countdown -= 1
        since = self._period - self._countdown
        if not self._countdown or since >= self._often:
            return True
        if self._spare_sums:
            self._spare_sums -= 1
            return True
        self._period, self._countdown = self._often, self._often - since
        self._is_postponed = True
        return False

    def _settle(self, exact: Count, *, alike: bool) -> None:
        """Settle when bytes will be added up again, now that they were."""
        before = self._counted
        if alike and UNKNOWN != before[1] != exact[1]:
            self._bytes_vary = True
        if self._mark is None:
            self._period = 1
        elif self._bytes_vary and self._spare_sums:
            self._spare_sums -= 1
            self._period = 1
        else:
            self._period = min(2 * self._period, self._seldom) if exact == before else self._often
        self._countdown = self._period
        self._is_postponed = self._bytes_vary

    def _keep(self, samples: int, nbytes: int) -> Count:
        if samples != self._counted[0] or nbytes != self._counted[1]:
            self._counted = samples, nbytes
        return self._counted


def _none_of_any(_mark: Any) -> int:
    raise LookupError


Method = Literal["by_getters", "by_inner", "by_item", "by_two_items", "by_item_of_data"]


class Lookup(NamedTuple):
    """How to look at batches of one structure.

    `getters` lead from a batch to its mark, one after the other, through nodes of `kinds`, the
    leaf itself excepted. `samples_of` makes the samples of a mark; it raises where a mark is of
    another structure. `extent_of` tells how many items a batch has, or else its type. `method` is
    how StructureCounter does the same without a loop, with `inner` and `key`.
    """

    getters: tuple[Callable[[Any], Any], ...]
    kinds: tuple[type, ...]
    samples_of: Callable[[Any], int]
    extent_of: Callable[[Any], Any]
    method: Method
    inner: Any = None
    key: Any = None


def by_structure(batch: Any) -> Lookup | None:
    """A Lookup by what tells the samples, such as the first array's shape; else by the first leaf.

    The type of the first leaf, where nothing tells the samples, and that of the batch where it has
    too many nodes to look at. None where `batch` is an odd container, which does not give what it
    holds.
    """
    try:
        route = route_to_samples(batch)
        steps, leaf = route or route_to(batch, _is_leaf) or ([], batch)
        name = own_count_name(leaf) if route else None
        last = by_own_count(name) if name else attrgetter("shape") if route else type
        getters = (*(make(key) for make, key in steps), last)
        nodes = list(accumulate(getters, lambda node, get: get(node), initial=batch))
        if nodes[-1] != last(leaf) or not issubclass(type(nodes[-1]), (tuple, type, int)):
            return None
        extent_of = len if issubclass(type(batch), (dict, list, tuple)) else type
        extent_of(batch)
    except TooLargeError:
        return Lookup((type,), (), partial(_none_of, type(batch)), type, "by_inner", type)
    except Exception:  # noqa: BLE001 - each container that is odd raises its own error
        return None
    samples_of = int if name else itemgetter(0) if route else partial(_none_of, type(leaf))
    lookup = Lookup(getters, tuple(map(type, nodes[:-2])), samples_of, extent_of, "by_getters")
    if name:
        return lookup if steps else lookup._replace(method="by_inner", inner=last)
    return _quicker(lookup, steps) if route else lookup


def _is_leaf(node: Any) -> bool:
    return not is_container(node)


def _quicker(lookup: Lookup, steps: list[Step]) -> Lookup:
    """The same lookup without a loop where the way is short, and it mostly is."""
    makes, keys = [make for make, _ in steps], [key for _, key in steps]
    if itemgetter not in makes:
        return lookup._replace(method="by_inner", inner=attrgetter(".".join([*keys, "shape"])))
    if makes == [itemgetter]:
        return lookup._replace(method="by_item", key=keys[0])
    if makes == [itemgetter, itemgetter]:
        return lookup._replace(method="by_two_items", inner=keys[0], key=keys[1])
    if makes == [attrgetter, itemgetter] and keys[0] == "data":
        return lookup._replace(
            method="by_item_of_data", key=keys[1], extent_of=lambda batch: len(batch.data)
        )
    return lookup


def _none_of(kind: type, mark: type) -> int:
    if mark is not kind:
        raise LookupError
    return UNKNOWN
