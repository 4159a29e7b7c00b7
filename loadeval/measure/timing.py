"""The hot loops: for each batch two clock readings, two appends, and its count."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from loadeval.measure.counting import NOTHING, Count
from loadeval.measure.stage import chunk_sizes

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from loadeval.measure.cache import BatchCache
    from loadeval.measure.stage import Plan
    from loadeval.measure.track import Track


def served(
    plan: Plan,
    begin: Callable[[], Track],
    counter_for: Callable[[Any], Callable[[Any], Count] | None],
    clock: Callable[[], int],
    owner: object,  # noqa: ARG001 - held, so that its log stays open while an epoch is served
) -> Generator[Any, None, None]:
    """Serve an epoch by `plan`, and note when each batch was requested and delivered.

    `begin` gives the track to write to, once the first batch is asked for. `counter_for` makes
    the counting function from the first batch.
    """
    track = begin()
    stages = plan.stages(track.epoch)
    first = First(track, counter_for)
    count: Callable[[Any], Count] | None = first
    request = clock()
    waiting = False
    try:
        for stage in stages:
            marks, counts = track.next_chunk(stage.arm, stage.pair)
            stage.marks = marks
            counts.append((0, NOTHING))
            current = NOTHING
            if stage.since_ns is not None:
                request = stage.since_ns
            elif not waiting:
                request = clock()
            for batch in islice(track.watched(stage.source), stage.size):
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
            count = first.count
            stage.asked_ns = request
            waiting = stage.fell_short or not stage.served  # for what this stage did not have
    except GeneratorExit:
        stages.close()
        track.end("broken off")
        raise
    except BaseException as error:
        track.end("failed", request, clock(), error)
        raise
    if plan.rest is None:
        track.end("exhausted", request, clock())
    else:
        asked = request if plan.asked_ns is None else plan.asked_ns
        track.end("unmeasured", asked, asked)
        yield from plan.rest


class First:
    """Counts an epoch's first batch, and finds in `count` how to count those after it."""

    def __init__(
        self, track: Track, counter_for: Callable[[Any], Callable[[Any], Count] | None]
    ) -> None:
        self.track = track
        self.counter_for = counter_for
        self.count: Callable[[Any], Count] | None = None

    def __call__(self, batch: Any) -> Count:
        """The Count of `batch`."""
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
) -> Generator[Any, None, None]:
    """Serve `batches` kept ones (math.inf: without end), in turn, noted as `served` does.

    `note` is told when the step is found to change its batches in place.
    """
    track = begin()
    track.started()
    order = cache.handouts(note)
    sizes = chunk_sizes()
    try:
        while batches > 0:
            marks, counts = track.next_chunk("ideal")
            current = None
            size = int(min(next(sizes), batches))
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
            batches -= len(marks) // 2
    except BaseException:  # nearly always GeneratorExit: a cache gives no errors of its own
        track.end("broken off")
        raise
    track.end("exhausted", request, clock())
