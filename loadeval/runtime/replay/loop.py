"""The hot loop of replay: kept batches, handed out and timed as those of a loader are."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from loadeval.core.loop import chunk_sizes

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from loadeval.core.recorder import OpenEpoch
    from loadeval.errors import Guard
    from loadeval.runtime.replay.cache import BatchCache


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
            for fresh, counted, tensor, version, other_tensor, other_version in islice(order, size):
                if tensor._version != version or other_tensor._version != other_version:  # noqa: SLF001 - it has no public name
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
