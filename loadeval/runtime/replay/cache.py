"""Batches kept for replay: served again and again, and checked for in-place changes."""

from __future__ import annotations

import warnings
from functools import partial
from itertools import chain, count, cycle, islice, pairwise
from math import isinf
from typing import TYPE_CHECKING, Any

from loadeval.adapter import begun
from loadeval.data.columns import UNKNOWN
from loadeval.errors import CacheError, LoadevalWarning
from loadeval.runtime.batches.copies import clone
from loadeval.runtime.batches.tree import TooLargeError, is_shared_type, leaves
from loadeval.runtime.replay.fresh_containers import refresher
from loadeval.runtime.replay.mutations import UNWATCHED, MutationWatch, differs, same_arrays

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from loadeval.adapter import Adapter
    from loadeval.core.counting import Counter
    from loadeval.core.recorder import Count

    Handout = tuple[Callable[[], Any], Count, Any, int, Any, int]
    """It has a function that makes the batch anew, its count, and a Watch to check before."""
HANDOUTS_PER_SAMPLE = 16
"""Comparing a sample of an array takes as long as handing out a batch, or longer."""

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
        return KeptBatch(clone(self.tree), self.count)


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
        interned = {count: count for count in counts}  # the hot loop compares by identity
        self._kept = [
            KeptBatch(tree, interned[count]) for tree, count in zip(trees, counts, strict=True)
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
        """The size of the kept batches in bytes; None if some are unknown."""
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
        """The next `number` batches (math.inf: without end) from number `first` on, as copies.

        For when something here has failed: what cannot be copied is served as it is.
        """
        trees = self.batches

        def batch(at: int) -> Any:
            tree = trees[at % len(trees)]
            try:
                return clone(tree)
            except Exception:  # noqa: BLE001 - it is served as it is
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
                    yield partial(clone, kept.tree), kept.count, *UNWATCHED


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
