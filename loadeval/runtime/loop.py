"""The hot loop: two clock readings and a count for each batch of the spans that it serves."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Protocol, cast

from loadeval.runtime.counting import NOTHING, Count

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sized

    from loadeval.runlog.model import Arm
    from loadeval.runtime.recorder import OpenEpoch

    Spans = Generator["Span", None, None]

CHUNK = 4096
"""The most batches in which the loop does nothing but read the clock and count."""
CHUNK_GROWTH = 8
"""By what factor the first chunks of an epoch grow."""


@dataclass(slots=True)
class Span:
    """At most `size` batches of `source`.

    `since_ns` is when the first of them was asked for; None is now, or when the span before was
    asked for a batch that it did not have. `marks` and `counts` are those of its Chunk, where the
    hot loop notes its batches; `asked_ns`, once it was served, is when the next one was asked for.
    """

    source: Iterator[Any]
    size: int
    arm: Arm = "real"
    pair: int | None = None
    since_ns: int | None = None
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


class Plan(Protocol):
    """How an epoch is served: in spans, and what is left of it afterwards unmeasured.

    `rest` is None when the spans end with the epoch. `asked_ns` is when the batch was asked for
    that no span has; None if the hot loop knows best.
    """

    rest: Iterator[Any] | None
    asked_ns: int | None

    def spans(self, epoch: int) -> Spans:
        """The spans of epoch number `epoch`; each was served when the next one is asked for."""

    def remainder(self) -> Iterator[Any]:
        """What is left to serve if the spans themselves were broken off by an exception."""


class WholeEpoch:
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
        self._source = source
        self._clock = clock
        self._opened_ns = opened_ns
        self._most = most
        self._then = then
        self._spans: list[Span] = []

    @property
    def served(self) -> int:
        """How many batches of `source` were served so far."""
        return sum(span.served for span in self._spans)

    def spans(self, epoch: int) -> Spans:  # noqa: ARG002 - see Plan
        """See Plan."""
        since_ns: int | None = self._clock() - self._opened_ns
        left, sizes, is_over = self._most, chunk_sizes(), False
        while left and not is_over:
            span = Span(self._source, int(min(next(sizes), left)), since_ns=since_ns)
            self._spans += [span] if self._then is not None else []
            yield span
            since_ns = None
            left -= span.served
            is_over = span.fell_short
        if self._then is not None and not left:
            self.rest = self._then()

    def remainder(self) -> Iterator[Any]:
        """See Plan."""
        return self._source


class MeasuredEpoch(chain[Any]):
    """What a training loop iterates: an epoch that is measured while it is served.

    It goes on after an exception as the loader's own iterator does: a generator is over once it
    has raised, but a chain of generators takes the next one, at no cost for each batch. What is
    read of it besides is read of the loader's iterator.
    """

    _source: Iterator[Any]

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
    begin: Callable[[], OpenEpoch],
    counter_for: Callable[[Any], Callable[[Any], Count] | None],
    clock: Callable[[], int],
    owner: object,
    annotate: Callable[[Spans], Spans] | None = None,
) -> MeasuredEpoch:
    """Serve an epoch by `plan`, and note when each batch was requested and delivered.

    `source` is the loader's iterator. `begin` gives the OpenEpoch to note it in, once the first
    batch is asked for. `counter_for` makes the counting function from the first batch. `owner` is
    held, so that its log stays open. `annotate` puts ranges around the spans.
    """
    parts = _Serving(plan, counter_for, clock, owner).parts(begin, annotate)
    epoch = cast("MeasuredEpoch", MeasuredEpoch.from_iterable(parts))
    epoch._source = source  # noqa: SLF001 - made here alone
    return epoch


class _Serving:
    """One epoch being served, and where an exception of the loader has interrupted it."""

    _epoch: OpenEpoch
    _spans: Spans
    _request: int

    def __init__(
        self,
        plan: Plan,
        counter_for: Callable[[Any], Callable[[Any], Count] | None],
        clock: Callable[[], int],
        owner: object,
    ) -> None:
        self._plan = plan
        self._counter_for = counter_for
        self._clock = clock
        self._owner = owner
        self._count: Callable[[Any], Count] | None = None
        self._stage: Span | None = None
        self._waiting = False
        self._over = False

    def parts(
        self, begin: Callable[[], OpenEpoch], annotate: Callable[[Spans], Spans] | None
    ) -> Iterator[Iterator[Any]]:
        """The parts of an epoch: a new one follows each exception; at the end what is unmeasured.

        This ends when the MeasuredEpoch is dropped, at the latest: an exception after which nobody
        asked for another batch has then ended the epoch.
        """
        epoch = self._epoch = begin()
        spans = self._plan.spans(epoch.number)
        self._spans = spans if annotate is None else annotate(spans)
        self._request = self._clock()
        try:
            while not self._over:
                yield self._part()
        finally:
            epoch.end_failed()
        if self._plan.rest is not None:
            yield self._plan.rest

    def _part(self) -> Generator[Any, None, None]:
        """The batches up to the next exception, which passes through, or to the end."""
        epoch, clock = self._epoch, self._clock
        count = self._count if epoch.has_batches else self._count_first
        request, waiting, resumed = self._request, self._waiting, epoch.failure is not None
        epoch.resume()
        try:
            while (span := self._stage or self._begun()) is not None:
                if resumed:  # what is asked for was asked for before the exception
                    resumed = False
                elif span.since_ns is not None:
                    request = span.since_ns
                elif not waiting:
                    request = clock()
                marks, counts = span.marks, span.counts
                current = counts[-1][1]
                for batch in islice(epoch.watched(span.source), span.size - span.served):
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
                count = self._count
                span.asked_ns = request
                epoch.end_step()
                waiting = span.fell_short or not span.served  # for what this span did not have
                self._stage = None
        except GeneratorExit:
            self._over = True
            self._spans.close()
            epoch.end("broken off")
            raise
        except BaseException as error:
            self._request, self._waiting = request, waiting
            self._interrupted(error)
            raise
        self._finish(request)

    def _count_first(self, batch: Any) -> Count:
        """Count the epoch's first batch, by which counting those after it is chosen."""
        self._count = self._counter_for(batch)
        self._epoch.started()
        return NOTHING if self._count is None else self._count(batch)

    def _interrupted(self, error: BaseException) -> None:
        if self._stage is not None:
            del self._stage.marks[2 * self._stage.served :]  # of a batch that Ctrl-C caught
        self._epoch.failed(self._request, self._clock(), error)

    def _finish(self, request: int) -> None:
        self._over = True
        asked = request if self._plan.asked_ns is None else self._plan.asked_ns
        if self._plan.rest is None:
            self._epoch.end("exhausted", asked, self._clock())
        else:
            self._epoch.end("unmeasured", asked, asked)

    def _begun(self) -> Span | None:
        """The next span, with a chunk of its own to be noted in."""
        try:
            span = next(self._spans, None)
        except BaseException:
            self._plan.rest = self._plan.remainder()
            raise
        if span is not None:
            span.marks, span.counts = self._epoch.next_chunk(span.arm, span.pair)
            span.counts.append((0, NOTHING))
            self._stage = span
        return span
