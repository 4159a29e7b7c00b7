"""Replay: batches that are kept once, and served again and again as if loading were free."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain, count, islice
from math import isinf
from typing import Any

from loadeval.adapter import Adapter, begun
from loadeval.core.batch import (
    TooLargeError,
    attributes_of,
    clone,
    is_container,
    is_shared_type,
    leaves,
    parts,
)
from loadeval.core.counting import Counter
from loadeval.core.loop import CHUNK, EpochPlan, chunk_sizes
from loadeval.core.recorder import Count, Span
from loadeval.errors import CacheError, warn

OWN_WAYS_TO_COPY = frozenset(
    {"__copy__", "__getstate__", "__new__", "__reduce__", "__reduce_ex__", "__setstate__"}
)
CHANGED = (
    "the training step changes its batch in place, so replay would feed it its own output: "
    "changed batches are dropped, and from now on every replayed batch is a copy, so the ideal "
    "arm includes the cost of copying"
)


class KeptBatch:
    """One kept batch: `tree` is never handed out itself, only its leaves in new containers.

    PyTorch increments the version of a tensor at every in-place change.
    """

    def __init__(self, tree: Any, counted: Count) -> None:
        self.tree = tree
        self.count = counted
        try:
            self.fresh = refresher(tree, set()) or (lambda: tree)
        except (NotImplementedError, RecursionError):
            self.fresh = partial(deep_refreshed, tree, {id(leaf): leaf for leaf in leaves(tree)})
        self.versions: list[tuple[Any, int]] = []
        for leaf in leaves(tree):
            with suppress(Exception):  # no tensor, one made in inference mode, or anybody's
                self.versions.append((leaf, leaf._version))  # noqa: SLF001 - it has no public name

    def has_changed(self) -> bool:
        """Whether a tensor was changed in place."""
        for tensor, version in self.versions:  # noqa: SIM110 - any() takes longer in each batch
            if tensor._version != version:  # noqa: SLF001 - it has no public name
                return True
        return False


def refresher(node: Any, met: set[int]) -> Callable[[], Any] | None:
    """A function that returns `node` in fresh containers around the same leaves, each time.

    What to copy is found once. None is for what need not be copied.
    Raises NotImplementedError for a container that is no dict, list, tuple, or object that is made
    of its `__dict__` alone, or that was `met`.
    """
    if not is_container(node):
        return None
    kind: Any = type(node)
    is_plain = kind in {dict, list, tuple}
    if id(node) in met or not (is_plain or is_made_of_attributes(node)):
        raise NotImplementedError
    met.add(id(node))
    inner = [(key, make) for (_, key), child in parts(node) if (make := refresher(child, met))]
    if is_plain and not inner:
        return None if kind is tuple else node.copy
    held: Any = list(node) if kind is tuple else node if is_plain else attributes_of(node)

    def fresh() -> Any:
        made = held.copy()
        for key, make in inner:
            made[key] = make()
        if kind is tuple:
            return tuple(made)
        if is_plain:
            return made
        new = object.__new__(kind)
        object.__setattr__(new, "__dict__", made)  # past that of a frozen dataclass
        return new

    return fresh


def deep_refreshed(tree: Any, same: dict[int, Any]) -> Any:
    """`tree` in fresh containers, by `copy.deepcopy`; `same` has its leaves, by identity."""
    with suppress(Exception):  # a class of anybody's fails at it
        made = copy.deepcopy(tree, same.copy())
        if type(made) is type(tree):
            return made
    return tree


def is_made_of_attributes(node: Any) -> bool:
    """Whether a copy of `node` is a new object with its `__dict__`, as of an ordinary dataclass."""
    kind: Any = type(node)
    own = {name for base in kind.__mro__[:-1] for name in vars(base)}
    has_no_slots = kind.__basicsize__ == KeptBatch.__basicsize__
    is_linked = any(type(value) is weakref.ref for value in attributes_of(node).values())
    return has_no_slots and own.isdisjoint(OWN_WAYS_TO_COPY) and not is_linked


class BatchCache:
    """The batches that replay serves over and over.

    Once a step has changed a batch in place, what is served `is_copied`.
    """

    def __init__(self, kept: list[KeptBatch]) -> None:
        self.is_copied = False
        self.kept = kept

    def __len__(self) -> int:
        return len(self.kept)

    @property
    def batches(self) -> list[Any]:
        """The kept batches themselves."""
        return [kept.tree for kept in self.kept]

    def unmeasured(self, number: float) -> Iterator[Any]:
        """The first `number` batches (math.inf: without end) of an epoch, as copies.

        For when something here has failed: what cannot be copied is served as it is.
        """
        return map(self.unmeasured_batch, numbers(number))

    def unmeasured_batch(self, number: int) -> Any:
        """Batch `number` of an epoch: see `unmeasured`."""
        tree = self.kept[number % len(self.kept)].tree
        try:
            return clone(tree)
        except Exception:  # noqa: BLE001 - it is served as it is
            return tree


def numbers(batches: float) -> Iterator[int]:
    """As many numbers from 0 on; math.inf is without end. Several threads may take them."""
    return count() if isinf(batches) else iter(range(int(batches)))


class ReplayEpoch(EpochPlan):
    """An epoch of `batches` kept batches (math.inf: without end): see EpochPlan.

    A served batch shares its tensors with the kept one, so a step that works in place would get its
    own output. Each batch is therefore looked at when the next one is asked for. From the first
    change on every batch is a copy, and changed ones are dropped; `note` is told so once.
    """

    period = CHUNK

    def __init__(self, cache: BatchCache, batches: float, note: Callable[[str], None]) -> None:
        self._cache = cache
        self._note = note
        self._numbers = numbers(batches)
        self._last = cache.kept[0]
        self._is_over = False
        self.mark: Count | None = None

    def spans(self, epoch: int) -> Generator[Span, None, None]:  # noqa: ARG002 - see EpochPlan
        """See EpochPlan."""
        source = chain.from_iterable(iter(self._left, None))  # which goes on after an interrupt
        for size in chunk_sizes():
            span = Span(source, size, "ideal", is_ours=True)
            yield span
            if span.fell_short:
                return

    def remainder(self) -> Iterator[Any]:
        """See EpochPlan."""
        return map(self._cache.unmeasured_batch, self._numbers)

    def mark_of(self, _batch: Any) -> Count:
        """Batches were counted when they were kept."""
        return self._last.count

    def count(self, batch: Any, mark: Any, *, is_due: bool) -> Count:  # noqa: ARG002 - see Counting
        """See Counting."""
        self.mark = self._last.count
        return self.mark

    def _left(self) -> Iterator[Any] | None:
        """What is left; None at the end."""
        return None if self._is_over else self._batches()

    def _batches(self) -> Iterator[Any]:
        cache, kept = self._cache, self._cache.kept
        for number in self._numbers:
            try:
                if cache.is_copied or not number or self._last.has_changed():
                    batch = self._looked_at(number)
                else:
                    self._last = last = kept[number % len(kept)]
                    batch = last.fresh()
            except BaseException:
                self._numbers = chain([number], self._numbers)  # it is among what is left
                raise
            yield batch
        self._is_over = True

    def _looked_at(self, number: int) -> Any:
        """Batch `number`, where a step may have changed one before."""
        cache, kept = self._cache, self._cache.kept
        if not cache.is_copied and (number or any(each.has_changed() for each in kept)):
            cache.is_copied = True
            self._note(CHANGED)
            warn(CHANGED)
        if cache.is_copied:
            while len(kept) > 1 and kept[number % len(kept)].has_changed():
                del kept[number % len(kept)]
            self._last = kept[number % len(kept)]
            return clone(self._last.tree)
        # The first is a copy, so that one stays as it was.
        self._last = KeptBatch(clone(kept[0].tree), kept[0].count)
        return self._last.fresh()


def fill(
    adapter: Adapter, loader: Any, counter: Counter, batches: int, max_bytes: int
) -> BatchCache:
    """Keep the first `batches` batches of `loader`, read no more, and stop its workers.

    Raises CacheError if they take more than `max_bytes`, cannot be copied, or if there are none.
    """
    epoch = adapter.epoch(loader)
    kept: list[tuple[Any, Count]] = []
    total = 0
    try:
        for batch in islice(begun(epoch), batches):
            number = len(kept) + 1
            counted = counter.count(batch)
            total += max(counted[1], 0)
            _check_can_be_repeated(batch)
            if total > max_bytes:
                fewer = f"keep {len(kept)} or fewer with num_cached_batches=, or " if kept else ""
                raise CacheError(
                    f"{number} of {batches} batches for replay take {total:,} bytes, over "
                    f"max_cache_bytes={max_bytes:,}; {fewer}raise max_cache_bytes to some "
                    f"{total * batches // number:,}"
                )
            try:
                tree = adapter.keep(batch)
            except Exception as error:
                raise CacheError(
                    f"batch {number} of {batches} could not be copied for replay: {error}; if "
                    "memory is short, keep fewer with num_cached_batches="
                ) from error
            kept.append((tree, counted))
            del batch  # its memory is the loader's, which is about to be released
    finally:
        adapter.release(loader, epoch)
    if not kept:
        raise CacheError(
            "the loader gave no batch to keep for replay; if it is an iterator that was read "
            "before, pass a new one, or a callable that returns one"
        )
    # Last: what could not be copied the loader may have changed until now.
    return BatchCache([KeptBatch(*each) for each in kept])


def _check_can_be_repeated(batch: Any) -> None:
    """Raises CacheError if training would change a batch, or follow its graph, each time."""
    try:
        for leaf in leaves(batch):
            kind: Any = type(leaf)
            has_graph = hasattr(kind, "requires_grad") and getattr(leaf, "requires_grad", 0) is True
            if not (has_graph or (is_shared_type(kind) and hasattr(kind, "requires_grad_"))):
                continue
            what = kind.__name__ + " that requires gradients" * has_graph
            raise CacheError(
                f"replay cannot serve a batch that holds a {what}: training would change it, or "
                "follow its graph a second time. Use mode='alternate' or mode='log', or detach() "
                "it in the loader"
            )
    except TooLargeError as error:
        raise CacheError(
            f"{error}, so replay cannot keep it. Use mode='alternate' or mode='log', or let the "
            "loader return fewer, larger arrays"
        ) from None
