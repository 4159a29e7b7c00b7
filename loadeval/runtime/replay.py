"""Batches kept for replay: served again and again, and checked for in-place changes."""

from __future__ import annotations

import copyreg
import warnings
from collections import OrderedDict, UserDict, UserList, defaultdict
from functools import partial
from itertools import chain, count, cycle, islice, pairwise, repeat
from math import isinf
from typing import TYPE_CHECKING, Any

import numpy as np

from loadeval.errors import CacheError, LoadevalWarning
from loadeval.runlog.columns import UNKNOWN
from loadeval.runtime.adapter import begun
from loadeval.runtime.batch import (
    TooLargeError,
    attributes_of,
    is_container,
    is_shared_type,
    leaves,
    map_leaves,
)
from loadeval.runtime.copies import clone_leaf
from loadeval.runtime.counting import Count, Counter
from loadeval.runtime.loop import chunk_sizes

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from loadeval.runtime.adapter import Adapter
    from loadeval.runtime.guard import Guard
    from loadeval.runtime.open_epoch import OpenEpoch

    Make = Callable[[], Any]
    Parts = list[tuple[Any, Make]]

SAMPLED_ELEMENTS = 64
"""How many elements of a NumPy array are compared."""
Watch = tuple[Any, int, Any, int]
"""Two tensors, each with its version: unchanged while `one._version == its_version` for both."""
Sample = tuple["np.ndarray[Any, Any]", bytes]
"""Some elements of an array, and the bytes that they had."""
Handout = tuple["Callable[[], Any]", Count, Any, int, Any, int]
"""A function that makes the batch in new containers, its count, and a Watch to check before."""
HANDOUTS_PER_SAMPLE = 16
"""Comparing a sample of an array takes as long as handing out a batch, or longer."""
BUILT_IN = (dict, list, OrderedDict, defaultdict)
"""Their method `copy` does what `copy.copy` does."""
PLAIN_COPIES = (None, UserDict.__copy__, UserList.__copy__)
MEMORY = ("__basicsize__", "__dictoffset__", "__weakrefoffset__")
REDUCING = ("__reduce_ex__", "__reduce__", "__getstate__", "__setstate__")
ARGUMENTS = ("__getnewargs__", "__getnewargs_ex__")

AGAIN = (
    "replay cannot serve a batch that holds a {}: training would change it, or follow its graph a "
    "second time. Use mode='alternate' or mode='log', or detach() it in the loader"
)
TOO_LARGE = (
    "{}, so replay cannot keep it. Use mode='alternate' or mode='log', or let the loader return "
    "fewer, larger arrays"
)
CHANGED = (
    "the training step changes its batch in place, so replay would feed it its own output: "
    "changed batches are dropped, and from now on every replayed batch is a copy, so the ideal "
    "arm includes the cost of copying"
)


class KeptBatch:
    """One kept batch: `tree` is never handed out itself, only its leaves in new containers."""

    __slots__ = ("count", "fresh", "tree", "watched")

    def __init__(self, tree: Any, count: Count) -> None:
        self.tree = tree
        self.count = count
        self.fresh = refresher(tree)
        self.watched = MutationWatch(list(leaves(tree)))

    def copy(self) -> KeptBatch:
        """The same batch in memory of its own."""
        return KeptBatch(map_leaves(clone_leaf, self.tree), self.count)


class BatchCache:
    """The batches that replay serves over and over.

    A served batch shares its arrays with the kept one, so a step that works in place would get
    its own output. Each batch is therefore checked when the next one is requested: a changed one
    is dropped, and every later batch is a copy. A consumer that reads ahead runs its step later,
    so the first batch of an epoch is served as a copy, and checked until it comes again; kept
    batches that changed before that are found and dropped.

    Checking whole batches costs too much. All of every batch is checked when an epoch begins and
    in its first pass. Later passes check two tensors of each batch, different ones each
    pass, and one array in HANDOUTS_PER_SAMPLE batches.

    `exhausted` tells that the loader had no more batches than these.
    """

    def __init__(self, trees: list[Any], counts: list[Count], *, exhausted: bool) -> None:
        self.exhausted = exhausted
        one_of_each = {count: count for count in counts}  # the hot loop compares by identity
        self._kept = [
            KeptBatch(tree, one_of_each[count]) for tree, count in zip(trees, counts, strict=True)
        ]
        self._copying = False
        self._passes = self._in_passes()
        self._samples = [sample for kept in self._kept for sample in kept.watched.samples]

    def __len__(self) -> int:
        return len(self._kept)

    def __reduce__(self) -> tuple[Any, ...]:
        counts = [kept.count for kept in self._kept]
        return partial(BatchCache, exhausted=self.exhausted), (self.batches, counts)

    @property
    def batches(self) -> list[Any]:
        """The kept batches themselves."""
        return [kept.tree for kept in self._kept]

    @property
    def nbytes(self) -> int | None:
        """Their size in bytes; None if some are unknown."""
        sizes = [kept.count[1] for kept in self._kept]
        return None if UNKNOWN in sizes else sum(sizes)

    def handouts(self, note: Callable[[str], None]) -> Iterator[Handout]:
        """The batches over and over, each with a Watch to check before it is served.

        `note` is called once if a step changes its batch in place. Whoever finds a change
        continues with `copies_from_now_on`.
        """
        return chain.from_iterable(self._parts(note))

    def copies_from_now_on(self, note: Callable[[str], None]) -> Iterator[Handout]:
        """The batches over and over, each as a copy."""
        if not self._copying:
            self._copying = True
            note(CHANGED)
            warnings.warn(CHANGED, LoadevalWarning, stacklevel=4)  # where a batch is asked for
        return self._copies()

    def unmeasured(self, number: float, first: int = 0) -> Iterator[Any]:
        """That `number` of batches (math.inf: without end), as copies, after those before `first`.

        For when something here has failed: what cannot be copied is served as it is.
        """
        trees = self.batches

        def batch(at: int) -> Any:
            tree = trees[at % len(trees)]
            try:
                return map_leaves(clone_leaf, tree)
            except Exception:  # noqa: BLE001 - see above
                return tree

        return map(batch, count(first) if isinf(number) else range(first, first + int(number)))

    def _parts(self, note: Callable[[str], None]) -> Iterator[Iterable[Handout]]:
        if any(kept.watched.changed() for kept in self._kept):
            self.copies_from_now_on(note)
        if not self._copying:
            yield self._guarded(note)
        samples, due = cycle(self._samples), 0
        passes = cycle(self._passes)
        while not self._copying:
            yield next(passes)
            due += len(self._kept) if self._samples else 0
            looked_at = islice(samples, due // HANDOUTS_PER_SAMPLE)
            due %= HANDOUTS_PER_SAMPLE
            if any(map(differs, looked_at)):
                self.copies_from_now_on(note)
        yield self._copies()

    def _in_passes(self) -> list[list[Handout]]:
        """As many passes as it takes to check every tensor; the first batch comes last."""
        most = max(len(kept.watched.pairs) for kept in self._kept)
        order = [*self._kept, self._kept[0]]
        return [
            [
                (kept.fresh, kept.count, *last.watched.pairs[number % len(last.watched.pairs)])
                for last, kept in pairwise(order)
            ]
            for number in range(most)
        ]

    def _guarded(self, note: Callable[[str], None]) -> Iterator[Handout]:
        """One pass, and the first batch again, which was a copy and is checked throughout."""
        original, *others = self._kept
        first = original.copy()
        watch = first.watched.pairs[0]
        yield first.fresh, first.count, *UNWATCHED
        # Sampling arrays finds most changes; this once they are compared completely.
        if not same_arrays(list(leaves(first.tree)), list(leaves(original.tree))):
            self.copies_from_now_on(note)
            return
        for last, kept in pairwise((first, *others, original)):
            if last.watched.changed():
                self.copies_from_now_on(note)
                return
            yield kept.fresh, kept.count, *watch

    def _copies(self) -> Iterator[Handout]:
        while True:
            for kept in list(self._kept):
                if len(self._kept) > 1 and kept.watched.changed():
                    self._kept.remove(kept)
                else:
                    yield partial(map_leaves, clone_leaf, kept.tree), kept.count, *UNWATCHED


def fill(
    adapter: Adapter, loader: Any, counter: Counter, batches: int, max_bytes: int
) -> BatchCache:
    """Keep the first `batches` batches of `loader`, read no more, and stop its workers.

    Raises CacheError if they take more than `max_bytes`, cannot be copied, or if there are none.
    """
    epoch = adapter.epoch(loader)
    trees: list[Any] = []
    counts: list[Count] = []
    total = 0
    try:
        for batch in islice(begun(epoch), batches):
            counts.append(counter.count(batch))
            total += max(counts[-1][1], 0)
            try:
                _check_can_be_repeated(batch)
            except TooLargeError as error:
                raise CacheError(TOO_LARGE.format(error)) from None
            if total > max_bytes:
                raise CacheError(
                    f"{len(counts)} of {batches} batches for replay take {total:,} bytes, over "
                    f"max_cache_bytes={max_bytes:,}; keep {len(trees)} or fewer with "
                    f"num_cached_batches=, or raise max_cache_bytes to some "
                    f"{total * batches // len(counts):,}"
                )
            try:
                trees.append(adapter.keep(batch))
            except Exception as error:
                raise CacheError(
                    f"batch {len(counts)} of {batches} could not be copied for replay: {error}; if "
                    "memory is short, keep fewer with num_cached_batches="
                ) from error
            del batch  # its memory is the loader's, which is about to be released
    finally:
        adapter.release(loader, epoch)
    if not trees:
        raise CacheError(
            "the loader gave no batch to keep for replay; if it is an iterator that was read "
            "before, pass a new one, or a callable that returns one"
        )
    return BatchCache(trees, counts, exhausted=len(trees) < batches)


def _check_can_be_repeated(batch: Any) -> None:
    """Raises CacheError if training would change a batch, or follow its graph, each time."""
    for leaf in leaves(batch):
        kind: Any = type(leaf)
        if is_shared_type(kind) and hasattr(kind, "requires_grad_"):
            raise CacheError(AGAIN.format(kind.__name__))
        if hasattr(kind, "requires_grad") and getattr(leaf, "requires_grad", False) is True:
            raise CacheError(AGAIN.format(f"{kind.__name__} that requires gradients"))


def replayed(
    cache: BatchCache,
    batches: float,
    begin: Callable[[], OpenEpoch],
    clock: Callable[[], int],
    note: Callable[[str], None],
    owner: object,  # noqa: ARG001 - held, so that its log stays open while an epoch is served
    guard: Guard,
) -> Generator[Any, None, None]:
    """Serve `batches` kept batches (math.inf: without end), recorded as `served` does.

    `note` is called if the step changes its batches in place. What fails in here trips `guard`,
    and the others are served unmeasured.
    """
    served, marks = 0, list[int]()
    epoch: OpenEpoch | None = None
    try:
        epoch = begin()
        epoch.started()
        order = cache.handouts(note)
        sizes = chunk_sizes()
        while batches > served:
            marks, counts = epoch.next_chunk("ideal")
            current = None
            size = int(min(next(sizes), batches - served))
            request = clock()
            for fresh, counted, one, version, other, other_version in islice(order, size):
                if one._version != version or other._version != other_version:  # noqa: SLF001 - see Watch
                    order = cache.copies_from_now_on(note)
                    break
                batch = fresh()
                deliver = clock()
                if counted is not current:
                    current = counted
                    counts.append((len(marks) // 2, counted))
                marks.append(request)
                marks.append(deliver)
                yield batch
                request = clock()
            served, marks = served + len(marks) // 2, []
        epoch.end("exhausted", request, clock())
    except BaseException as error:
        if not guard.ends(error):
            with guard:
                if epoch is not None:
                    epoch.end("broken off")
            raise
    else:
        return
    served += len(marks) // 2
    yield from cache.unmeasured(batches - served, served)


class NeverMutated:
    """Stands for a tensor where there is none: never changed."""

    _version = 0


UNWATCHED: Watch = (NeverMutated, 0, NeverMutated, 0)


class MutationWatch:
    """Leaves, and what it takes to find in-place changes of them later.

    `pairs` has the tensors with their versions, which PyTorch increments at every in-place
    change; there is at least one pair. `samples` has SAMPLED_ELEMENTS evenly spread elements of
    each NumPy array with their current bytes, so a change of few elements can go unnoticed.
    """

    __slots__ = ("pairs", "samples")

    def __init__(self, leaves: list[Any]) -> None:
        tensors = [(leaf, leaf._version) for leaf in leaves if _counts_versions(leaf)]  # noqa: SLF001 - the counter has no public name
        if len(tensors) % 2:
            tensors.append((NeverMutated, 0))
        pairs = zip(tensors[::2], tensors[1::2], strict=True)
        self.pairs: list[Watch] = [(*one, *other) for one, other in pairs] or [UNWATCHED]
        self.samples = [found for leaf in leaves if (found := _sample(leaf)) is not None]

    def changed(self) -> bool:
        """Whether a leaf was changed in place."""
        return any(
            one._version != one_version or other._version != other_version  # noqa: SLF001 - as above
            for one, one_version, other, other_version in self.pairs
        ) or any(map(differs, self.samples))


def differs(sample: Sample) -> bool:
    """Whether these elements were changed."""
    elements, content = sample
    return elements.tobytes() != content


def same_arrays(some: list[Any], others: list[Any]) -> bool:
    """Whether the NumPy arrays among two lists of leaves hold the same bytes, NaNs included.

    Of lists that are not alike nothing is known: an object may fill itself in when it is used.
    """
    if list(map(type, some)) != list(map(type, others)):
        return True
    return all(
        one.tobytes() == other.tobytes()
        for one, other in zip(some, others, strict=True)
        if issubclass(type(one), np.ndarray) and not one.dtype.hasobject
    )


def _counts_versions(leaf: Any) -> bool:
    try:
        leaf._version  # noqa: B018, SLF001 - asked for its exception
    except Exception:  # noqa: BLE001 - RuntimeError: a tensor made in inference mode; or anybody's
        return False
    return True


def _sample(leaf: Any) -> Sample | None:
    if not issubclass(type(leaf), np.ndarray):  # an object may lie about its class
        return None
    flat = leaf.ravel(order="K")
    if leaf.dtype.hasobject or not leaf.size or not np.shares_memory(flat, leaf):
        return None
    elements = flat[:: max(1, leaf.size // SAMPLED_ELEMENTS)]
    return elements, elements.tobytes()


class _Plain:
    """An ordinary class: attributes in __dict__, nothing else."""


def refresher(tree: Any) -> Make:
    """A function that returns `tree` in fresh containers around the same leaves, each time.

    They equal what `map_leaves` makes, but what to copy is determined only once.
    """
    try:
        make = _maker(tree, set())
    except Exception:  # noqa: BLE001 - also what a class of anybody's raises
        return partial(map_leaves, lambda leaf: leaf, tree)
    return repeat(tree).__next__ if make is None else make


def _maker(node: Any, objects: set[int]) -> Make | None:
    """A function that rebuilds `node`; None if nothing in it can be replaced.

    Raises NotImplementedError for what only `map_leaves` can do, such as an object that occurs
    twice.
    """
    if not is_container(node):
        return None
    if type(node) in BUILT_IN:
        children = node.items() if isinstance(node, dict) else enumerate(node)
        return _patching(node.copy, _parts(children, objects))
    if isinstance(node, tuple):
        parts = _parts(enumerate(node), objects)
        kind, make_list = type(node), _patching(list(node).copy, parts)
        return (lambda: tuple.__new__(kind, make_list())) if parts else None
    if id(node) in objects or isinstance(node, (dict, list)) or not _is_plain(type(node)):
        raise NotImplementedError
    objects.add(id(node))
    attributes = attributes_of(node)
    return _object_making(type(node), attributes, _parts(attributes.items(), objects))


def _parts(pairs: Iterable[tuple[Any, Any]], objects: set[int]) -> Parts:
    """The keys of a container's children that must be rebuilt, and how."""
    made = [(key, _maker(child, objects)) for key, child in pairs]
    return [(key, make) for key, make in made if make is not None]


def _patching(copy: Make, parts: Parts) -> Make:
    if not parts:
        return copy
    (key_of_one, make_one), *others = parts

    def make_with_one() -> Any:
        fresh = copy()
        fresh[key_of_one] = make_one()
        return fresh

    def make_container() -> Any:
        fresh = copy()
        for key, make in parts:
            fresh[key] = make()
        return fresh

    return make_container if others else make_with_one  # a loop for one is slower


def _object_making(kind: Any, attributes: dict[str, Any], parts: Parts) -> Make:
    new: Make = partial(object.__new__, kind)
    make_attributes = _patching(attributes.copy, parts)

    def make_object() -> Any:
        fresh = new()
        fresh.__dict__ = make_attributes()
        return fresh

    def make_frozen() -> Any:
        fresh = new()
        fresh.__dict__.update(make_attributes())
        return fresh

    return make_object if kind.__setattr__ is object.__setattr__ else make_frozen


def _is_plain(kind: Any) -> bool:
    """Whether `copy.copy` copies the __dict__ of objects of `kind`, and does nothing else."""
    copier = getattr(kind, "__copy__", None)
    if copier not in PLAIN_COPIES or kind in copyreg.dispatch_table:
        return False
    if kind.__new__ is not object.__new__ or not _agree(kind, _Plain, MEMORY):
        return False
    return copier is not None or (
        _agree(kind, object, REDUCING) and not any(hasattr(kind, name) for name in ARGUMENTS)
    )


def _agree(one: Any, other: Any, names: tuple[str, ...]) -> bool:
    return all(getattr(one, name, None) == getattr(other, name, None) for name in names)
