"""Records what a run measures, open epochs included, in its log or in memory."""

from __future__ import annotations

import json
import logging
import os
import threading
import uuid
import weakref
from collections import deque
from contextlib import ExitStack, suppress
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from loadeval.errors import in_words, warn
from loadeval.runlog.codec import RunEnd, decode
from loadeval.runlog.model import Block, EpochEnd, Event, Header
from loadeval.runlog.stages import StageTimes
from loadeval.runlog.writer import RunLog
from loadeval.runtime.cuda import GpuIdleTimer, timing_events
from loadeval.runtime.guard import Guard, caller
from loadeval.runtime.log_queue import DROPPED, LogQueue
from loadeval.runtime.log_queue import THREAD as LOG
from loadeval.runtime.metrics_thread import NO_PROBES, MetricsReader
from loadeval.runtime.open_epoch import OpenEpoch
from loadeval.runtime.stages import StageRecorder
from loadeval.runtime.thinning import Thinning, gpu_idle_of
from loadeval.runtime.threads import BackgroundThreads, within

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.runlog.codec import Line
    from loadeval.runlog.model import (
        CacheInfo,
        EventKind,
        LoaderInfo,
        Prefetch,
        Run,
        Window,
    )
    from loadeval.runtime.metrics_thread import Probes
    from loadeval.runtime.settings import Settings
    from loadeval.runtime.stages import LoaderStages

FLUSH_INTERVAL_S = 0.5
"""A killed process loses at most about a second of batches."""
MAX_WAITING_CHUNKS = 8
"""How many chunks may wait for the log thread before the hot loop takes them itself."""
NOTHING_SERVED = (
    "nothing was measured: no batch was served through this LoaderEvaluator. Was it iterated? A "
    "framework may have put another loader in its place; evaluate_in_place(dataloader) measures "
    "that too"
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


def new_recorder(  # noqa: PLR0913 - nearly all by keyword
    settings: Settings,
    info: LoaderInfo,
    *,
    name: str,
    facts: dict[str, Any],
    environment: dict[str, Any],
    probes: Probes,
    cache: CacheInfo | None = None,
    stages: Callable[[], LoaderStages | None],
) -> Recorder:
    """A Recorder with the header of a run, and a log if `settings` name a file.

    `facts` are the settings that the header tells. `stages` makes what looks into the loader.
    Raises RunLogError if the log exists or cannot be written.
    """
    redact: Callable[[Line], Line] = _as_it_is
    if settings.redact:
        from loadeval.runlog.redaction import redacted  # noqa: PLC0415 - few runs need it

        redact = redacted
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
        every=settings.every,
    )
    header = cast("Header", redact(header))
    path = settings.log_file
    log = None if path is None else RunLog(path, header, overwrite=settings.overwrite)
    inside = stages if settings.looks_inside else _no_stages
    return Recorder(header, log, settings.clock, probes, inside, redact=redact)


def _as_it_is(line: Line) -> Line:
    return line


def _no_stages() -> None:
    """Nothing looks into this loader."""


class Recorder:
    """Collects the epochs of a run, in its log or in memory; owns the threads that do so.

    A log is brought up to date by a thread that lives only between an epoch's first batch and
    its end, and so does the one that reads the probes: a loader that forks its workers when an
    epoch begins forks with no thread of ours. No training waits for the log's file; what that
    cannot take for too long is dropped, and counted.

    A forked child records nothing of what its parent does, and what it begins itself in memory.

    What fails in loadeval, here or where else `guard` is asked, ends the recording.
    """

    def __init__(
        self,
        header: Header,
        log: RunLog | None,
        clock: Callable[[], int],
        probes: Probes,
        stages: Callable[[], LoaderStages | None],
        *,
        redact: Callable[[Line], Line],
    ) -> None:
        self.header = header
        self._redact = redact
        self.guard = Guard(self._give_up)
        self.origin_ns = clock()
        self._stages = StageRecorder(stages)
        self.closed = False
        self.batches = 0
        self.expects_batches = True
        self._clock = clock
        self._epochs = 0
        self._spare_events: deque[Any] = deque()
        self._parents: tuple[object, ...] = ()
        self._start(None if log is None else LogQueue(log), probes)
        _all.add(self)

    def _start(self, log: LogQueue | None, probes: Probes) -> None:
        """Begin with nothing recorded, in this process."""
        self._process = os.getpid()
        self._log = log
        self._has_log_thread = True
        self._dropped = 0
        self._is_draining = False
        self._live: list[OpenEpoch] = []
        self._kept: list[Line] = []
        self._to_do: deque[Callable[[], None]] = deque()
        self._lock = threading.RLock()
        self._threads = BackgroundThreads(self.guard)
        self._metrics = MetricsReader(probes, self._clock, self.origin_ns, self._threads)
        self._gpu_idle_timers: list[GpuIdleTimer] = []

    def leave_to_parent(self) -> None:
        """In a forked child: what was recorded until now, and the log, are the parent's.

        Its threads are not here, and they may have held a lock.
        """
        # Kept, for what they hold of a device cannot be freed here, and a file may stall.
        self._parents = self._log, self._stages, self._gpu_idle_timers, self._spare_events
        self._stages, self._spare_events = StageRecorder(_no_stages), deque()
        self._start(None, NO_PROBES)

    def _leave_if_forked(self) -> None:
        """Where nothing has called us in a forked child: C code forked, or it is just beginning."""
        if os.getpid() != self._process:
            self.leave_to_parent()

    def look_into(self, loader: Any) -> Callable[[int], object]:
        """Look into the epoch of `loader` that begins next; see LoaderStages.begin."""
        self._leave_if_forked()
        return self._stages.begin(loader)

    def look_no_more(self) -> None:
        """Leave the loader as it was."""
        self._do(self._stages.close)

    def begin_epoch(self, known: Callable[[int], object] | None = None) -> OpenEpoch:
        """Open the next epoch; `known` is told its number."""
        self._leave_if_forked()
        if self.closed:  # the iterator is older than that
            return OpenEpoch(self, self._epochs)
        event, gpu_idle = timing_events(), None
        if event is not None:
            gpu_idle = GpuIdleTimer(self._epochs, event, self._spare_events)
            self._gpu_idle_timers.append(gpu_idle)
        every = self.header.every
        thinning = Thinning(self._epochs, every, self.header.warmup) if every > 1 else None
        epoch = OpenEpoch(self, self._epochs, gpu_idle, thinning)
        self._epochs += 1
        self._live.append(epoch)
        if known is not None:
            known(epoch.number)
        return epoch

    def started(self) -> None:
        """Start the threads: now there is something to write and a reason to read probes."""
        if self.closed:
            return
        if self._log is not None:
            work = partial(self._bring_up_to_date, self._log)
            self._has_log_thread = self._threads.start(LOG, work, FLUSH_INTERVAL_S, at_end=True)
        self._metrics.start_when_due()

    def chunk_filled(self, epoch: OpenEpoch) -> None:
        """Take full chunks, so that they do not pile up in memory."""
        if epoch not in self._live:
            epoch.chunks.clear()
            return
        if self._log is None:
            self.drain()
        elif len(epoch.chunks) > MAX_WAITING_CHUNKS:
            self.drain()
            self._threads.hurry(LOG)
            self._log.relieve()
        if epoch.has_batches:
            self.started()

    def epoch_ended(self, epoch: OpenEpoch, end: EpochEnd) -> None:
        """Write the rest of the epoch and how it ended."""
        self._leave_if_forked()  # garbage may be collected before `_leave_all_to_parent` is called
        if end.cause == "exhausted" and not epoch.has_batches and not self.closed:
            warn(EMPTY_EPOCH, stacklevel=caller()[1] + 1)  # where a batch was asked for
        self._to_do.append(partial(self._end, epoch, end))
        if self._live == [epoch] and not self._is_locked_here():
            self._threads.stop()  # that of the log does it, last of all
        self._do_what_is_left()

    def mark(self) -> None:
        """Read the probes now, at the edge of a block."""
        self._metrics.mark()

    def keep(self, fact: Prefetch | Window | Event) -> None:
        """Record what happened at the edge of a block."""
        self._do(partial(self._keep_fact, fact), is_one_step=True)

    def note(self, message: str, kind: EventKind = "note") -> None:
        """Record an event, now."""
        self.keep(self._event(message, kind))

    def drain(self) -> None:
        """Take what the live epochs have measured to where it is kept."""
        self._do(self._drain)

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
            self._to_do.append(partial(self._end_early, message))
            self._do_what_is_left()

    def _end_early(self, message: str) -> None:
        """End the log with what was measured until now, and why there is no more."""
        if self.closed:
            return
        with ExitStack() as last_first:
            last_first.callback(setattr, self, "closed", True)  # then the file may be closed
            last_first.callback(self._live.clear)
            last_first.callback(self._put_end)
            last_first.callback(self._keep, self._event(message), always=True)
            last_first.callback(self._stages.close)
            if not self._is_draining:  # which has failed, and may have left a gap
                self._drain()
                for line in self._rest():
                    self._keep(line, always=True)

    def _put_end(self) -> None:
        if self._log is not None and not self._log.is_broken:
            self._log.put(RunEnd(self.batches))

    def run(self) -> Run:
        """Everything measured so far; from the log where there is one."""
        taken: list[tuple[int, list[bytes], list[Line], bool]] = []
        self._do(lambda: taken.append(self._drained()))
        # It is not done yet where a signal interrupted what is.
        return self._read_back(*(taken[0] if taken else self._snapshot()))

    def _drained(self) -> tuple[int, list[bytes], list[Line], bool]:
        self._drain()
        return self._snapshot()

    def _snapshot(self) -> tuple[int, list[bytes], list[Line], bool]:
        """How many bytes of the log to read, and what is not in it yet."""
        log, written_bytes, texts = self._log, 0, list[bytes]()
        if log is not None and log.is_file:
            written_bytes, texts = log.snapshot()
        readable = 0 if log is None or log.is_lost else written_bytes
        return readable, texts, [*self._kept, *self._rest()], self.closed

    def _read_back(
        self, written_bytes: int, texts: list[bytes], lines: list[Line], closed: bool
    ) -> Run:
        from loadeval.runlog.reader import Assembly  # noqa: PLC0415 - training itself reads no log

        assembly = Assembly(None)
        if self._log is not None and written_bytes:
            assembly = Assembly.of_file(self._log.path, written_bytes)
        if assembly.header is None:
            assembly.take(self._redact(self.header))
        for line in [*(decode(json.loads(text)) for text in texts), *map(self._redact, lines)]:
            assembly.take(line)
        assembly.closed = closed
        return assembly.run()

    def close(self) -> None:
        """Bring the log up to date and end it, once. What is served later is not measured.

        In a forked child, whose log it is not, nothing happens.
        """
        if self._parents or os.getpid() != self._process:
            return
        unseen = self.expects_batches and not self._epochs and not self.closed
        self._threads.stop()
        self._metrics.close()
        self._do(partial(self._close, unseen))
        if unseen:
            warn(NOTHING_SERVED, stacklevel=2)

    def _close(self, unseen: bool) -> None:
        if self.closed:
            return
        for gpu_idle in self._gpu_idle_timers:
            gpu_idle.wait()
        self._stages.close()
        self._drain()
        for line in self._rest():
            self._keep(line, always=True)
        self.closed = True
        self._live.clear()
        if unseen:
            self._keep(self._event(NOTHING_SERVED), always=True)
        self._tell_dropped()
        self._put_end()

    def _do(self, work: Callable[[], None], *, is_one_step: bool = False) -> None:
        """Do `work` alone with the recorder: now, or when what this thread is doing is done.

        The garbage collector may end an abandoned epoch, or a whole recorder, in the middle of
        anything, on any thread; so may what handles a signal, on the main thread. There that may
        also break off what is being done, and a log would lack its middle, unless `is_one_step`.
        """
        self._to_do.append(work)
        self._do_what_is_left(is_one_step=is_one_step)

    def _do_what_is_left(self, *, is_one_step: bool = False) -> None:
        if self._is_locked_here():
            return
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and self._log is not None and self._to_do and not is_one_step:
            within(None, LOG, self._do_all)
        else:
            self._do_all()  # or wait for the thread that does
        if self._to_do:  # of what handled a signal meanwhile
            self._do_all()
        # Not before the lock is free, for which a thread may wait.
        if not self._live:
            self._threads.stop()
        if self._log is not None and not self._has_log_thread:
            self._log.write()
        if self._log is not None and self.closed:
            self._log.end()

    def _do_all(self) -> None:
        with self.guard, self._lock:
            while self._to_do:
                self._to_do.popleft()()

    def _is_locked_here(self) -> bool:
        is_owned: bool = self._lock._is_owned()  # type: ignore[attr-defined]  # noqa: SLF001 - a flag of ours would be set too late or too early
        return is_owned

    def _end(self, epoch: OpenEpoch, end: EpochEnd) -> None:
        if epoch not in self._live:
            return
        self._drain()
        self._live.remove(epoch)
        for line in self._rest_of(epoch, end):
            self._keep(line, always=True)
        if epoch.gpu_idle is not None:
            epoch.gpu_idle.ended = True

    def _drain(self) -> None:
        self._is_draining = True
        self._tell_dropped()
        for epoch in list(self._live):
            for block in epoch.take():
                if epoch.is_cut_off or self._is_full():
                    self._drop(epoch, block)
                    continue
                self.batches += len(block)
                for line in [block] if epoch.thinning is None else epoch.thinning.take(block):
                    self._keep(line, always=True)
        self._drain_metrics()
        self._drain_stages()
        self._is_draining = False

    def _is_full(self) -> bool:
        return self._log is not None and self._log.is_full and not self._log.is_broken

    def _drop(self, epoch: OpenEpoch, block: Block) -> None:
        """Leave `block` out of the log, and all that follows in its epoch.

        The epoch's line says that it was not measured from there on: the next block of it that
        the log had would seem to end the step before this one.
        """
        if not epoch.is_cut_off:
            request_ns = int(block.request_ns[0])
            for line in self._rest_of(epoch, EpochEnd(epoch.number, "unmeasured", request_ns, 0)):
                self._keep(line, always=True)
            epoch.is_cut_off = True
        self._dropped += len(block)

    def _tell_dropped(self) -> None:
        if self._log is None or not self._dropped:
            return
        self._log.tell(DROPPED)
        if self.closed or not self._is_full():
            self._keep(self._event(NOT_RECORDED.format(batches=self._dropped)), always=True)
            self._dropped = 0

    def _rest(self) -> list[Line]:
        """What the live epochs would still write if they ended now."""
        return [line for epoch in self._live for line in self._rest_of(epoch, epoch.failure)]

    def _rest_of(self, epoch: OpenEpoch, end: EpochEnd | None) -> list[Line]:
        if epoch.is_cut_off:
            return []
        request_ns = None if end is None else end.request_ns
        lines: list[Line] = [] if epoch.thinning is None else [*epoch.thinning.rest(request_ns)]
        return lines if end is None else [*lines, end]

    def _event(self, message: str, kind: EventKind = "note") -> Event:
        return Event(self._clock() - self.origin_ns, message, kind)

    def _keep_fact(self, fact: Prefetch | Window | Event) -> None:
        cut_off = {epoch.number for epoch in self._live if epoch.is_cut_off}
        if not self.closed and (isinstance(fact, Event) or fact.epoch not in cut_off):
            self._keep(fact, always=True)

    def _keep(self, line: Line, *, always: bool = False) -> None:
        """Take `line` to the log, or to memory; a log that is full gets what it must have."""
        log, line = self._log, self._redact(line)
        if log is not None and log.is_broken and log.is_lost and not self._kept:
            self._kept.append(self._event(LOST.format(path=log.path)))
        if log is None or log.is_broken or not log.is_file:
            self._kept.append(line)
        if log is not None and not log.is_broken and (always or not log.is_full):
            log.put(line.with_steps() if isinstance(line, Block) else line)

    def _drain_metrics(self) -> None:
        """Write what the probes have read, and what the GPU idled in waits."""
        for line in self._metrics.take():
            self._keep(line)
        for gpu_idle in list(self._gpu_idle_timers):
            taken = gpu_idle.take()
            found = None if taken is None else gpu_idle_of(taken, self.header.every)
            if found is not None:
                self._keep(found)
            if gpu_idle.done:
                self._gpu_idle_timers.remove(gpu_idle)

    def _drain_stages(self) -> None:
        """Write what happened inside the loader, of one batch in `every`, until the run is over."""
        for line in [] if self.closed else self._stages.take():
            found = line
            if isinstance(line, StageTimes):
                found = line.part(line.batch % self.header.every == 0)
                if not len(found):
                    continue
            self._keep(found)


_all: weakref.WeakSet[Recorder] = weakref.WeakSet()


def _leave_all_to_parent() -> None:
    for recorder in list(_all):
        recorder._leave_if_forked()  # noqa: SLF001 - its own module


# Windows, which does not fork, has no such function.
getattr(os, "register_at_fork", dict)(after_in_child=_leave_all_to_parent)
