"""The hot loop: two clock readings and a count for each batch of the spans that it serves."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Protocol

from loadeval.runtime.adapter import begun
from loadeval.runtime.guard import UNGUARDED, of_the_loader
from loadeval.runtime.recording.chunk import NOTHING, Count
from loadeval.runtime.serving.epoch_iterators import MeasuredEpoch, SharedEpoch

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from loadeval.data.lines import Arm, Cause
    from loadeval.runtime.guard import Guard
    from loadeval.runtime.recording.recorder import OpenEpoch

    Spans = Generator["Span", None, None]

CHUNK = 4096
"""After so many batches, at most, the loop does more than to read the clock and count."""
CHUNK_GROWTH = 8
"""The first chunks of an epoch grow by this factor."""


@dataclass(slots=True)
class Span:
    """At most `size` batches of `source`.

    `since_ns` is when the first of them was asked for; None is now, or when the span before was
    asked for a batch that it did not have. `marks` and `counts` are those of its Chunk, where the
    hot loop notes its batches; `asked_ns`, once it was served, is when the next one was asked for.
    What `source` raises is the loader's own; where the source `is_ours`, it notes what is.
    """

    source: Iterator[Any]
    size: int
    arm: Arm = "real"
    pair: int | None = None
    since_ns: int | None = None
    is_ours: bool = False
    instrumented: bool = False
    marks: list[int] = field(default_factory=list)
    counts: list[tuple[int, Count]] = field(default_factory=list)
    asked_ns: int = 0

    @property
    def served(self) -> int:
        """How many batches were served."""
        return len(self.marks) // 2

    @property
    def fell_short(self) -> bool:
        """Whether `source` had fewer batches."""
        return self.served < self.size


def chunk_sizes() -> Iterator[int]:
    """Batches in each chunk of an epoch: one, and then more and more, CHUNK at most.

    So whatever waits for a chunk's end waits at most a few times as long as the epoch has lasted,
    whether its batches are fast or slow.
    """
    size = 1
    while True:
        yield size
        size = min(size * CHUNK_GROWTH, CHUNK)


def restarting(batches: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    """The batches of the generator that `batches` makes, and of another one after an exception.

    A generator ends when it raises. A chain of generators can continue, if the loader does.
    """
    has_ended: list[bool] = []

    def noting_its_end() -> Iterator[Any]:
        yield from batches()
        has_ended.append(True)

    def parts() -> Iterator[Iterator[Any]]:
        while not has_ended:
            yield noting_its_end()

    return chain.from_iterable(parts())


class Remaining:
    """What is left of an epoch of which batches were taken ahead; several threads may read it.

    Those that are `held`, then what the loader raised after them, of `errors` that is one at most,
    and then what its iterator, `source`, still gives.
    """

    def __init__(self, source: Iterator[Any]) -> None:
        self.source = source
        self.held: deque[Any] = deque()
        self.errors: deque[Exception] = deque()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            return self.held.popleft()
        except IndexError:
            self.raise_error()
        return next(self.source)

    def raise_error(self) -> None:
        """Raise what the loader raised, if it did, once."""
        if self.errors:
            error = self.errors.popleft()
            of_the_loader(error)
            raise error


class EpochPlan(Protocol):
    """How an epoch is served: in spans, and what is left of it afterwards unmeasured.

    `rest` is None when the spans end with the epoch. `asked_ns` is when the batch was asked for
    that no span has; None if the hot loop knows best.
    """

    rest: Iterator[Any] | None
    asked_ns: int | None

    def spans(self, epoch: int) -> Spans:
        """The spans of epoch number `epoch`; each was served when the next one is asked for."""

    def remainder(self) -> Iterator[Any]:
        """What is left to serve if the spans are broken off; several threads may read it."""


class RealEpoch:
    """All of `source`: its first batch, by which counting is chosen, and chunks of the others.

    `opened_ns`, the time that opening the source took, counts as part of the first wait. Where
    `source` has more than `most` batches, what `then` returns follows those; None is nothing.
    """

    asked_ns: int | None = None

    def __init__(
        self,
        source: Iterator[Any],
        clock: Callable[[], int],
        opened_ns: int,
        most: float = math.inf,
        then: Callable[[], Iterator[Any] | None] | None = None,
    ) -> None:
        self.rest: Iterator[Any] | None = None
        self._source = begun(source)
        self._clock = clock
        self._opened_ns = opened_ns
        self._most = most
        self._then = then

    def spans(self, epoch: int) -> Spans:  # noqa: ARG002 - see EpochPlan
        """See EpochPlan."""
        since_ns: int | None = self._clock() - self._opened_ns
        left, sizes, is_over = self._most, chunk_sizes(), False
        while left and not is_over:
            span = Span(self._source, int(min(next(sizes), left)), since_ns=since_ns)
            yield span
            since_ns = None
            left -= span.served
            is_over = span.fell_short
        if self._then is not None and not left:
            self.rest = self._then()

    def remainder(self) -> Iterator[Any]:
        """See EpochPlan."""
        return self._source


def served(  # noqa: PLR0913 - nearly all by keyword
    plan: EpochPlan,
    source: Iterator[Any],
    begin: Callable[[], OpenEpoch],
    counter_for: Callable[[Any], Callable[[Any], Count] | None],
    clock: Callable[[], int],
    owner: object,
    *,
    annotate: Callable[[Spans], Spans] | None = None,
    guard: Guard = UNGUARDED,
    shared: bool = False,
) -> MeasuredEpoch:
    """Serve an epoch by `plan`, and note when each batch was requested and delivered.

    `source` is the loader's iterator. `begin` gives the OpenEpoch to note it in, once the first
    batch is asked for. `counter_for` makes the counting function from the first batch. `owner` is
    held, so that its log stays open. `annotate` puts ranges around the spans. What fails in here
    trips `guard`; then, or if it tripped elsewhere, the rest of the epoch is served unmeasured.
    Where it is `shared` any number of threads may read it.
    """
    serving = _Serving(plan, begin, counter_for, clock, owner, annotate, guard)
    if shared:
        return SharedEpoch.shared(serving.parts(), source, serving.share)
    return MeasuredEpoch.of(serving.parts(), source)


SEVERAL_THREADS = "epoch {}: several threads read it at once, so what they read is not measured"


@dataclass(eq=False)
class _Serving:
    """One epoch being served, and where an exception of the loader has interrupted it."""

    _plan: EpochPlan
    _begin: Callable[[], OpenEpoch]
    _counter_for: Callable[[Any], Callable[[Any], Count] | None]
    _clock: Callable[[], int]
    _owner: object
    _annotate: Callable[[Spans], Spans] | None
    _guard: Guard
    _epoch: OpenEpoch | None = None
    _spans: Spans | None = None
    _count: Callable[[Any], Count] | None = None
    _span: Span | None = None
    _request: int = 0
    _unserved: list[Any] = field(default_factory=list)
    _waiting: bool = False
    _over: bool = False
    _is_shared: bool = False

    def share(self) -> Iterator[Any]:
        """What is left, for several threads."""
        self._is_shared = True
        return self._plan.remainder()

    def parts(self) -> Iterator[Iterator[Any]]:
        """The parts of an epoch: a new one follows each exception; at the end what is unmeasured.

        This ends when the MeasuredEpoch is dropped, at the latest: an exception after which nobody
        asked for another batch has then ended the epoch.
        """
        try:
            while not self._over:
                yield self._part()
                unserved, self._unserved = self._unserved, []
                yield iter(unserved)
        finally:
            with self._guard:
                if self._epoch is not None:
                    self._epoch.end_failed()
        if self._plan.rest is not None:
            yield self._plan.rest

    def _part(self) -> Generator[Any, None, None]:  # noqa: C901, PLR0912, PLR0915 - no call for each batch
        """The batches up to the next exception, which passes through, or to the end."""
        is_ours, clock = True, self._clock
        request, waiting = self._request, self._waiting
        try:
            epoch = self._epoch
            if epoch is None:
                epoch = self._opened()
                request = self._request
            count = self._count if epoch.has_batches else partial(self._count_first, epoch)
            resumed = epoch.failure is not None
            epoch.resume()
            while (span := self._span or self._next_span(epoch)) is not None:
                if resumed:  # what is asked for was asked for before the exception
                    resumed = False
                elif span.since_ns is not None:
                    request = span.since_ns
                elif not waiting:
                    request = clock()
                marks, counts = span.marks, span.counts
                current = counts[-1][1]
                batches = islice(epoch.watched(span.source), span.size - span.served)
                is_ours = span.is_ours or epoch.gpu_idle is not None
                for batch in batches:
                    try:
                        deliver = clock()
                        if count is not None:
                            counted = count(batch)
                            if counted is not current:
                                current = counted
                                counts.append((len(marks) // 2, counted))
                        marks.append(request)
                        marks.append(deliver)
                    except BaseException:
                        is_ours, self._unserved = True, [batch]
                        raise
                    yield batch
                    try:
                        request = clock()
                    except BaseException:
                        is_ours = True
                        raise
                is_ours = True
                count = self._count
                span.asked_ns = request
                epoch.end_step()
                waiting = span.fell_short or not span.served  # for what this span did not have
                self._span = None
            self._finish(request)
        except GeneratorExit:
            self._over = True
            with self._guard:
                self._end("broken off")
            raise
        except BaseException as error:
            if not is_ours:
                of_the_loader(error)
            self._request, self._waiting = request, waiting
            if not self._ends(error):
                raise

    def _ends(self, error: BaseException) -> bool:
        """Whether `error` is ours: what is left is served without us then."""
        if not self._guard.ends(error):
            with self._guard:
                self._interrupted(error)
            return False
        self._over = True
        if self._plan.rest is None:
            self._plan.rest = self._plan.remainder()
        with self._guard:
            self._end("unmeasured")
        return True

    def _end(self, cause: Cause, asked_ns: int | None = None, now_ns: int | None = None) -> None:
        if self._spans is not None:
            self._spans.close()
        if self._epoch is not None:
            if self._is_shared:
                self._epoch.recorder.note(SEVERAL_THREADS.format(self._epoch.number))
            self._epoch.end(cause, asked_ns, now_ns)

    def _opened(self) -> OpenEpoch:
        epoch = self._begin()
        spans = self._plan.spans(epoch.number)
        self._spans = spans if self._annotate is None else self._annotate(spans)
        self._request = self._clock()
        self._epoch = epoch
        return epoch

    def _count_first(self, epoch: OpenEpoch, batch: Any) -> Count:
        """Count the epoch's first batch, by which counting those after it is chosen."""
        self._count = self._counter_for(batch)
        epoch.started()
        return NOTHING if self._count is None else self._count(batch)

    def _interrupted(self, error: BaseException) -> None:
        if self._span is not None:
            del self._span.marks[2 * self._span.served :]  # of a batch that Ctrl-C caught
        if self._epoch is not None:
            self._epoch.failed(self._request, self._clock(), error)

    def _finish(self, request: int) -> None:
        self._over = True
        asked = max(request, self._plan.asked_ns or request)  # that of a plan left off is older
        if self._plan.rest is None:
            self._end("exhausted", asked, self._clock())
        else:
            self._end("unmeasured", asked, asked)

    def _next_span(self, epoch: OpenEpoch) -> Span | None:
        """The next span, with a chunk of its own to be noted in."""
        if self._guard.has_tripped or self._is_shared:
            self._plan.rest = self._plan.remainder()
            return None
        try:
            span = next(self._spans or iter(()), None)
        except BaseException:
            self._plan.rest = self._plan.remainder()
            raise
        if span is not None:
            span.marks, span.counts = epoch.next_chunk(span.arm, span.pair, span.instrumented)
            span.counts.append((0, NOTHING))
            self._span = span
        return span
