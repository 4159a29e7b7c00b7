"""What a run has measured so far, kept in its log, or in memory when it has none."""

from __future__ import annotations

import os
import threading
import warnings
from collections import deque
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from loadeval.errors import LoadevalWarning
from loadeval.runlog.model import Block, Event
from loadeval.runlog.reader import Assembly
from loadeval.runtime.device import Starving, timing_events
from loadeval.runtime.sampler import NO_PROBES, Sampler
from loadeval.runtime.thinning import Thinning, starvation_of
from loadeval.runtime.threads import BackgroundThreads
from loadeval.runtime.track import Track

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from loadeval.runlog.lines import Line
    from loadeval.runlog.model import EpochEnd, Header, Pull, Run, Window
    from loadeval.runlog.reader import RunLog
    from loadeval.runtime.sampler import Probes

FLUSH_INTERVAL_S = 0.5
"""Half of the second that a killed process may lose."""
MAX_WAITING_CHUNKS = 8
"""Chunks that may wait for the log's thread before the hot loop writes them itself."""
UNSEEN = (
    "nothing was measured: no batch was served through this LoaderEvaluator. Was it iterated? A "
    "framework may have put another loader in its place; evaluate_in_place(dataloader) measures "
    "those too"
)
EMPTY = (
    "the loader gave no batch in this epoch; if it can be iterated only once, as a generator, "
    "wrap a callable that returns a new one"
)


class Recording:
    """Collects the epochs of a run.

    A log is brought up to date by a thread that lives only between an epoch's first batch and
    its end, and so does the one that reads the probes: a loader that forks its workers when an
    epoch begins forks with no thread of ours.
    """

    def __init__(
        self,
        header: Header,
        log: RunLog | None,
        clock: Callable[[], int],
        probes: Probes = NO_PROBES,
    ) -> None:
        self.header = header
        self.origin_ns = clock()
        self.closed = False
        self.batches = 0
        self.expects_batches = True
        self._log = log
        self._clock = clock
        self._epochs = 0
        self._live: list[Track] = []
        self._kept: list[Line] = []
        self._to_do: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()
        self._locked_by: int | None = None
        self._threads = BackgroundThreads()
        self._sampler = Sampler(probes, clock, self.origin_ns, self._threads)
        self._starving: list[Starving] = []
        self._spare_events: deque[Any] = deque()
        self._process = os.getpid()

    def begin_epoch(self) -> Track:
        """A track for the next epoch."""
        self._stay_out_of_the_parents_log()
        event = timing_events()
        starving = None if event is None else Starving(self._epochs, event, self._spare_events)
        if starving is not None:
            self._starving.append(starving)
        every, thinning = self.header.every, None
        if every > 1:
            thinning = Thinning(self._epochs, every, self.header.warmup)
        track = Track(self, self._epochs, starving, thinning)
        self._epochs += 1
        self._live.append(track)
        return track

    def started(self) -> None:
        """From now on there is something to write."""
        if self._log is not None:
            self._threads.start("loadeval-log", self.drain, FLUSH_INTERVAL_S)
        self._sampler.start_when_due()

    def chunk_filled(self, track: Track) -> None:
        """Keep what waits in memory small."""
        if self.closed:
            track.chunks.clear()
            return
        if self._log is None or len(track.chunks) > MAX_WAITING_CHUNKS:
            self.drain()
        if track.has_batches:
            self.started()

    def epoch_ended(self, track: Track, end: EpochEnd) -> None:
        """Bring all of the epoch to where it is kept."""
        if end.cause == "exhausted" and not track.has_batches and not self.closed:
            warnings.warn(EMPTY, LoadevalWarning, stacklevel=4)  # where a batch was asked for
        self._do(partial(self._end, track, end))

    def mark(self) -> None:
        """Have the probes read now, at the edge of a block."""
        self._sampler.mark()

    def keep(self, fact: Pull | Window | Event) -> None:
        """Record what happened at the edge of a block."""
        with self._locked():
            if not self.closed:
                self._keep(fact)

    def note(self, message: str) -> None:
        """Record an event, now."""
        self.keep(self._event(message))

    def drain(self) -> None:
        """Take what the live epochs have measured to where it is kept."""
        with self._locked():
            self._drain()

    def run(self) -> Run:
        """Everything measured so far; from the log where there is one."""
        with self._locked():
            self._drain()
            log, header = self._log, [self.header]
            written = 0 if log is None else log.written_bytes
            lines = [*self._kept, *self._rest()]
            closed = self.closed
        # Reading a long log takes seconds, in which the training goes on.
        assembly = Assembly(None) if log is None else Assembly.of_file(log.path, written)
        for line in ([] if assembly.header else header) + lines:
            assembly.take(line)
        assembly.closed = closed
        return assembly.run()

    def close(self) -> None:
        """Bring the log up to date and end it, once. What is served later is not measured.

        In a forked child, whose log it is not, nothing happens.
        """
        if os.getpid() != self._process:
            return
        unseen = self.expects_batches and not self._epochs and not self.closed
        self._threads.stop()
        self._sampler.close()
        self._do(partial(self._close, unseen))
        if unseen:
            warnings.warn(UNSEEN, LoadevalWarning, stacklevel=2)

    def _close(self, unseen: bool) -> None:
        if self.closed:
            return
        for starving in self._starving:
            starving.wait()
        self._drain()
        for line in self._rest():
            self._keep(line)
        self.closed = True
        self._live.clear()
        if unseen:
            self._keep(self._event(UNSEEN))
        if self._log is not None and not self._log.broken:
            self._attempt(self._log, partial(self._log.end, self.batches))

    def _do(self, work: Callable[[], None]) -> None:
        """Do `work` alone with the recording: now, or when what this thread is doing is done.

        The garbage collector may end an abandoned epoch, or a whole recording, in the middle of
        anything, on any thread.
        """
        self._to_do.append(work)
        if self._locked_by != threading.get_ident():
            with self._locked():
                pass

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._lock:
            self._locked_by = threading.get_ident()
            live = len(self._live)
            try:
                yield
                while self._to_do:
                    self._to_do.popleft()()
            finally:
                self._locked_by = None
        if live and not self._live:  # not before the lock is free, for which a thread may wait
            self._threads.stop()

    def _end(self, track: Track, end: EpochEnd) -> None:
        if self.closed or track not in self._live:
            return
        self._drain()
        self._live.remove(track)
        for line in (*track.rest(end.request_ns), end):
            self._keep(line)
        if track.starving is not None:
            track.starving.ended = True

    def _drain(self) -> None:
        for track in list(self._live):
            for block in track.take():
                self.batches += len(block)
                for line in track.kept_of(block):
                    self._keep(line)
        self._drain_beside()

    def _rest(self) -> list[Line]:
        """What the live epochs would keep besides if they ended now."""
        lines: list[Line] = []
        for track in self._live:
            failure = track.failure
            lines += track.rest(None if failure is None else failure.request_ns)
            lines += [] if failure is None else [failure]
        return lines

    def _event(self, message: str) -> Event:
        return Event(self._clock() - self.origin_ns, message)

    def _keep(self, line: Line) -> None:
        log = self._log
        if log is not None and not log.broken:
            written = line.with_steps() if isinstance(line, Block) else line
            self._attempt(log, partial(log.write, written))
        if log is None or log.broken:
            self._kept.append(line)

    def _attempt(self, log: RunLog, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            log.broken = True
            log.close()
            warnings.warn(
                f"the run log {log.path} cannot be written any more ({error}); measuring goes on "
                "in memory, and save_metrics() can save it",
                LoadevalWarning,
                stacklevel=2,
            )

    def _drain_beside(self) -> None:
        """What the probes have read, and the device has told."""
        for line in self._sampler.take():
            self._keep(line)
        for starving in list(self._starving):
            found = starving.take()
            if found is not None:
                found = starvation_of(found, self.header.every)
            if found is not None:
                self._keep(found)
            if starving.done:
                self._starving.remove(starving)

    def _stay_out_of_the_parents_log(self) -> None:
        if os.getpid() == self._process:
            return
        self._process = os.getpid()
        if self._log is not None:
            self._log.close()
        self._log = None
        self._threads = BackgroundThreads()
        self._sampler = Sampler(NO_PROBES, self._clock, self.origin_ns, self._threads)
        self._starving = []
        self._live, self._kept = [], []
        self._to_do.clear()
        self._lock = threading.Lock()
        self._locked_by = None
