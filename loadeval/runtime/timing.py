"""The hot loops: for each batch two clock readings, two appends, and its count."""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING, Any, cast

from loadeval.runtime.counting import NOTHING, Count
from loadeval.runtime.stage import chunk_sizes

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sized

    from loadeval.runtime.cache import BatchCache
    from loadeval.runtime.stage import Plan, Stage
    from loadeval.runtime.track import Track


class Epoch(chain[Any]):
    """What a training loop iterates: an epoch that is measured while it is served.

    It goes on after an exception as the loader's own iterator does: a generator is over once it
    has raised, but a chain of generators takes the next one, at no cost for each batch. What is
    read of it besides is read of the loader's iterator.
    """

    _source: Iterator[Any]

    @classmethod
    def of(cls, parts: Iterator[Iterator[Any]], source: Iterator[Any]) -> Epoch:
        """The batches of `parts`, which read them from `source`."""
        epoch = cast("Epoch", cls.from_iterable(parts))
        epoch._source = source  # noqa: SLF001 - its own class
        return epoch

    def __getattr__(self, name: str) -> Any:
        if name == "_source":  # not there yet
            raise AttributeError(name)
        return getattr(self._source, name)

    def __len__(self) -> int:
        return len(cast("Sized", self._source))

    def __bool__(self) -> bool:
        return bool(self._source)


def served(
    plan: Plan,
    source: Iterator[Any],
    begin: Callable[[], Track],
    counter_for: Callable[[Any], Callable[[Any], Count] | None],
    clock: Callable[[], int],
    owner: object,
) -> Epoch:
    """Serve an epoch by `plan`, and note when each batch was requested and delivered.

    `source` is the loader's iterator. `begin` gives the track to write to, once the first batch
    is asked for. `counter_for` makes the counting function from the first batch.
    """
    return Epoch.of(_parts(plan, begin, counter_for, clock, owner), source)


def _parts(
    plan: Plan,
    begin: Callable[[], Track],
    counter_for: Callable[[Any], Callable[[Any], Count] | None],
    clock: Callable[[], int],
    owner: object,  # noqa: ARG001 - held, so that its log stays open while an epoch is served
) -> Iterator[Iterator[Any]]:
    """The parts of an epoch: a new one follows each exception, and in the end what is unmeasured.

    This ends when the Epoch is dropped, at the latest: an exception after which nobody asked for
    another batch has then ended the epoch.
    """
    track = begin()
    serving = Serving(plan, track, counter_for, clock)
    try:
        while not serving.over:
            yield serving.part()
    finally:
        if track.failure is not None:
            track.end_failed()
    if plan.rest is not None:
        yield plan.rest


class Serving:
    """One epoch being served, and where an exception of the loader has interrupted it."""

    def __init__(
        self,
        plan: Plan,
        track: Track,
        counter_for: Callable[[Any], Callable[[Any], Count] | None],
        clock: Callable[[], int],
    ) -> None:
        self.over = False
        self._plan = plan
        self._track = track
        self._clock = clock
        self._stages = plan.stages(track.epoch)
        self._stage: Stage | None = None
        self._first = First(track, counter_for)
        self._count: Callable[[Any], Count] | None = self._first
        self._request = clock()
        self._waiting = False

    def part(self) -> Generator[Any, None, None]:
        """The batches up to the next exception, which passes through, or to the end."""
        track, clock, count = self._track, self._clock, self._count
        request, waiting, resumed = self._request, self._waiting, track.failure is not None
        track.resume()
        try:
            while (stage := self._stage or self._begun()) is not None:
                if resumed:  # what is asked for was asked for before the exception
                    resumed = False
                elif stage.since_ns is not None:
                    request = stage.since_ns
                elif not waiting:
                    request = clock()
                marks, counts = stage.marks, stage.counts
                current = counts[-1][1]
                for batch in islice(track.watched(stage.source), stage.size - stage.served):
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
                count = self._first.count
                stage.asked_ns = request
                waiting = stage.fell_short or not stage.served  # for what this stage did not have
                self._stage = None
        except GeneratorExit:
            self.over = True
            self._stages.close()
            track.end("broken off")
            raise
        except BaseException as error:
            self._count, self._request, self._waiting = count, request, waiting
            self._interrupted(error)
            raise
        self._finish(request)

    def _interrupted(self, error: BaseException) -> None:
        if self._stage is not None:
            del self._stage.marks[2 * self._stage.served :]  # of a batch that Ctrl-C caught
        self._track.failed(self._request, self._clock(), error)

    def _finish(self, request: int) -> None:
        self.over = True
        asked = request if self._plan.asked_ns is None else self._plan.asked_ns
        if self._plan.rest is None:
            self._track.end("exhausted", asked, self._clock())
        else:
            self._track.end("unmeasured", asked, asked)

    def _begun(self) -> Stage | None:
        """The next stage, with a chunk of its own to be noted in."""
        try:
            stage = next(self._stages, None)
        except BaseException:
            self._plan.rest = self._plan.remainder()
            raise
        if stage is not None:
            stage.marks, stage.counts = self._track.next_chunk(stage.arm, stage.pair)
            stage.counts.append((0, NOTHING))
            self._stage = stage
        return stage


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
