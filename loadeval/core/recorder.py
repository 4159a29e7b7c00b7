"""Records what a run measures, open epochs included, in its log or in memory."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count, islice
from typing import Any, cast

import numpy as np

from loadeval.adapter import LoaderStages, StageNote
from loadeval.core.cuda import Copies, GpuIdleTimer, timing_events
from loadeval.core.threads import (
    LOG_THREAD,
    BackgroundThreads,
    LogQueue,
    MetricsReader,
    within,
)
from loadeval.data import lines as log_lines
from loadeval.data.columns import UNKNOWN, listed
from loadeval.data.lines import Arm, Cause, EpochEnd, Event, EventKind, Header, Line
from loadeval.data.log import LogReader, RunLog, opened
from loadeval.data.run import Run
from loadeval.errors import Guard, in_words, warn
from loadeval.probes import Probe
from loadeval.settings import Settings

Count = tuple[int, ...]
"""The samples and bytes of a batch, each UNKNOWN where it is; of some batches a Padding follows."""
NOTHING: Count = (UNKNOWN, UNKNOWN)


@dataclass(slots=True, eq=False)
class Span:
    """At most `size` batches of `source`, and what the hot loop notes of them.

    `since_ns` is when the first of them was asked for; None is now, or when the span before was
    asked for a batch that it did not have. `asked_ns`, once the span was served, is when the next
    batch was asked for. What `source` raises is the loader's own, unless the source `is_ours`,
    which then notes what is the loader's. `first` is the number of its first batch in the epoch,
    and `taken` how many of its rows are recorded.

    `marks` alternates request and delivery. `counts` holds (row, Count) where a count changed,
    and is appended to before the marks of that row, so that rows with marks are complete for
    another thread that reads both. Only a last batch that Ctrl-C caught is removed: it comes again.
    """

    source: Iterator[Any]
    size: int
    arm: Arm = "real"
    pair: int | None = None
    since_ns: int | None = None
    is_ours: bool = False
    instrumented: bool = False
    asked_ns: int = 0
    first: int = 0
    marks: list[int] = field(default_factory=list)
    counts: list[tuple[int, Count]] = field(default_factory=lambda: [(0, NOTHING)])
    taken: int = 0

    @property
    def served(self) -> int:
        """How many batches were served."""
        return len(self.marks) // 2

    @property
    def fell_short(self) -> bool:
        """Whether `source` had fewer batches."""
        return self.served < self.size

    def take(self, epoch: int, origin_ns: int) -> tuple[log_lines.Block, list[Count]] | None:
        """The rows that were not taken before, the last step left open; None when there are none.

        They are of epoch number `epoch`, and their requests count from `origin_ns`. With them come
        the Paddings, each behind the number of its batch.
        """
        start, stop = self.taken, self.served
        if start >= stop:
            return None
        self.taken = stop
        marks = np.fromiter(islice(self.marks, 2 * start, 2 * stop), np.int64, 2 * (stop - start))
        requests, deliveries = marks[::2], marks[1::2]
        steps: list[int | None] = (requests[1:] - deliveries[:-1]).tolist()
        counts = list(self.counts)
        bounds = np.maximum.accumulate([*(row for row, _ in counts), stop])
        lengths = np.diff(bounds.clip(start, stop))
        samples, nbytes = np.repeat([count[:2] for _, count in counts], lengths, axis=0).T
        block = log_lines.Block(
            epoch=epoch,
            arm=self.arm,
            request_ns=(requests - origin_ns).tolist(),
            wait_ns=(deliveries - requests).tolist(),
            step_ns=[*steps, None],
            samples=listed(samples),
            nbytes=listed(nbytes),
            pair=self.pair,
            instrumented=self.instrumented,
        )
        # Of a row that was broken off there is a second count.
        paddings = {row: count[2:] for row, count in counts if start <= row < stop}
        return block, [(self.first + row, *each) for row, each in paddings.items() if each]


FLUSH_INTERVAL_S = 0.5
"""A killed process loses at most about a second of batches."""
LONGEST_DRAIN_S = 30.0
"""The main thread waits no longer for another one to take batches. That one cannot end while Python
lists its threads, and the garbage collector may end an epoch just then."""
MAX_WAITING_SPANS = 8
"""When more spans wait for the log thread, the hot loop takes them itself."""
GAVE_UP = "nothing more is measured ({error}); the training goes on"
EMPTY_EPOCH = (
    "the loader gave no batch in this epoch; if it can be iterated only once, like a generator, "
    "wrap a callable that returns a new one"
)


class Recorder:
    """Collects the epochs of a run, in its log or in memory; owns the threads that do so.

    Whatever is to be recorded is left where `drain` finds it: batches in the spans of the epochs,
    how these ended, facts. The thread that drains to a log, and the one that reads the probes, live
    only between an epoch's first batch and its end: a loader that forks its workers when an epoch
    begins forks with no thread of ours. No training waits for the log's file; what that does not
    take waits in memory, as all of a run without a log does.

    In a forked child it is closed. What fails in loadeval, here or where else `guard` is asked,
    ends the recording.

    `stages` makes what looks into the loader, and is asked through the attribute of that name, as
    `metrics` is, which reads the probes.
    Raises RunLogError if the log that the settings name exists or cannot be written.
    """

    def __init__(
        self,
        settings: Settings,
        header: Header,
        probes: Iterable[Probe],
        stages: Callable[[], LoaderStages | str | None],
        tracking: Any,
    ) -> None:
        self._redact: Callable[[Line], Line] = lambda line: line
        if settings.redact:
            from loadeval.data.redaction import redacted, run_salt  # noqa: PLC0415 - few runs need it

            self._redact = partial(redacted, salt=run_salt())
        self.header = cast("Header", self._redact(header))
        log = None
        if settings.log_file is not None:
            log = RunLog(settings.log_file, self.header, overwrite=settings.overwrite)
        self._lines = LogQueue(log)
        self._process = os.getpid()
        self.guard = Guard(self._give_up)
        self._clock = settings.clock
        self.origin_ns = self._clock()
        self.batches = 0
        self._numbers = count()  # asked by threads that iterate one loader at once
        self._open_epochs: list[OpenEpoch] = []
        self._facts: deque[Line] = deque()
        self._last_words: str | None = None
        self._is_ending = self._is_closed = False
        self._is_due = self._is_taking = self._leaves_loader = False
        self._lock = threading.RLock()
        self._threads = BackgroundThreads(self.guard)
        self.stages = StageRecorder(stages if settings.looks_inside else lambda: None)
        self.metrics = MetricsReader(
            probes, settings.probe_interval_s, self._clock, self.origin_ns, self._threads
        )
        self.copies = Copies()
        self._gpu_idle_timers: list[GpuIdleTimer] = []
        self._spare_cuda_events: deque[Any] = deque()
        self._tracking = tracking
        if tracking is not None:
            tracking.take(self.header)

    @property
    def in_forked_child(self) -> bool:
        """Whether run, log and threads are those of the parent process."""
        return os.getpid() != self._process

    @property
    def closed(self) -> bool:
        """Whether nothing more is recorded."""
        return self._is_closed or self.in_forked_child

    def stop_stages(self) -> None:
        """Leave the loader as it was."""
        self._leaves_loader = True
        self.drain()

    def begin_epoch(self, known: Callable[[int], object] | None = None) -> OpenEpoch:
        """Open the next epoch; `known` is called with its number.

        It is None where kept batches are replayed: a device waits for none of them.
        """
        number = next(self._numbers)
        if self.closed:  # the iterator is older than that
            return OpenEpoch(self, number)
        event, gpu_idle = None if known is None else timing_events(), None
        if event is not None:
            gpu_idle = GpuIdleTimer(number, event, self._spare_cuda_events)
            self._gpu_idle_timers.append(gpu_idle)
        epoch = OpenEpoch(self, number, gpu_idle)
        self._open_epochs.append(epoch)
        if known is not None:
            known(number)
        return epoch

    def is_amid_another(self, epoch: OpenEpoch) -> bool:
        """Whether a later epoch is served already, in which the garbage collector ends this one."""
        return self._open_epochs[-1:] != [epoch]

    def started(self) -> None:
        """Start the threads: now there is something to write and a reason to read probes."""
        if self.closed:
            return
        if self._lines.log is not None:
            self._threads.start(LOG_THREAD, self._bring_up_to_date, FLUSH_INTERVAL_S, at_end=True)
        self.metrics.start_when_due()
        if self._tracking is not None:
            self._tracking.begin(self._threads, self.drain)

    def _bring_up_to_date(self) -> None:
        self.drain()
        self._lines.write()

    def span_ended(self, epoch: OpenEpoch) -> None:
        """Take spans that were served, so that they do not pile up in memory."""
        if self.closed or epoch not in self._open_epochs:
            epoch.spans.clear()
            return
        if self._lines.log is None or len(epoch.spans) > MAX_WAITING_SPANS:
            self.drain()
        if epoch.has_batches:
            self.started()

    def mark(self) -> None:
        """Read the probes now, at the edge of a block."""
        if not self.closed:
            self.metrics.mark()

    def keep(self, fact: Line) -> None:
        """Record a fact that is complete."""
        if not self.closed:
            self._facts.append(fact)

    def see(self, batch: Any) -> None:
        """Record what the first batch of a run tells of how it is copied to a device."""
        if read := self.copies.read(batch):
            values: dict[str, log_lines.Values] = {name: [each] for name, each in read.items()}
            time_ns = self._clock() - self.origin_ns
            self.keep(log_lines.Readings("copies", "batch", [time_ns], values))

    def note(self, message: str, kind: EventKind = "note") -> None:
        """Record an event, now."""
        self.keep(self._event(message, kind))

    def _event(self, message: str, kind: EventKind = "note") -> Event:
        return Event(self._clock() - self.origin_ns, message, kind)

    def run(self) -> Run:
        """Everything measured so far; from the log where there is one."""
        reader = LogReader(None)
        reader.add(self.lines())
        return reader.run()

    def lines(self) -> list[bytes]:
        """The lines of the log of everything measured so far, from the file where there is one.

        Raises RunLogError where that cannot be read.
        """
        self.drain()
        written_bytes, texts = self._lines.snapshot()
        texts += [log_lines.encode(self._redact(end)) for end in self._failures()]
        log, written = self._lines.log, [log_lines.encode(self.header)]
        if log is not None and written_bytes:
            with opened(log.path) as file:
                written = file.read(written_bytes).splitlines(keepends=True)
        return [*written, *texts]

    def _failures(self) -> list[EpochEnd]:
        """How the live epochs would end if they ended now, of those whose loader has raised."""
        return [epoch.failure for epoch in self._open_epochs if epoch.failure is not None]

    def close(self) -> None:
        """Bring the log up to date and end it, once. What is served later is not measured.

        In a forked child, whose log it is not, nothing happens.
        """
        if self.in_forked_child:
            return
        self._threads.stop()
        self.metrics.close()
        self._is_ending = True
        self.drain()
        if self._tracking is not None:
            self._tracking.finish(self.run)

    def _give_up(self, error: Exception) -> None:
        """Measure no more: `error` is a fault of ours, which is told once."""
        self._last_words = GAVE_UP.format(error=in_words(error))
        self._is_ending = True
        warn(self._last_words)
        with self.guard:  # what failed may fail again
            logging.getLogger("loadeval").debug(self._last_words, exc_info=error)
            self._threads.stop()
        with self.guard:
            self.drain()

    def drain(self) -> None:
        """Take what is to be recorded to where it is kept, one thread at a time.

        The garbage collector may end an abandoned epoch, or a whole recorder, in the middle of
        anything, on any thread; so may what handles a signal, on the main thread. Where that is in
        the middle of this, it is done again. On the main thread a signal may also break it off,
        and a log would lack its middle, so there another thread does it. In a forked child nothing
        is done: a thread of the parent's may have held the lock.
        """
        if self.in_forked_child:
            return
        self._is_due = True
        if self._lock._is_owned():  # type: ignore[attr-defined]  # noqa: SLF001 - a flag of ours would be set too late or too early
            return
        is_main = threading.current_thread() is threading.main_thread()
        while True:  # once at least: another thread may be in the middle of it
            if is_main and self._lines.log is not None:
                within(LONGEST_DRAIN_S, LOG_THREAD, self._drain_alone)
            else:
                self._drain_alone()
            if not self._is_due:
                break
        # This is not done before the lock is free: a thread may wait for it.
        if not self._open_epochs:
            self._threads.stop()
        if self._is_closed:
            self._lines.end()

    def _drain_alone(self) -> None:
        with self._lock, self.guard:  # so that the next thread is told what has failed
            while self._is_due:
                self._is_due = False
                self._drain()

    def _drain(self) -> None:
        if self._is_closed:
            return
        # An epoch may end, and then the run, while its batches are taken: this is done again then.
        is_ending = self._is_ending
        if is_ending or self._leaves_loader:
            self.stages.close()
        has_gap = self._is_taking and self.guard.has_tripped  # for that has failed
        if not has_gap:
            self._is_taking = True
            for line in self._take():
                self._keep(line)
            self._is_taking = False
        if is_ending:
            try:
                for end in [] if has_gap else self._failures():
                    self._keep(end)
                self._open_epochs.clear()
                if self._last_words is not None:
                    self._keep(self._event(self._last_words))
            finally:
                self._lines.put(log_lines.encode(log_lines.RunEnd(self.batches)))
                self._is_closed = True  # then the file may be closed

    def _take(self) -> Iterator[Line]:
        # How an epoch has ended is asked before its last batches are taken.
        ends = [(epoch, epoch.ended) for epoch in self._open_epochs if epoch.ended is not None]
        while self._facts:
            yield self._facts.popleft()
        for epoch in list(self._open_epochs):
            yield from epoch.take()
        yield from self.metrics.take()
        for gpu_idle in list(self._gpu_idle_timers):
            if self._is_ending and not self.guard.has_tripped:
                gpu_idle.wait()
            yield from gpu_idle.take()
            if gpu_idle.done:
                self._gpu_idle_timers.remove(gpu_idle)
        yield from self.stages.take()
        for epoch, end in ends:
            self._open_epochs.remove(epoch)
            yield end
            if epoch.gpu_idle is not None:
                epoch.gpu_idle.ended = True

    def _keep(self, line: Line) -> None:
        if isinstance(line, log_lines.Block):
            self.batches += len(line.request_ns)
        line = self._redact(line)
        if self._tracking is not None:
            self._tracking.take(line)
        self._lines.put(log_lines.encode(line))


class OpenEpoch:
    """One epoch while it is served: the hot loop notes batches here, and lines are taken out.

    `failure` is how it ends if nobody asks for another batch after what the loader raised, and
    `ended` how it did.
    """

    def __init__(
        self, recorder: Recorder, number: int, gpu_idle: GpuIdleTimer | None = None
    ) -> None:
        self.recorder = recorder
        self.number = number
        self.gpu_idle = gpu_idle
        self.failure: EpochEnd | None = None
        self.ended: EpochEnd | None = None
        self.spans: deque[Span] = deque()
        self.has_batches = False

    def started(self, batch: Any) -> None:
        """The first batch is there: from now on there is something to keep."""
        self.has_batches = True
        self.recorder.started()
        self.recorder.see(batch)

    def begin(self, span: Span) -> None:
        """The batches to come are noted in `span`."""
        self.recorder.span_ended(self)
        if self.spans:
            span.first = self.spans[-1].first + self.spans[-1].served
        self.spans.append(span)

    def take(self) -> list[log_lines.Block | log_lines.Padding]:
        """Every row that was not taken before; forgets the spans that were served and taken."""
        taken: list[log_lines.Block | log_lines.Padding] = []
        rows: list[Count] = []
        for span in list(self.spans):
            if (block_and_rows := span.take(self.number, self.recorder.origin_ns)) is not None:
                taken.append(block_and_rows[0])
                rows += block_and_rows[1]
        while len(self.spans) > 1 and self.spans[0].taken == self.spans[0].served:
            self.spans.popleft()
        if rows:
            taken.append(log_lines.Padding(self.number, *map(list, zip(*rows, strict=True))))
        return taken

    def failed(self, request: int, now: int, error: BaseException) -> None:
        """Note that the loader raised `error`; it ends the epoch unless another batch is asked."""
        text = f"{type(error).__name__}: {error}"
        self.failure = self._end("failed", request, now, text)

    def end(self, cause: Cause, request: int | None = None, now: int | None = None) -> None:
        """Note how the epoch ended: see EpochEnd. `request` and `now` are clock readings."""
        if cause == "broken off" and self.recorder.is_amid_another(self):
            request = None  # the time is part of a step
        self.ended = self.failure or self._end(cause, request, now)
        self.failure = None  # nobody asked for another batch
        if self.ended.cause == "exhausted" and not (self.has_batches or self.recorder.closed):
            warn(EMPTY_EPOCH)
        self.recorder.drain()

    def _end(
        self, cause: Cause, request: int | None, now: int | None, error: str | None = None
    ) -> EpochEnd:
        if request is None or now is None:
            return EpochEnd(self.number, cause, error=error)
        asked_ns = None if cause == "broken off" else request - self.recorder.origin_ns
        return EpochEnd(self.number, cause, asked_ns, now - request, error)


class StageRecorder:
    """Asks a LoaderStages what it found, and closes it once it raises. Notes are said once.

    `inside` makes it; None is for a loader that cannot be looked into, a sentence says why not.
    """

    def __init__(self, inside: Callable[[], LoaderStages | str | None]) -> None:
        self._origin_ns = time.perf_counter_ns()
        self._stages: Any = None  # a LoaderStages, which may have `look`
        self._is_open = False
        self._notes: list[StageNote] = []
        self._said: set[StageNote] = set()
        self._guard = Guard(self._give_up)
        with self._guard:
            stages = inside()
            if isinstance(stages, str):
                self._notes.append(StageNote(stages))
            else:
                self._stages, self._is_open = stages, stages is not None

    def begin(self, loader: Any) -> Callable[[int], object]:
        """See LoaderStages; the function that it returns does not raise."""
        known: Any = None
        if self._is_open:
            with self._guard:
                known = self._stages.begin(loader)

        def tell(epoch: int) -> None:
            if known is not None and self._is_open:  # the stages of others may return nothing
                with self._guard:
                    known(epoch)

        return tell

    @property
    def can_pause(self) -> bool:
        """Whether looking can be paused, and goes on."""
        return self._is_open and hasattr(self._stages, "look")

    def look(self, on: bool) -> None:
        """See LoaderStages."""
        if self.can_pause:
            with self._guard:
                self._stages.look(on)

    def take(self) -> list[Line]:
        """What was found since the last call; its moments count from when this was made."""
        found: list[Line] = []
        if self._stages is not None and not self._guard.has_tripped:
            with self._guard:
                found = [*self._lines(self._stages.take())]
        notes, self._notes = self._notes, []
        found += self._lines(notes)
        return [line for line in found if not isinstance(line, log_lines.StageTimes) or line.batch]

    def close(self) -> None:
        """Leave the loader as it was; what was found until now can still be taken."""
        was_open, self._is_open = self._is_open, False
        if was_open:
            with self._guard:
                self._stages.close()

    def _lines(self, found: Iterable[Any]) -> Iterator[Line]:
        for data in found:
            if not isinstance(data, StageNote):
                yield cast("Line", log_lines.since(data, self._origin_ns))
            elif data not in self._said:
                self._said.add(data)
                yield Event(time.perf_counter_ns() - self._origin_ns, data.message, data.kind)

    def _give_up(self, error: Exception) -> None:
        why = f"the loader is not looked into any more ({in_words(error)})"
        self._notes.append(StageNote(why))
        self.close()
