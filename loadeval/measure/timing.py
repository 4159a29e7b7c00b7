"""The hot loops: for each batch two clock readings, two appends, and its count."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from loadeval.measure.counting import NOTHING, Count
from loadeval.measure.ownership import changed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from loadeval.measure.cache import BatchCache
    from loadeval.measure.track import Track

CHUNK = 2048
"""Batches between two looks at anything but the clock."""


def logged(
    iterator: Iterator[Any],
    begin: Callable[[], Track],
    counter_for: Callable[[Any], Callable[[Any], Count] | None],
    clock: Callable[[], int],
    opened_ns: int,
    owner: object,  # noqa: ARG001 - held, so that its log stays open while an epoch is served
) -> Iterator[Any]:
    """Serve `iterator`, and note when each batch was requested and delivered.

    `begin` gives the track to write to, once the first batch is asked for. `counter_for` makes
    the counting function from the first batch. `opened_ns`, the time that opening the iterator
    took, counts as part of the first wait.
    """
    track = begin()
    first = First(track, counter_for)
    count: Callable[[Any], Count] | None = first
    size = 1
    request = clock()
    try:
        while True:
            marks, counts = track.next_chunk()
            counts.append((0, NOTHING))
            current = NOTHING
            request = clock() - opened_ns
            opened_ns = 0
            for batch in islice(iterator, size):
                deliver = clock()
                if count is not None:
                    counted = count(batch)
                    if counted is not current:
                        current = counted
                        counts.append((len(marks) // 2, counted))
                marks.append(request)
                marks.append(deliver)
                yield batch
                request = clock()
            if len(marks) < 2 * size:
                break
            count = first.count
            size = CHUNK
    except GeneratorExit:
        track.end("broken off")
        raise
    except BaseException as error:
        track.end("failed", request, clock(), error)
        raise
    track.end("exhausted", request, clock())


class First:
    """Counts an epoch's first batch, and finds in `count` how to count those after it."""

    def __init__(
        self, track: Track, counter_for: Callable[[Any], Callable[[Any], Count] | None]
    ) -> None:
        self.track = track
        self.counter_for = counter_for
        self.count: Callable[[Any], Count] | None = None

    def __call__(self, batch: Any) -> Count:
        """The Count of the first batch."""
        self.track.started()
        self.count = self.counter_for(batch)
        return NOTHING if self.count is None else self.count(batch)


def replayed(
    cache: BatchCache,
    batches: float,
    begin: Callable[[], Track],
    clock: Callable[[], int],
    note: Callable[[str], None],
    owner: object,  # noqa: ARG001 - as above
) -> Iterator[Any]:
    """Serve `batches` kept ones (math.inf: without end), in turn, noted as `logged` does.

    `note` is told when the step is found to change its batches in place.
    """
    track = begin()
    track.started()
    order = cache.handouts(note)
    try:
        while batches > 0:
            marks, counts = track.next_chunk()
            current = None
            size = int(min(CHUNK, batches))
            request = clock()
            for fresh, counted, one, version, other, other_version, others in islice(order, size):
                if (
                    one._version != version  # noqa: SLF001 - see Watch
                    or other._version != other_version  # noqa: SLF001
                    or (others and changed(others))
                ):
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
            batches -= len(marks) // 2
    except BaseException:  # nearly always GeneratorExit: a cache gives no errors of its own
        track.end("broken off")
        raise
    track.end("exhausted", request, clock())
