"""Batches kept for replay: filled from a loader, handed out again and again, never spoiled."""

from __future__ import annotations

import warnings
from functools import partial
from itertools import chain, cycle, islice, pairwise
from typing import TYPE_CHECKING, Any

from loadeval.errors import CacheError, LoadevalWarning
from loadeval.runlog.model import UNKNOWN
from loadeval.runtime.counting import Count, Counter
from loadeval.runtime.fresh import refresher
from loadeval.runtime.ownership import UNWATCHED, Watched, differs, own, same_arrays
from loadeval.runtime.tree import leaves, map_leaves

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from loadeval.runtime.adapter import Adapter

Handout = tuple["Callable[[], Any]", Count, Any, int, Any, int]
"""What makes a batch in new containers, its count, and a Watch on what must be unchanged."""
HANDOUTS_PER_SAMPLE = 16
"""Comparing a sample of an array takes as long as handing out a batch, or longer."""

CHANGED = (
    "the training step changes its batch in place, so replay would feed it its own output: "
    "kept batches that it has changed are left out, from here on each replayed batch is a copy, "
    "and the cost of copying is in the ideal pace"
)


class Kept:
    """One kept batch: `tree` is never handed out itself, only its leaves in new containers."""

    __slots__ = ("count", "fresh", "tree", "watched")

    def __init__(self, tree: Any, count: Count) -> None:
        self.tree = tree
        self.count = count
        self.fresh = refresher(tree)
        self.watched = Watched(list(leaves(tree)))

    def copy(self) -> Kept:
        """The same batch in memory of its own."""
        return Kept(map_leaves(own, self.tree), self.count)


class BatchCache:
    """Batches that replay hands out in turn.

    A batch that is handed out shares its arrays with the kept one, so a step that works in
    place would be fed its own output. Each is therefore looked at when the next one is asked
    for: once one has changed it is left out, and every later batch is a copy. For a consumer
    that reads ahead, whose step runs late, the first batch of an epoch is handed out as a copy,
    and watched until its turn comes again; what was spoiled before that is found and left out.

    Looking at a whole batch costs too much. An epoch begins with a look at every batch, and then
    all of each one is looked at once. In later passes two tensors of it are, other ones from pass
    to pass, and one array in HANDOUTS_PER_SAMPLE batches.

    `exhausted` tells that the loader had no more batches than these.
    """

    def __init__(self, trees: list[Any], counts: list[Count], *, exhausted: bool) -> None:
        self.exhausted = exhausted
        one_of_each = {count: count for count in counts}  # the hot loop compares by identity
        self._kept = [
            Kept(tree, one_of_each[count]) for tree, count in zip(trees, counts, strict=True)
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
        """Their bytes; None when some are unknown."""
        sizes = [kept.count[1] for kept in self._kept]
        return None if UNKNOWN in sizes else sum(sizes)

    def handouts(self, note: Callable[[str], None]) -> Iterator[Handout]:
        """The batches in turn, without end, each with what must be unchanged before it is used.

        `note` is told, once, of a step that changes its batch in place. Whoever finds a change
        goes on with `copies_from_now_on`.
        """
        return chain.from_iterable(self._stages(note))

    def copies_from_now_on(self, note: Callable[[str], None]) -> Iterator[Handout]:
        """The batches in turn, without end, each in memory of its own."""
        if not self._copying:
            self._copying = True
            note(CHANGED)
            warnings.warn(CHANGED, LoadevalWarning, stacklevel=4)  # where a batch is asked for
        return self._copies()

    def _stages(self, note: Callable[[str], None]) -> Iterator[Iterable[Handout]]:
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
        """As many passes as it takes to look at every tensor; the first batch comes last."""
        most = max(len(kept.watched.pairs) for kept in self._kept)
        order = [*self._kept, self._kept[0]]
        return [
            [
                (kept.fresh, kept.count, *last.watched.pairs[turn % len(last.watched.pairs)])
                for last, kept in pairwise(order)
            ]
            for turn in range(most)
        ]

    def _guarded(self, note: Callable[[str], None]) -> Iterator[Handout]:
        """Once through, and the first again, which was a copy and is watched all the while."""
        original, *others = self._kept
        first = original.copy()
        watch = first.watched.pairs[0]
        yield first.fresh, first.count, *UNWATCHED
        # Watching arrays is cheap and sees most changes; this once they are compared whole.
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
                    yield partial(map_leaves, own, kept.tree), kept.count, *UNWATCHED


def fill(
    adapter: Adapter, loader: Any, counter: Counter, batches: int, max_bytes: int
) -> BatchCache:
    """Keep the first `batches` batches of `loader`, reading no more, and stop its workers.

    Raises CacheError when they take more than `max_bytes`, or when there is none.
    """
    epoch = adapter.epoch(loader)
    trees: list[Any] = []
    counts: list[Count] = []
    total = 0
    try:
        for batch in islice(epoch, batches):
            counts.append(counter.count(batch))
            total += max(counts[-1][1], 0)
            if total > max_bytes:
                raise CacheError(
                    f"{len(counts)} of {batches} batches for replay take {total:,} bytes, over "
                    f"max_cache_bytes={max_bytes:,}; keep {len(trees)} or fewer with "
                    f"num_cached_batches=, or raise max_cache_bytes to some "
                    f"{total * batches // len(counts):,}"
                )
            trees.append(adapter.keep(batch))
            del batch  # its memory is the loader's, which is about to be released
    finally:
        adapter.release(loader, epoch)
    if not trees:
        raise CacheError(
            "the loader gave no batch to keep for replay; a one-shot iterator may be used up: "
            "pass a fresh one, or a callable that returns one"
        )
    return BatchCache(trees, counts, exhausted=len(trees) < batches)
