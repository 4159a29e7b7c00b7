"""The hot loop: two clock readings, two appends and a count for each batch."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from loadeval.measure.track import Track

CHUNK = 1024
"""Batches between two looks at anything but the clock."""


def timed(
    iterator: Iterator[Any],
    begin: Callable[[], Track],
    clock: Callable[[], int],
    opened_ns: int,
    owner: object,  # noqa: ARG001 - held, so that its log stays open while an epoch is served
) -> Iterator[Any]:
    """Serve `iterator`, and note when each batch was requested and delivered.

    `begin` gives the track to write to, once the first batch is asked for. `opened_ns`, the
    time that opening the iterator took, counts as part of the first wait.
    """
    track = begin()
    count = None
    request = clock()
    try:
        while True:
            marks, counts = track.next_chunk()
            current = None
            request = clock() - opened_ns
            opened_ns = 0
            for batch in islice(iterator, CHUNK):
                deliver = clock()
                if count is None:
                    count = track.keeper.first_batch(batch)
                counted = count(batch)
                if counted is not current:
                    current = counted
                    counts.append((len(marks) // 2, counted))
                marks.append(request)
                marks.append(deliver)
                yield batch
                request = clock()
            if len(marks) < 2 * CHUNK:
                break
    except GeneratorExit:
        track.end("broken off")
        raise
    except BaseException as error:
        track.end("failed", request, clock(), error)
        raise
    track.end("exhausted", request, clock())
