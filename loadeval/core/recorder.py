"""Records what a run measures, open epochs included, in its log or in memory."""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import datetime, timezone
from functools import partial
from itertools import count, islice
from typing import Any, cast

import numpy as np

from loadeval.adapter import LoaderStages, StageNote
from loadeval.core.cuda import GpuIdleTimer, timing_events
from loadeval.core.threads import (
    DROPPED,
    LOG_THREAD,
    NO_PROBES,
    BackgroundThreads,
    LogQueue,
    MetricsReader,
    Probes,
    within,
)
from loadeval.data.columns import UNKNOWN, Column, constant, listed
from loadeval.data.lines import (
    Arm,
    Block,
    CacheInfo,
    Cause,
    EpochEnd,
    Event,
    EventKind,
    Header,
    Line,
    LoaderInfo,
    Padding,
    Prefetch,
    RunEnd,
    StageTimes,
    Window,
    decode,
    encode,
    since,
)
from loadeval.data.log import LogReader, RunLog, opened
from loadeval.data.run import Run
from loadeval.errors import Guard, in_words, text_of, warn
from loadeval.settings import Settings

Count = tuple[int, ...]
"""It has the samples and the bytes of a batch, UNKNOWN is -1; of some, a Padding follows."""
NOTHING: Count = (UNKNOWN, UNKNOWN)


class Chunk:
    """Consecutive batches; the hot loop appends, another thread may read, nothing is removed.

    `marks` alternates request and delivery. `counts` holds (row, Count) where a count changed,
    and is appended to before the marks of that row: what the marks show is complete.
    """

    __slots__ = ("arm", "counts", "instrumented", "marks", "pair", "taken")

    def __init__(self, arm: Arm, pair: int | None, instrumented: bool = False) -> None:
        self.arm = arm
        self.pair = pair
        self.instrumented = instrumented
        self.marks: list[int] = []
        self.counts: list[tuple[int, Count]] = []
        self.taken = 0

    @property
    def rows(self) -> int:
        """How many batches are complete in it."""
        return len(self.marks) // 2

    def take(self, epoch: int, origin_ns: int) -> Block | None:
        """The rows that were not taken before, the last step left open; None when there are none.

        They are of epoch number `epoch`, and their requests count from `origin_ns`.
        """
        start, stop = self.taken, self.rows
        if start == stop:
            return None
        self.taken = stop
        marks = np.fromiter(islice(self.marks, 2 * start, 2 * stop), np.int64, 2 * (stop - start))
        requests, deliveries = marks[::2], marks[1::2]
        steps: list[int | None] = (requests[1:] - deliveries[:-1]).tolist()
        samples, nbytes = self._counted(start, stop)
        return Block(
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

    def paddings(self, start: int) -> list[tuple[int, Count]]:
        """The rows from `start` on that were taken and have a Padding, with it, the last first."""
        last: dict[int, Count] = {}  # of a row that was broken off there is a second count
        for row, counted in reversed(self.counts):
            if row < start:
                break
            last.setdefault(row, counted[2:])
        return [(row, padding) for row, padding in last.items() if padding and row < self.taken]

    def _counted(self, start: int, stop: int) -> tuple[Column, Column]:
        rows, counts = zip(*self.counts, strict=True)
        which = np.searchsorted(rows, np.arange(start, stop), side="right") - 1
        if which[0] == which[-1]:
            samples, nbytes, *_ = counts[which[0]]
            return constant(samples, stop - start), constant(nbytes, stop - start)
        samples, nbytes = np.array([count[:2] for count in counts], dtype=np.int64)[which].T.copy()
        return samples, nbytes


FLUSH_INTERVAL_S = 0.5
"""A killed process loses at most about a second of batches."""
MAX_WAITING_CHUNKS = 8
"""When more chunks wait for the log thread, the hot loop takes them itself."""
NOTHING_SERVED = (
    "nothing was measured: no batch was served through this LoaderEvaluator. Was it iterated? A "
    "framework may have put another loader in its place; install(dataloader) measures that too"
)
NOT_RECORDED = (
    "{batches} batches are not in this log, whose file took nothing for a while: the log of their "
    "epochs ends before them"
)
LOST = "{path}, the log of the run until here, is not what it was: this is the rest of the run"
GAVE_UP = "nothing more is measured ({error}); the training goes on"
EMPTY_EPOCH = (
    "the loader gave no batch in this epoch; if it can be iterated only once, like a generator, "
    "wrap a callable that returns a new one"
)


class Recorder:
    """Collects the epochs of a run, in its log or in memory; owns the threads that do so.

    A log is brought up to date by a thread that lives only between an epoch's first batch and
    its end, and so does the one that reads the probes: a loader that forks its workers when an
    epoch begins forks with no thread of ours. No training waits for the log's file; what that
    cannot take for too long is dropped, and counted.

    A forked child records nothing of what its parent does, and what it begins itself in memory.

    What fails in loadeval, here or where else `guard` is asked, ends the recording.

    `facts` are the settings that the header tells. `stages` makes what looks into the loader.
    Raises RunLogError if the log that the settings name exists or cannot be written.
    """

    def __init__(  # noqa: PLR0913 - nearly all by keyword
        self,
        settings: Settings,
        info: LoaderInfo,
        *,
        name: str,
        facts: dict[str, Any],
        environment: dict[str, Any],
        probes: Probes,
        stages: Callable[[], LoaderStages | None],
        cache: CacheInfo | None = None,
        tracking: Any = None,
    ) -> None:
        self._redact: Callable[[Line], Line] = lambda line: line
        if settings.redact:
            from loadeval.data.redaction import redacted, run_salt  # noqa: PLC0415 - few runs need it

            self._redact = partial(redacted, salt=run_salt())
        header = Header(
            run_id=uuid.uuid4().hex,
            name=name,
            mode=settings.mode,
            created=datetime.now(timezone.utc).isoformat(),
            unit=settings.unit,
            warmup=settings.warmup_for(info.prefetch_depth),
            loader=info,
            settings=facts,
            environment=environment,
            cache=cache,
        )
        self.header = cast("Header", self._redact(header))
        path, log = settings.log_file, None
        if path is not None:
            log = LogQueue(RunLog(path, self.header, overwrite=settings.overwrite))
        self.guard = Guard(self._give_up)
        self._clock = settings.clock
        self.origin_ns = self._clock()
        self._stages = StageRecorder(stages if settings.looks_inside else lambda: None)
        self.closed = False
        self.batches = 0
        self.expects_batches = True
        self._epochs = 0
        self._numbers = count()  # asked by threads that iterate one loader at once
        self._spare_cuda_events: deque[Any] = deque()
        self._parents: tuple[object, ...] = ()
        self._tracking = tracking
        if tracking is not None:
            tracking.take(self.header)
        self._start(log, probes)
        _all.add(self)

    def _start(self, log: LogQueue | None, probes: Probes) -> None:
        """Begin with nothing recorded, in this process."""
        self._process = os.getpid()
        self._log = log
        self._has_log_thread = True
        self._dropped = 0
        self._is_draining = False
        self._open_epochs: list[OpenEpoch] = []
        self._kept: list[bytes] = []
        self._queued_work: deque[Callable[[], None]] = deque()
        self._lock = threading.RLock()
        self._threads = BackgroundThreads(self.guard)
        self._metrics = MetricsReader(probes, self._clock, self.origin_ns, self._threads)
        self._gpu_idle_timers: list[GpuIdleTimer] = []

    def leave_to_parent(self) -> None:
        """Leave what was recorded until now, and the log, to the parent of this forked child.

        Its threads are not here, and they may have held a lock.
        """
        # Kept, for what they hold of a device cannot be freed here, and a file may stall.
        self._parents = self._log, self._stages, self._gpu_idle_timers, self._spare_cuda_events
        self._stages, self._spare_cuda_events = StageRecorder(lambda: None), deque()
        self._tracking = None
        self._start(None, NO_PROBES)

    def _leave_if_forked(self) -> None:
        """Leave the log to the parent in a forked child where nothing has called us.

        C code forked, or the child is just beginning.
        """
        if os.getpid() != self._process:
            self.leave_to_parent()

    def begin_stages(self, loader: Any) -> Callable[[int], object]:
        """Time the stages of the epoch of `loader` that begins next; see LoaderStages.begin."""
        self._leave_if_forked()
        return self._stages.begin(loader)

    def stop_stages(self) -> None:
        """Leave the loader as it was."""
        self._run_alone(self._stages.close)

    def begin_epoch(self, number_callback: Callable[[int], object] | None = None) -> OpenEpoch:
        """Open the next epoch; `number_callback` is called with its number."""
        self._leave_if_forked()
        if self.closed:  # the iterator is older than that
            return OpenEpoch(self, self._epochs)
        number = next(self._numbers)
        self._epochs = number + 1
        event, gpu_idle = timing_events(), None
        if event is not None:
            gpu_idle = GpuIdleTimer(number, event, self._spare_cuda_events)
            self._gpu_idle_timers.append(gpu_idle)
        epoch = OpenEpoch(self, number, gpu_idle)
        self._open_epochs.append(epoch)
        if number_callback is not None:
            number_callback(epoch.number)
        return epoch

    def started(self) -> None:
        """Start the threads: now there is something to write and a reason to read probes."""
        if self.closed:
            return
        if self._log is not None:
            work = partial(self._bring_up_to_date, self._log)
            self._has_log_thread = self._threads.start(
                LOG_THREAD, work, FLUSH_INTERVAL_S, at_end=True
            )
        self._metrics.start_when_due()
        if self._tracking is not None:
            self._tracking.begin(self._threads, self.drain)

    def chunk_filled(self, epoch: OpenEpoch) -> None:
        """Take full chunks, so that they do not pile up in memory."""
        if epoch not in self._open_epochs:
            epoch.chunks.clear()
            return
        if self._log is None:
            self.drain()
        elif len(epoch.chunks) > MAX_WAITING_CHUNKS:
            self.drain()
            self._threads.hurry(LOG_THREAD)
            self._log.relieve()
        if epoch.has_batches:
            self.started()

    def epoch_ended(self, epoch: OpenEpoch, end: EpochEnd) -> None:
        """Write the rest of the epoch and how it ended."""
        self._leave_if_forked()  # garbage may be collected before `_leave_all_to_parent` is called
        if end.cause == "exhausted" and not epoch.has_batches and not self.closed:
            warn(EMPTY_EPOCH)
        self._queued_work.append(partial(self._end_epoch, epoch, end))
        if self._open_epochs == [epoch] and not self._is_locked_here():
            self._threads.stop()  # that of the log does it, last of all
        self._run_queued_work()

    @property
    def has_instruments(self) -> bool:
        """Whether there is something that `look` would stop."""
        return self._stages.can_pause or self._metrics.can_pause

    def look(self, on: bool) -> None:
        """Read instruments from now on, or none but the clock and what measures a GPU."""
        self._stages.look(on)
        self._metrics.look(on)

    def mark(self) -> None:
        """Read the probes now, at the edge of a block."""
        self._metrics.mark()

    def keep(self, fact: Prefetch | Window | Event) -> None:
        """Record what happened at the edge of a block."""
        self._run_alone(partial(self._keep_fact, fact), is_one_step=True)

    def note(self, message: str, kind: EventKind = "note") -> None:
        """Record an event, now."""
        self.keep(self._event(message, kind))

    def drain(self) -> None:
        """Take what the live epochs have measured to where it is kept."""
        self._run_alone(self._drain)

    def _bring_up_to_date(self, log: LogQueue) -> None:
        """What the thread of the log does."""
        self.drain()
        log.write()

    def _give_up(self, error: Exception) -> None:
        """Measure no more: `error` is a fault of ours, which is told once."""
        message = GAVE_UP.format(error=in_words(error))
        warn(message)
        with suppress(Exception):  # what failed may fail again
            logging.getLogger("loadeval").debug(message, exc_info=error)
            self._threads.stop()  # who ends the log waits for its file
        with suppress(Exception):
            self._run_alone(partial(self._end, message))

    def _end(self, last_words: str | None) -> None:
        """End the log with what was measured until now, whatever of it fails."""
        if self.closed:
            return
        with ExitStack() as last_first:
            last_first.callback(setattr, self, "closed", True)  # then the file may be closed
            last_first.callback(self._open_epochs.clear)
            last_first.callback(self._put_end)
            if last_words is not None:
                last_first.callback(lambda: self._keep(self._event(last_words), always=True))
            last_first.callback(self._note_dropped, at_end=True)
            if not self._is_draining:  # which has failed, and may have left a gap
                last_first.callback(self._drain_to_the_end)
            last_first.callback(self._stages.close)

    def _drain_to_the_end(self) -> None:
        self._drain()
        for line in self._unfinished_lines():
            self._keep(line, always=True)

    def _put_end(self) -> None:
        if self._log is not None and not self._log.is_broken:
            self._log.put(encode(RunEnd(self.batches)))

    def run(self) -> Run:
        """Everything measured so far; from the log where there is one."""
        reader = LogReader(None)
        reader.add(self.lines())
        return reader.run()

    def lines(self) -> list[bytes]:
        """The lines of the log of everything measured so far, from the file where there is one.

        Raises RunLogError where that cannot be read.
        """
        taken: list[tuple[int, list[bytes]]] = []
        self._run_alone(lambda: taken.append(self._drained()))
        # It is not done yet where a signal interrupted what is.
        written_bytes, texts = taken[0] if taken else self._snapshot()
        written: list[bytes] = []
        if self._log is not None and written_bytes:
            with opened(self._log.path) as file:
                written = file.read(written_bytes).splitlines(keepends=True)
        return [*(written or [encode(self.header)]), *texts]

    def _drained(self) -> tuple[int, list[bytes]]:
        self._drain()
        return self._snapshot()

    def _snapshot(self) -> tuple[int, list[bytes]]:
        """How many bytes of the log to read, and the lines that are not in it yet."""
        log, written_bytes, texts = self._log, 0, list[bytes]()
        if log is not None and log.log.is_file:
            written_bytes, texts = log.snapshot()
        readable = 0 if log is None or log.log.is_lost else written_bytes
        unfinished = [encode(self._redact(line)) for line in self._unfinished_lines()]
        if self.closed and (log is None or log.is_broken or not log.log.is_file):
            unfinished.append(encode(RunEnd(self.batches)))
        return readable, [*texts, *self._kept, *unfinished]

    def close(self) -> None:
        """Bring the log up to date and end it, once. What is served later is not measured.

        In a forked child, whose log it is not, nothing happens.
        """
        if self._parents or os.getpid() != self._process:
            return
        is_unread = self.expects_batches and not self._epochs and not self.closed
        self._threads.stop()
        self._metrics.close()
        self._run_alone(partial(self._close, is_unread))
        if self._tracking is not None:
            self._tracking.finish(self.run)
        if is_unread:
            warn(NOTHING_SERVED)

    def _close(self, is_unread: bool) -> None:
        for gpu_idle in [] if self.closed else self._gpu_idle_timers:
            gpu_idle.wait()
        self._end(NOTHING_SERVED if is_unread else None)

    def _run_alone(self, work: Callable[[], None], *, is_one_step: bool = False) -> None:
        """Do `work` alone with the recorder: now, or when what this thread is doing is done.

        The garbage collector may end an abandoned epoch, or a whole recorder, in the middle of
        anything, on any thread; so may what handles a signal, on the main thread. There that may
        also break off what is being done, and a log would lack its middle, unless `is_one_step`.
        """
        self._queued_work.append(work)
        self._run_queued_work(is_one_step=is_one_step)

    def _run_queued_work(self, *, is_one_step: bool = False) -> None:
        if self._is_locked_here():
            return
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and self._log is not None and self._queued_work and not is_one_step:
            within(None, LOG_THREAD, self._run_all_queued_work)
        else:
            self._run_all_queued_work()  # or wait for the thread that does
        if self._queued_work:  # of what handled a signal meanwhile
            self._run_all_queued_work()
        # This is not done before the lock is free: a thread may wait for it.
        if not self._open_epochs:
            self._threads.stop()
        if self._log is not None and not self._has_log_thread:
            self._log.write()
        if self._log is not None and self.closed:
            self._log.end()

    def _run_all_queued_work(self) -> None:
        with self.guard, self._lock:
            while self._queued_work:
                self._queued_work.popleft()()

    def _is_locked_here(self) -> bool:
        is_owned: bool = self._lock._is_owned()  # type: ignore[attr-defined]  # noqa: SLF001 - a flag of ours would be set too late or too early
        return is_owned

    def _end_epoch(self, epoch: OpenEpoch, end: EpochEnd) -> None:
        if epoch not in self._open_epochs:
            return
        self._drain()
        self._open_epochs.remove(epoch)
        if not epoch.is_cut_off:
            self._keep(end, always=True)
        if epoch.gpu_idle is not None:
            epoch.gpu_idle.ended = True

    def _drain(self) -> None:
        self._is_draining = True
        self._note_dropped()
        for epoch in list(self._open_epochs):
            for block in epoch.take():
                if epoch.is_cut_off or self._is_full():
                    self._drop_block(epoch, block)
                    continue
                self.batches += len(block.request_ns)
                self._keep(block, always=True)
            padding = epoch.take_padding()
            if padding is not None and not epoch.is_cut_off:
                self._keep(padding)
        self._drain_metrics()
        self._drain_stages()
        self._is_draining = False

    def _is_full(self) -> bool:
        return self._log is not None and self._log.is_full and not self._log.is_broken

    def _drop_block(self, epoch: OpenEpoch, block: Block) -> None:
        """Leave `block` out of the log, and all that follows in its epoch.

        The epoch's line says that it was not measured from there on: the next block of it that
        the log had would seem to end the step before this one.
        """
        if not epoch.is_cut_off:
            end = EpochEnd(epoch.number, "unmeasured", block.request_ns[0], 0)
            self._keep(end, always=True)
            epoch.is_cut_off = True
        self._dropped += len(block.request_ns)

    def _note_dropped(self, *, at_end: bool = False) -> None:
        if self._log is None or not self._dropped:
            return
        self._log.warn(DROPPED)
        if at_end or not self._is_full():
            self._keep(self._event(NOT_RECORDED.format(batches=self._dropped)), always=True)
            self._dropped = 0

    def _unfinished_lines(self) -> list[Line]:
        """What the live epochs would still write if they ended now."""
        open_epochs = [epoch for epoch in self._open_epochs if not epoch.is_cut_off]
        return [epoch.failure for epoch in open_epochs if epoch.failure is not None]

    def _event(self, message: str, kind: EventKind = "note") -> Event:
        return Event(self._clock() - self.origin_ns, message, kind)

    def _keep_fact(self, fact: Prefetch | Window | Event) -> None:
        cut_off = {epoch.number for epoch in self._open_epochs if epoch.is_cut_off}
        if not self.closed and (isinstance(fact, Event) or fact.epoch not in cut_off):
            self._keep(fact, always=True)

    def _keep(self, line: Line, *, always: bool = False) -> None:
        """Take `line` to the log, or to memory; a log that is full gets what it must have."""
        log, line = self._log, self._redact(line)
        if self._tracking is not None:
            self._tracking.take(line)
        if log is not None and log.is_broken and log.log.is_lost and not self._kept:
            self._kept.append(encode(self._redact(self._event(LOST.format(path=log.path)))))
        text = encode(line)
        if log is None or log.is_broken or not log.log.is_file:
            self._kept.append(text)
        if log is not None and not log.is_broken and (always or not log.is_full):
            log.put(text)

    def _drain_metrics(self) -> None:
        """Write what the probes have read, and what the GPU idled in waits."""
        for line in self._metrics.take():
            self._keep(line)
        for gpu_idle in list(self._gpu_idle_timers):
            taken = gpu_idle.take()
            if taken is not None:
                self._keep(taken)
            if gpu_idle.done:
                self._gpu_idle_timers.remove(gpu_idle)

    def _drain_stages(self) -> None:
        """Write what happened inside the loader, until the run is over."""
        for line in [] if self.closed else self._stages.take():
            if not isinstance(line, StageTimes) or line.batch:
                self._keep(line)


class OpenEpoch:
    """One epoch while it is served: the hot loop writes marks here, and blocks are taken out."""

    def __init__(
        self,
        recorder: Recorder,
        number: int,
        gpu_idle: GpuIdleTimer | None = None,
    ) -> None:
        self.recorder = recorder
        self.number = number
        self.gpu_idle = gpu_idle
        self.failure: EpochEnd | None = None
        self.chunks: deque[Chunk] = deque()
        self.has_batches = False
        self.is_cut_off = False
        self._taken = 0
        self._paddings: list[tuple[int, ...]] = []

    def started(self) -> None:
        """The first batch is there, or about to be: from now on there is something to keep."""
        self.has_batches = True
        self.recorder.started()

    def next_chunk(
        self, arm: Arm, pair: int | None = None, instrumented: bool = False
    ) -> tuple[list[int], list[tuple[int, Count]]]:
        """Where the batches to come are noted: their marks, and their changes of count."""
        self.recorder.chunk_filled(self)
        chunk = Chunk(arm, pair, instrumented)
        self.chunks.append(chunk)
        return chunk.marks, chunk.counts

    def end_step(self) -> None:
        """The step ends here for the device too, not with the next request."""
        if self.gpu_idle is not None:
            self.gpu_idle.end_step()

    def take(self) -> list[Block]:
        """Every row that was not taken before; forgets the chunks that are full and taken."""
        blocks: list[Block] = []
        for chunk in list(self.chunks):
            start = chunk.taken
            block = chunk.take(self.number, self.recorder.origin_ns)
            if block is None:
                continue
            blocks.append(block)
            before = self._taken - start
            self._paddings += [(before + row, *padding) for row, padding in chunk.paddings(start)]
            self._taken += len(block.request_ns)
        while len(self.chunks) > 1 and self.chunks[0].taken == self.chunks[0].rows:
            self.chunks.popleft()
        return blocks

    def take_padding(self) -> Padding | None:
        """What is known of the padding of the batches taken since the last call."""
        rows, self._paddings = sorted(self._paddings), []
        return Padding(self.number, *map(list, zip(*rows, strict=True))) if rows else None

    def failed(self, request: int, now: int, error: BaseException) -> None:
        """Note that the loader raised `error`; it ends the epoch unless `resume` is called."""
        self.failure = self._ended("failed", request, now, error)

    def resume(self) -> None:
        """Another batch is asked for, after an exception if there was one."""
        failure, self.failure = self.failure, None
        if failure is not None:
            # An error of a worker has the worker's traceback in its text.
            *_, what = str(failure.error).strip().splitlines()
            self.recorder.note(
                f"epoch {self.number}: the loader raised {what}, and was read on", "error read on"
            )

    def end_failed(self) -> None:
        """The epoch ended with its exception: nobody asks for another batch."""
        failure, self.failure = self.failure, None
        if failure is not None:
            self.recorder.epoch_ended(self, failure)

    def end(self, cause: Cause, request: int | None = None, now: int | None = None) -> None:
        """Note how the epoch ended: see EpochEnd. `request` and `now` are clock readings."""
        self.recorder.epoch_ended(self, self._ended(cause, request, now))

    def _ended(
        self,
        cause: Cause,
        request: int | None,
        now: int | None,
        error: BaseException | None = None,
    ) -> EpochEnd:
        asked = waited = None
        if request is not None and now is not None:
            asked, waited = request - self.recorder.origin_ns, now - request
        text = None if error is None else f"{type(error).__name__}: {text_of(error)}"
        return EpochEnd(self.number, cause, asked, waited, text)


class StageRecorder:
    """Asks a LoaderStages what it found, and closes it once it raises.

    `inside` makes it; None is for a loader that cannot be looked into.
    """

    def __init__(self, inside: Callable[[], LoaderStages | None]) -> None:
        self._origin_ns = time.perf_counter_ns()
        self._stages: LoaderStages | None = None
        self._is_open = True
        self._failure: StageNote | None = None
        self._guard = Guard(self._give_up)
        with self._guard:
            self._stages = inside()

    def begin(self, loader: Any) -> Callable[[int], object]:
        """See LoaderStages; the function that it returns does not raise."""
        told: list[Callable[[int], object]] = []
        if self._stages is not None and self._is_open:
            with self._guard:
                told.append(self._stages.begin(loader))

        def tell(epoch: int) -> None:
            if told and self._is_open:
                with self._guard:
                    told[0](epoch)

        return tell

    @property
    def can_pause(self) -> bool:
        """Whether looking can be paused, and goes on."""
        return self._is_open and hasattr(self._stages, "look")

    def look(self, on: bool) -> None:
        """See LoaderStages."""
        if self.can_pause:
            with self._guard:
                self._stages.look(on)  # type: ignore[union-attr]  # it has one

    def take(self) -> list[Line]:
        """What was found since the last call; its moments count from when this was made."""
        lines: list[Line] = []
        if self._stages is not None:
            taken: list[Line] | None = None
            with self._guard:
                taken = [self._line(data) for data in self._stages.take()]
            lines = taken or []
            if taken is None:
                self._stages = None
        failure, self._failure = self._failure, None
        return lines if failure is None else [*lines, self._line(failure)]

    def close(self) -> None:
        """Leave the loader as it was; what was found until now can still be taken."""
        was_open, self._is_open = self._is_open, False
        if was_open and self._stages is not None:
            with self._guard:
                self._stages.close()

    def _line(self, data: Any) -> Line:
        """A line of the run log. Raises RunLogError for one that would make it unreadable."""
        if isinstance(data, StageNote):
            return Event(time.perf_counter_ns() - self._origin_ns, data.message, data.kind)
        line = since(data, self._origin_ns)
        decode(encode(line))
        return cast("Line", line)

    def _give_up(self, error: Exception) -> None:
        self._failure = StageNote(f"the loader is not looked into any more ({in_words(error)})")
        self.close()


_all: weakref.WeakSet[Recorder] = weakref.WeakSet()


def _leave_all_to_parent() -> None:
    for recorder in list(_all):
        recorder._leave_if_forked()  # noqa: SLF001 - its own module


# Windows, which does not fork, has no such function.
getattr(os, "register_at_fork", dict)(after_in_child=_leave_all_to_parent)
