"""Batches kept for replay: filled from a loader, handed out again and again, never spoiled."""

from __future__ import annotations

import warnings
from itertools import chain, cycle, islice, repeat
from typing import TYPE_CHECKING, Any

from loadeval.errors import CacheError, LoadevalWarning
from loadeval.measure.ownership import Watch, own, same_arrays
from loadeval.measure.tree import leaves, map_leaves, refresher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from loadeval.measure.adapter import Adapter

CHANGED = (
    "the training step changes its batch in place, so replay would feed it its own output: "
    "from here on each replayed batch is a copy, and the cost of copying is in the ideal pace"
)


class Kept:
    """One kept batch; `fresh()` returns it in new containers."""

    __slots__ = ("fresh", "tree", "watch")

    def __init__(self, tree: Any) -> None:
        self.tree = tree
        self.fresh = refresher(tree)
        self.watch = Watch(list(leaves(tree)))

    def copy(self) -> Kept:
        """The same batch in memory of its own."""
        return Kept(map_leaves(own, self.tree))


class BatchCache:
    """Batches that replay hands out in turn.

    A batch that is handed out shares its arrays with the kept one, so a step that works in
    place would be fed its own output. The very first batch is therefore handed out as a copy,
    and watched: once it changes, every later batch is a copy. A step that runs late, behind a
    consumer that reads ahead, may still spoil batches handed out before that: those are found
    when their turn comes again, and left out.

    `exhausted` tells that the loader had no more batches than these.
    """

    def __init__(self, trees: list[Any], *, exhausted: bool) -> None:
        self.exhausted = exhausted
        self._kept = [Kept(tree) for tree in trees]
        self._guarded_once = False
        self._copying = False

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def batches(self) -> list[Any]:
        """The kept batches themselves."""
        return [kept.tree for kept in self._kept]

    def replay(self, batches: int | None, note: Callable[[str], None]) -> Iterator[Any]:
        """Hand out `batches` of them (None: without end).

        `note` is told, once, of a step that changes its batch in place.
        """
        stages = self._guarded(note), self._quick(note), self._copies()
        return islice(chain.from_iterable(stages), batches)

    def _guarded(self, note: Callable[[str], None]) -> Iterator[Any]:
        if self._guarded_once:
            return
        self._guarded_once = True
        original, *others = list(self._kept)
        first = original.copy()
        yield first.fresh()
        # Watching an array is cheap and sees most changes; this once, it is compared whole.
        if not same_arrays(list(leaves(first.tree)), list(leaves(original.tree))):
            self._copy_from_now_on(note)
        for kept in others:
            if not self._copying and first.watch.changed():
                self._copy_from_now_on(note)
            if self._copying:
                return
            yield kept.fresh()

    def _quick(self, note: Callable[[str], None]) -> Iterator[Any]:
        if self._copying:
            return
        for kept in cycle(self._kept):
            watch = kept.watch
            for tensor, version in watch.tensors:
                if tensor._version != version:  # noqa: SLF001 - see Watch
                    self._copy_from_now_on(note)
                    return
            if watch.arrays and watch.changed():
                self._copy_from_now_on(note)
                return
            yield kept.fresh()

    def _copies(self) -> Iterator[Any]:
        for kept in chain.from_iterable(map(list, repeat(self._kept))):
            if len(self._kept) > 1 and kept.watch.changed():
                self._kept.remove(kept)
            else:
                yield map_leaves(own, kept.tree)

    def _copy_from_now_on(self, note: Callable[[str], None]) -> None:
        self._copying = True
        note(CHANGED)
        warnings.warn(CHANGED, LoadevalWarning, stacklevel=4)  # where the batch is asked for


def fill(adapter: Adapter, loader: Any, batches: int, max_bytes: int) -> BatchCache:
    """Keep the first `batches` batches of `loader`, reading no more, and stop its workers.

    Raises CacheError when they take more than `max_bytes`, or when there is none.
    """
    epoch = adapter.epoch(loader)
    trees = []
    total = 0
    try:
        for batch in islice(epoch, batches):
            total += adapter.nbytes(batch) or 0
            if total > max_bytes:
                raise CacheError(
                    f"{len(trees) + 1} of {batches} batches for replay take {total:,} bytes, over "
                    f"max_cache_bytes={max_bytes:,}; lower num_cached_batches or raise "
                    "max_cache_bytes"
                )
            trees.append(adapter.keep(batch))
            del batch  # its memory is the loader's, and the loader is about to be released
    finally:
        adapter.release(loader, epoch)
    if not trees:
        raise CacheError(
            "the loader gave no batch to keep for replay; a one-shot iterator may be used up: "
            "pass a fresh one, or a callable that returns one"
        )
    return BatchCache(trees, exhausted=len(trees) < batches)
