"""Counts a batch's samples, bytes and padding, fast enough for the hot loop."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import reduce
from itertools import chain, islice
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from loadeval.adapter import Adapter, IterableAdapter
from loadeval.core import batch as inside
from loadeval.core.batch import as_count, named_leaves, own_count_of, survey
from loadeval.core.recorder import NOTHING, Count
from loadeval.data.columns import UNKNOWN
from loadeval.errors import in_words, is_of_a_signal, warn

PLAIN_RULES = {IterableAdapter.samples, IterableAdapter.nbytes}
BATCHES_PER_LEAF, OVERHEAD_LEAVES = 128, 8
"""Bytes are added up once in so many batches for each leaf, which takes as long as so many more."""
VARYING_OFTENER = 32
"""Where they change though the first array does not, they are added up so many times as often."""
MOST_MARKS = 1024
"""So many shapes of the first array are remembered, with what batches of each have."""
ADVICE = ". Pass samples=, a callable that returns a batch's number of samples"


class Counter:
    """Counts batches by the adapter, or by `samples`, the user's own count, which wins.

    A count that raises, or is no count, is UNKNOWN from then on, and says so once: counting never
    ends a training run. Once a batch has had too many nodes to look at, nothing is counted any
    more.

    `plain` tells that samples and bytes follow from the arrays in a batch alone, and `adds_up` that
    bytes do; the last batch of which they were added up has had so many `leaves`.
    """

    def __init__(self, adapter: Adapter, samples: Callable[[Any], int | None] | None) -> None:
        self._rules: dict[str, Callable[[Any], int | None]] = {
            "samples": samples or adapter.samples,
            "bytes": adapter.nbytes,
        }
        own_rules = {getattr(rule, "__func__", None) for rule in self._rules.values()}
        self.plain = own_rules == PLAIN_RULES
        self.adds_up = IterableAdapter.nbytes in own_rules
        self.leaves = 0
        self.gave_up = False

    def count(self, batch: Any, samples: int | None = None) -> Count:
        """Samples and bytes of `batch`, the slow and exact way.

        `samples` is what was found already: a user may count what it is asked.
        """
        if self.gave_up:
            return NOTHING
        if not self.adds_up:
            nbytes = self._told("bytes", batch)
        else:
            surveyed, added_up, self.leaves, _ = survey(batch)
            nbytes = UNKNOWN if added_up is None else added_up
            if self.plain:
                self.gave_up = self.leaves >= inside.MOST_NODES
                return UNKNOWN if surveyed is None else surveyed, nbytes
        return self.samples(batch) if samples is None else samples, nbytes

    def samples(self, batch: Any) -> int:
        """How many samples `batch` holds, by the adapter or the user."""
        return self._told("samples", batch)

    def _told(self, what: str, batch: Any) -> int:
        try:
            answer = self._rules[what](batch)
            return UNKNOWN if answer is None else as_count(answer)
        except Exception as error:  # a rule of the user's or an adapter's may raise anything
            if is_of_a_signal(error):
                raise
            self._rules[what] = lambda _: None
            failure = f"counting the {what} of a batch failed with {in_words(error)}"
            warn(f"{failure}; they are unknown from now on{ADVICE * (what == 'samples')}")
            return UNKNOWN


class Structure:
    """Counts batches that are built like `batch` by the way to their first array: see Counting.

    The mark of a batch is what its samples follow from: how many items it has, and the shape of
    its first array, or what an adapter or the user count by themselves. Batches of one mark have
    the same bytes, which are added up when the mark comes first, and now and then to be sure. Where
    they are found to change by themselves they are UNKNOWN, but in those that are added up. A batch
    that is built in another way is counted by itself, and those after it are taken to be like it.

    So samples are right for every batch; bytes are, or UNKNOWN, as long as they change with the
    shape of the first array, and else in most.
    """

    mark_of: Callable[[Any], Any]
    _samples_of: Callable[[Any], int]

    def __init__(self, counter: Counter, batch: Any) -> None:
        self._counter = counter
        self._tells_padding = not counter.gave_up
        self._bytes_vary = False
        self._begin(batch)

    def _begin(self, batch: Any) -> None:
        counter = self._counter
        self._known: dict[Any, Count] = {}
        self.mark: Any = None  # that of no batch
        self.period = 1
        self.mark_of, self._samples_of = counter.samples, int
        if counter.plain:
            self.mark_of, self._samples_of = NO_ARRAY if counter.gave_up else by_first_array(batch)

    def count(self, batch: Any, mark: Any, *, is_due: bool) -> Count:
        """See Counting; the same object for all batches of a mark, but those that are due."""
        try:
            if mark is None:
                mark = self.mark_of(batch)
            self.mark, before = mark, self._known.get(mark)
            return self._added_up(batch, mark, before) if before is None or is_due else before
        except Exception as error:  # a batch of another structure fails in its own way
            if is_of_a_signal(error):
                raise
            counted = self._counter.count(batch)
            self._begin(batch)
            return counted

    def _added_up(self, batch: Any, mark: Any, before: Count | None) -> Count:
        """The Count of a batch of that mark; the one `before` had this Count.

        Raises LookupError where it is of another structure.
        """
        samples = self._samples_of(mark)
        exact = self._counter.count(batch, samples)
        if exact[0] != samples:  # the first array was not the one that is looked at
            raise LookupError
        # What an adapter adds up by itself nobody else knows to follow from the samples.
        if self._counter.adds_up and self._known:
            self._bytes_vary |= before is not None and UNKNOWN != before[1] != exact[1]
            most = BATCHES_PER_LEAF * (self._counter.leaves + OVERHEAD_LEAVES)
            most //= VARYING_OFTENER if self._bytes_vary else 1
            self.period = min(2 * self.period, most)
        if len(self._known) > MOST_MARKS:
            self._known.clear()
        counted = (samples, UNKNOWN) if self._bytes_vary else exact
        usual = self._known[mark] = before if before == counted else counted
        padding = padding_of(batch) if self._tells_padding else None
        self._tells_padding = padding is not None
        if padding is None and not self._bytes_vary:
            return usual
        self.mark = None  # for the next batch has the usual Count
        return *exact, *(padding or ())


NO_ARRAY: tuple[Callable[[Any], Any], Callable[[Any], int]] = type, lambda _: UNKNOWN
"""The mark, and the samples, of batches that have no array."""


def by_first_array(batch: Any) -> tuple[Callable[[Any], Any], Callable[[Any], int]]:
    """Functions from a batch that is built like `batch` to its mark, and from that to its samples.

    An object that tells its samples itself takes the place of the first array.
    """
    *_, route = survey(batch)
    if route is not None:
        steps, leaf = route
        with suppress(Exception):  # an odd container does not let go
            getters = [make(key) for make, key in steps]
            if reduce(lambda node, get: get(node), getters, batch) is leaf:
                own_count = own_count_of(leaf)
                of_last: Callable[[Any], int] = int if own_count else itemgetter(0)
                if not steps:
                    return own_count or attrgetter("shape"), of_last
                return _mark_of(batch, steps, own_count), lambda mark: of_last(mark[1])
    return NO_ARRAY


def _mark_of(
    batch: Any, steps: tuple[inside.Step, ...], own_count: Callable[[Any], int] | None
) -> Callable[[Any], Any]:
    """A function from a batch to its mark, quick where the way is short, and it mostly is."""
    is_sized = issubclass(type(batch), (dict, list, tuple))
    makes, keys = {make for make, _ in steps}, [key for _, key in steps]
    if own_count is None and makes == {attrgetter}:
        shape_of = attrgetter(".".join([*keys, "shape"]))
        return lambda batch: (0, shape_of(batch))
    if own_count is None and is_sized and makes == {itemgetter}:
        first, *others = keys
        if not others:
            return lambda batch: (len(batch), batch[first].shape)
        if len(others) == 1:
            (second,) = others
            return lambda batch: (len(batch), batch[first][second].shape)
    getters = [make(key) for make, key in steps]
    last = own_count or attrgetter("shape")

    def through_all(batch: Any) -> Any:
        node = batch
        for get in getters:
            node = get(node)
        return len(batch) if is_sized else 0, last(node)

    return through_all


# Padding: by a mask, or by lengths

Numbers = npt.NDArray[np.generic]

MOST_BYTES = 8 * 2**20
"""Only tensors of torch and arrays of NumPy in the memory of the host are read, none of more."""
MOST_LEAVES = 64
"""No more leaves of a batch are looked at for a mask."""
# Names are those of Hugging Face, PyTorch, fairseq and the like.
MASKS = frozenset({"attention_mask", "mask", "input_mask"})
PADDING_MASKS = ("padding_mask", "pad_mask")
"""Names that end so are of masks that some libraries set where there is padding."""
LENGTHS = ("length", "lengths", "lens")


class Padding(NamedTuple):
    """The positions of a batch, how many are `padded`, and the `longest` sequence without them.

    Every sequence is padded to `length` positions.
    """

    positions: int
    padded: int
    length: int
    longest: int


def padding_of(batch: Any) -> Padding | None:
    """The padding of a batch of sequences; None where nothing tells it."""
    try:
        named = islice(named_leaves(batch), MOST_LEAVES)
        leaves = [(name if isinstance(name, str) else "", leaf) for name, leaf in named]
        masks = (_by_mask(name, leaf) for name, leaf in leaves)
        lengths = (_by_lengths(leaf, leaves) for name, leaf in leaves if name.endswith(LENGTHS))
        return next((padding for padding in chain(masks, lengths) if padding is not None), None)
    except Exception as error:  # each kind of array fails in its own way
        if is_of_a_signal(error):
            raise
        return None


def _numbers_of(leaf: Any) -> Numbers:
    """Its numbers as an array of NumPy, of no elements where they are not to be read."""
    kind: Any = type(leaf)
    is_tensor = (kind.__module__, kind.__name__) == ("torch", "Tensor")
    if not (leaf.is_cpu if is_tensor else kind is np.ndarray) or leaf.nbytes > MOST_BYTES:
        return np.zeros(0)
    if is_tensor and str(leaf.dtype) == "torch.bool":
        leaf = leaf.byte()  # torch 2.1 gives no bool by DLPack
    # Not by numpy(), after which a tensor can no longer be resized.
    return np.from_dlpack(leaf) if is_tensor else leaf


def _by_mask(name: str, leaf: Any) -> Padding | None:
    """By a mask of a row for each sequence.

    Which value of a padding mask is padding has no common meaning: the first column is of none, or
    the last one, where the first one differs.
    """
    by_place = name.endswith(PADDING_MASKS)
    mask = _numbers_of(leaf) if by_place or name in MASKS else np.zeros(0)
    if mask.ndim <= 1 or not mask.size or mask.dtype.kind not in "biu":
        return None
    is_held: npt.NDArray[np.bool_] = mask.reshape(len(mask), -1) != 0
    if is_held.shape[1] != mask.shape[-1]:
        return None
    if by_place:
        edges = (is_held[:, place] for place in (0, -1))
        edge = next((column[0] for column in edges if (column == column[0]).all()), None)
        if edge is None:
            return None
        is_held = is_held == edge
    # What lies anywhere is masked for another reason.
    changes = np.count_nonzero(is_held[:, 1:] != is_held[:, :-1])
    if changes > 2 * len(is_held) or not is_held.any():
        return None
    return _of_lengths(np.count_nonzero(is_held, axis=1), is_held.shape[1])


def _by_lengths(leaf: Any, leaves: list[tuple[str, Any]]) -> Padding | None:
    """By lengths, and the first array that has a row for each of them.

    With more than two dimensions it must be padded to the longest.
    """
    lengths = _numbers_of(leaf)
    if lengths.ndim != 1 or lengths.dtype.kind not in "iu" or not len(lengths):
        return None
    longest = lengths.max()
    for _, other in leaves:
        sizes = [*getattr(other, "shape", ())]
        if len(lengths) not in sizes[:2]:
            continue
        sizes.remove(len(lengths))
        for size in sizes:
            if size == longest or (len(sizes) == 1 and size > longest):
                return _of_lengths(lengths, int(size))
    return None


def _of_lengths(lengths: Numbers, padded_to: int) -> Padding:
    positions, held = len(lengths) * padded_to, int(lengths.sum())
    return Padding(positions, positions - held, padded_to, int(lengths.max()))
