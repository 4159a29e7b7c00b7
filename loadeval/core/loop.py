"""The hot loop: two clock readings and a count for each batch of an epoch."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sized
from itertools import chain, islice, repeat
from typing import Any, Protocol, cast

from loadeval.adapter import begun
from loadeval.core.annotate import Annotation, annotated
from loadeval.core.recorder import Count, OpenEpoch, Span
from loadeval.data.lines import Cause
from loadeval.errors import Guard, is_of_a_signal, of_the_loader

CHUNK = 4096
"""For so many batches in a row, at most, the hot loop only reads the clock and counts."""
CHUNK_GROWTH = 8
"""The first chunks of an epoch grow by this factor."""
SEVERAL_THREADS = "epoch {}: several threads read it at once, so what they read is not measured"
MISSING = object()
"""In the place of a batch that has not come, or of its mark; None is a batch like any other."""


Spans = Generator[Span, None, None]
Hot = tuple[Iterator[Any], Callable[[Any], Any], Any, list[int], Callable[[], int]]
"""What the hot loop reads of a span: its batches, what tells the mark of one, the mark of the batch
before, where times are noted, and the clock. Batches of one mark are counted alike."""


class Counting(Protocol):
    """Counts batches. Those with the `mark` of the last one are like it.

    Of `period` batches in a row one is counted by itself, to be sure.
    """

    mark: Any
    period: int

    def mark_of(self, batch: Any, /) -> Any:
        """What tells batches that are alike."""

    def count(self, batch: Any, mark: Any, *, is_due: bool) -> Count:
        """The Count of a batch of that mark; None is not known. From then on it is `mark`."""


class EpochPlan(Protocol):
    """How an epoch is served: in spans, and what is left of it afterwards unmeasured.

    `rest` is None when the spans end with the epoch. `asked_ns` is when the first batch after the
    spans was asked for, if that was before the hot loop heard of it.
    """

    rest: Iterator[Any] | None = None
    asked_ns: int | None = None

    def spans(self, epoch: int) -> Spans:
        """The spans of epoch number `epoch`; each was served when the next one is asked for."""

    def remainder(self) -> Iterator[Any]:
        """What is left to serve if the spans are broken off; several threads may read it."""


def chunk_sizes() -> Iterator[int]:
    """Batches in each chunk of an epoch: one, and then more and more, CHUNK at most.

    So whatever waits for a chunk's end waits at most a few times as long as the epoch has lasted,
    whether its batches are fast or slow.
    """
    size = 1
    while True:
        yield size
        size = min(size * CHUNK_GROWTH, CHUNK)


def not_known(_batch: Any) -> None:
    """The mark of a batch that is counted whatever it is."""


class RealEpoch(EpochPlan):
    """All of `source`, in chunks.

    `opened_ns`, the time that opening the source took, counts as part of the first wait. Where
    `source` has more than `most` batches, what `then` returns follows those; None is nothing.
    """

    def __init__(
        self,
        source: Iterator[Any],
        clock: Callable[[], int],
        opened_ns: int,
        most: float = math.inf,
        then: Callable[[], Iterator[Any] | None] = lambda: None,
    ) -> None:
        self._source, self._clock, self._opened_ns = source, clock, opened_ns
        self._most, self._then = most, then

    def spans(self, epoch: int) -> Spans:  # noqa: ARG002 - see EpochPlan
        """See EpochPlan."""
        since_ns: int | None = self._clock() - self._opened_ns
        left = self._most
        for size in chunk_sizes():
            span = Span(self._source, int(min(size, left)), since_ns=since_ns)
            yield span
            since_ns = None
            left -= span.served
            if span.fell_short:
                return
            if not left:
                self.rest = self._then()
                return

    def remainder(self) -> Iterator[Any]:
        """See EpochPlan."""
        return self._source


class MeasuredEpoch(map):  # type: ignore[type-arg]  # of anything
    """What a training loop iterates: a Serving, and what else is read of the loader's iterator.

    A Serving that had `__getattr__` itself would be slower at its own attributes.
    """

    _source: Iterator[Any]

    def __getattr__(self, name: str) -> Any:
        if name == "_source":  # not there yet, as in what is being copied
            raise AttributeError(name)
        return getattr(self._source, name)

    def __len__(self) -> int:
        return len(cast("Sized", self._source))

    def __bool__(self) -> bool:
        return bool(self._source)


def served(serving: Serving, source: Iterator[Any]) -> MeasuredEpoch:
    """An epoch of the loader's iterator `source`, as `serving` serves it."""
    epoch = MeasuredEpoch(Serving.__next__, repeat(serving))
    epoch._source = source  # noqa: SLF001 - only here
    return epoch


class Left:
    """It goes after the loader's iterator of an epoch that training has left: then that has ended.

    None of our functions runs while the iterator ends: what it raises and warns of is not ours.
    """

    def __init__(
        self, epoch: OpenEpoch, clock: Callable[[], int], guard: Guard, owner: object
    ) -> None:
        self._epoch, self._clock, self._guard, self._owner = epoch, clock, guard, owner
        self._left_ns = clock()

    def __del__(self) -> None:
        with self._guard:
            self._epoch.end("broken off", self._left_ns, self._clock())


class Serving:
    """One epoch, served by `plan`, and measured: when each batch was asked for, and when it came.

    `begin` gives the OpenEpoch to note it in, once the first batch is asked for. `counting_for`
    makes the Counting from the first batch. `owner` is held, so that its log stays open.
    Where there is an `annotation`, a profiler's ranges are around waits and steps.

    What fails in here trips `guard`. Once that has tripped, here or elsewhere, the rest of the
    epoch is served unmeasured; it is too where a batch is asked for while another one is waited
    for, by a second thread or a signal's handler. What the loader raises passes, and the next call
    asks the loader again.
    """

    _is_over = True

    def __init__(
        self,
        plan: EpochPlan,
        begin: Callable[[], OpenEpoch],
        counting_for: Callable[[Any], Counting],
        clock: Callable[[], int],
        owner: object,
        guard: Guard,
        annotation: Annotation | None,
    ) -> None:
        self._plan, self._begin, self._counting_for = plan, begin, counting_for
        self._clock, self._owner, self._guard = clock, owner, guard
        self._annotation = annotation
        self._epoch: OpenEpoch | None = None
        self._spans: Spans | None = None
        self._span: Span | None = None
        self._source: Iterator[Any] = iter(())  # what the span has left
        self._counting: Counting | None = None  # from the first batch on
        self._due = 0  # the number of the batch in the epoch that is counted by itself next
        self._until = -1  # so many batches of the span come before it
        self._is_loaders = False  # what is raised now
        self._between_spans: Hot = (iter(()), not_known, MISSING, [], clock)
        self._hot: Hot | None = self._between_spans
        """None while a batch is asked for, and where nothing is measured any more."""
        self._next_hot: Hot | None = self._hot
        # What an exception has left: when the batch was asked for that is to come, or the batch.
        self._is_interrupted = False
        self._asked_ns: int | None = None
        self._unserved: deque[Any] = deque()
        self._rest: Iterator[Any] = iter(())
        self._is_shared = self._is_over = False

    def __next__(self) -> Any:
        hot = self._hot
        self._hot = None  # before a jump, at which Python may let another thread in here
        if hot is None:
            return self._next_unmeasured()
        request: int | None = None
        batch: Any = MISSING
        try:
            batches, mark_of, before, marks, clock = hot
            request = clock()
            while True:
                for batch in batches:
                    deliver = clock()
                    try:
                        mark = mark_of(batch)
                        is_alike = mark == before
                    except Exception as error:  # a batch of another structure fails in its own way
                        if is_of_a_signal(error):
                            raise
                        mark = is_alike = None
                    if is_alike is not True:
                        self._count(batch, mark, None if before is MISSING else batches)
                    marks.append(request)
                    marks.append(deliver)
                    self._hot = self._next_hot
                    return batch
                self._is_loaders = False
                opened = self._go_on(request)
                if opened is None:
                    break
                request, (batches, mark_of, before, marks, clock) = opened
        except BaseException as error:
            if not self._ends(error, request, batch):
                raise
        return self._next_unmeasured()

    def _count(self, batch: Any, mark: Any, batches: Iterator[Any] | None) -> None:
        """Count the batch that has come, and those that are like it.

        `batches` are those that follow before one is due; None has to be found.
        """
        span, counting = cast("Span", self._span), self._counting
        if counting is None:
            cast("OpenEpoch", self._epoch).started(batch)
            counting = self._counting = self._counting_for(batch)
        number = span.first + span.served
        is_due = number >= self._due
        counted = counting.count(batch, mark, is_due=is_due)
        if counted is not span.counts[-1][1]:
            span.counts.append((span.served, counted))
        if is_due or counting.period == 1:
            self._due, batches = number + counting.period, None
        if batches is None:
            count = min(span.size - span.served, self._due - number)
            self._until = span.served + count
            batches = islice(self._source, count - 1)
        if not self._is_shared:
            self._next_hot = batches, counting.mark_of, counting.mark, span.marks, self._clock

    def _go_on(self, request: int) -> tuple[int, Hot] | None:  # noqa: C901 - one way through
        """Go on with the span after an exception, or to the next one.

        Returns when the next batch was asked for, and where the hot loop finds it; None at the end
        of all spans.
        """
        epoch = self._epoch = self._epoch or self._begin()
        if self._spans is None:
            self._spans = self._plan.spans(epoch.number)
        interrupted, self._is_interrupted = self._is_interrupted, False
        is_waiting = interrupted  # since the request
        if interrupted:
            epoch.failure = None
            request = request if self._asked_ns is None else self._asked_ns
        elif self._span is not None and self._span.served == self._until < self._span.size:
            return self._clock(), self._to_count(self._span)
        elif self._span is not None:
            done, self._span = self._span, None
            done.asked_ns = request
            self._source = iter(())
            if epoch.gpu_idle is not None:
                epoch.gpu_idle.end_step()
            is_waiting = done.fell_short or not done.served  # for what it did not have
        if self._span is None:
            self._span = self._next_span(epoch)
            if self._span is None:
                plan = self._plan
                asked_ns = max(request, plan.asked_ns or request)  # that of one left off is older
                if plan.rest is None and not self._is_shared:
                    plan.rest = iter(())
                    self._end("exhausted", asked_ns, self._clock())
                else:
                    self._end("unmeasured", asked_ns, asked_ns)
                return None
            if self._span.since_ns is not None and not interrupted:
                request = self._span.since_ns
            elif not is_waiting:
                request = self._clock()
        return request, self._opened(self._span, epoch)

    def _next_span(self, epoch: OpenEpoch) -> Span | None:
        """The next span; None at the end of all, or where nothing is measured any more."""
        if self._guard.has_tripped:
            self._plan.rest = self._plan.remainder()
            return None
        try:
            span = next(cast("Spans", self._spans), None)
        except BaseException:
            self._plan.rest = self._plan.remainder()
            raise
        if span is not None:
            epoch.begin(span)
        return span

    def _opened(self, span: Span, epoch: OpenEpoch) -> Hot:
        batches = begun(span.source)
        if self._annotation is not None:
            batches = annotated(batches, span.arm, self._annotation)
        if epoch.gpu_idle is not None:
            batches = epoch.gpu_idle.watched(batches)
        unserved, self._unserved = self._unserved, deque()
        self._source = chain(unserved, batches) if unserved else batches
        return self._to_count(span)

    def _to_count(self, span: Span) -> Hot:
        """The next batch of a span, which is counted whatever the one before was."""
        self._next_hot = None  # with what is around its batches the step ends
        self._until = -1
        epoch = cast("OpenEpoch", self._epoch)
        batch = islice(self._source, min(span.size - span.served, 1))
        # What is around the batches notes itself what the loader raises.
        self._is_loaders = not (span.is_ours or self._annotation or epoch.gpu_idle)
        return batch, not_known, MISSING, span.marks, self._clock

    def _ends(self, error: BaseException, request: int | None, batch: Any) -> bool:
        """Whether `error` is ours: what is left is served without us then.

        Else it is the program's, and what was asked for is to be served by the next call.
        """
        if batch is not MISSING:
            self._unserved.append(batch)
        elif self._is_loaders and request is not None:
            of_the_loader(error)
        if self._guard.ends(error):
            with self._guard:
                self._end("unmeasured")
            return True
        self._is_loaders, self._is_interrupted, self._asked_ns = False, True, request
        if not self._is_shared:
            self._hot = self._between_spans
        with self._guard:
            if self._span is not None:  # of a batch that Ctrl-C caught
                marks = self._span.marks
                if len(marks) % 2:
                    marks.pop()
                elif batch is not MISSING and marks[-2:-1] == [request]:
                    del marks[-2:]
            if self._epoch is not None and request is not None:
                self._epoch.failed(request, self._clock(), error)
        return False

    def _end(self, cause: Cause, asked_ns: int | None = None, now_ns: int | None = None) -> None:
        """Measure no more, once."""
        if self._is_over:
            return
        self._is_over, self._hot, self._next_hot = True, None, None
        if not self._is_shared:  # else several threads read what is left already
            self._rest = self._plan.remainder() if self._plan.rest is None else self._plan.rest
        if self._spans is not None:
            self._spans.close()
        if self._epoch is not None and cause == "broken off":
            for span in list(self._epoch.spans):
                span.source = iter(())  # so that the loader's iterator ends with this object
            # Attributes go in the order in which they came.
            self._goes_last = Left(self._epoch, self._clock, self._guard, self._owner)
        elif self._epoch is not None:
            self._epoch.end(cause, asked_ns, now_ns)

    def _next_unmeasured(self) -> Any:
        """A batch for one of several threads, or of an epoch that is not measured any more."""
        if not (self._is_over or self._is_shared):
            with self._guard:
                self._share()
        try:
            return self._unserved.popleft()
        except IndexError:
            pass
        try:
            return next(self._rest)
        except StopIteration:
            if self._is_over:  # else who is in here may have taken batches ahead
                self._rest = iter(())
            raise

    def _share(self) -> None:
        """Serve what is left to several threads; one that is in here still measures its batch.

        Two that come at once both do it: their remainders are of the same batches.
        """
        self._rest = self._plan.remainder()
        self._is_shared, self._next_hot = True, None
        if self._epoch is not None:
            self._epoch.recorder.note(SEVERAL_THREADS.format(self._epoch.number))

    def __del__(self) -> None:
        """Who drops an epoch has broken it off."""
        if not self._is_over:
            with self._guard:
                self._end("unmeasured" if self._is_shared else "broken off")
