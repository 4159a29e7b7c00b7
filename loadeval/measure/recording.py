"""What a run has measured so far, kept in its log, or in memory when it has none."""

from __future__ import annotations

import os
import threading
import warnings
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from loadeval.errors import LoadevalWarning
from loadeval.measure.device import Starving, timing_events
from loadeval.measure.flusher import Flusher
from loadeval.measure.sampler import NO_PROBES, Sampler
from loadeval.measure.thinning import Thinning, starvation_of
from loadeval.measure.track import Track
from loadeval.record.model import Block, Event
from loadeval.record.runlog import Assembly

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.measure.sampler import Probes
    from loadeval.record.lines import Line
    from loadeval.record.model import EpochEnd, Header, Pull, Run, Window
    from loadeval.record.runlog import RunLog

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
        self._lock = threading.RLock()
        self._flusher: Flusher | None = None
        self._sampler = Sampler(probes, clock, self.origin_ns)
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
        if self._log is not None and self._flusher is None:
            self._flusher = Flusher(self.drain)
        self._sampler.start_when_due()

    def chunk_filled(self, track: Track) -> None:
        """Keep what waits in memory small."""
        if self.closed:
            track.chunks.clear()
            return
        if self._log is None or len(track.chunks) > MAX_WAITING_CHUNKS:
            self.drain()
        if track.has_batches:
            self._sampler.start_when_due()

    def epoch_ended(self, track: Track, end: EpochEnd) -> None:
        """Bring all of the epoch to where it is kept."""
        if self.closed:
            return
        with self._lock:
            self.drain()
            self._live.remove(track)
            for line in (*track.rest(end.request_ns), end):
                self._keep(line)
        if end.cause == "exhausted" and not track.has_batches:
            warnings.warn(EMPTY, LoadevalWarning, stacklevel=4)  # where a batch was asked for
        if track.starving is not None:
            track.starving.ended = True
        if not self._live:
            self._stop_threads()

    def mark(self) -> None:
        """Have the probes read now, at the edge of a block."""
        self._sampler.mark()

    def keep(self, fact: Pull | Window) -> None:
        """Record what happened at the edge of a block."""
        self._keep(fact)

    def note(self, message: str) -> None:
        """Record an event, now."""
        self._keep(Event(self._clock() - self.origin_ns, message))

    def drain(self) -> None:
        """Take what the live epochs have measured to where it is kept."""
        with self._lock:
            for track in list(self._live):
                for block in track.take():
                    self.batches += len(block)
                    for line in track.kept_of(block):
                        self._keep(line)
            self._drain_beside()

    def run(self) -> Run:
        """Everything measured so far; from the log where there is one."""
        with self._lock:
            self.drain()
            assembly = Assembly.of_file(self._log.path) if self._log else Assembly(None)
            rest = [line for track in self._live for line in track.rest(None)]
            for line in ([] if assembly.header else [self.header]) + self._kept + rest:
                assembly.take(line)
        assembly.closed = self.closed
        return assembly.run()

    def close(self) -> None:
        """Bring the log up to date and end it, once. What is served later is not measured.

        In a forked child, whose log it is not, nothing happens.
        """
        if os.getpid() != self._process:
            return
        self._stop_threads()
        self._sampler.close()
        with self._lock:
            for starving in self._starving:
                starving.wait()
            self.drain()
            for line in [line for track in self._live for line in track.rest(None)]:
                self._keep(line)
            self.closed = True
            self._live.clear()
            unseen = self.expects_batches and not self._epochs
            if unseen:
                self.note(UNSEEN)
            log = self._log
            if log is not None and not log.broken:
                self._attempt(log, partial(log.end, self.batches))
        if unseen:
            warnings.warn(UNSEEN, LoadevalWarning, stacklevel=2)

    def _keep(self, line: Line) -> None:
        with self._lock:
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

    def _stop_threads(self) -> None:
        flusher, self._flusher = self._flusher, None
        if flusher is not None:
            flusher.stop()
        self._sampler.stop()

    def _stay_out_of_the_parents_log(self) -> None:
        if os.getpid() == self._process:
            return
        self._process = os.getpid()
        if self._log is not None:
            self._log.close()
        self._log = self._flusher = None
        self._sampler = Sampler(NO_PROBES, self._clock, self.origin_ns)
        self._starving = []
        self._live, self._kept = [], []
        self._lock = threading.RLock()
