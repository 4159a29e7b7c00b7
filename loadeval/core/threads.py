"""The threads beside a training: one writes the log, one reads the machine.

A training never waits long for one of them, and its signals are its own.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from loadeval.data.lines import LARGEST_VALUE, CodeSamples, Readings
from loadeval.data.log import RunLog, why
from loadeval.errors import Guard, ProbeError, warn
from loadeval.probes import Probe

PAUSE_S = 0.02
"""It is four of the intervals after which threads pass on Python's lock."""
LONGEST_JOIN_S = 0.1
"""A training waits so long, once, for a thread that does not end, as when a file stalls."""


class OwnThread(threading.Thread):
    """A daemon thread that does `work`, and takes no signal.

    A program may block a signal in its own thread, to save a checkpoint for example. The system
    would then give the signal to a thread that does not block it.
    """

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        super().__init__(name=name, daemon=True)
        self._work = work
        self.error: Exception | None = None

    def begins(self) -> bool:
        """Start it; False where that cannot be: no memory is left for its stack, or Python ends."""
        if sys.is_finalizing():
            return False  # it would start, and never run
        try:
            self.start()
        except RuntimeError:
            return False
        return True

    def run(self) -> None:
        """Do the work."""
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._work()
        except Exception as error:  # noqa: BLE001 - for who waits for it
            self.error = error


def is_own() -> bool:
    """Whether this is a thread of ours. The garbage collector may run anything on one."""
    return isinstance(threading.current_thread(), OwnThread)


def within(limit_s: float, name: str, work: Callable[[], None]) -> bool:
    """Whether `work`, on a thread of its own, ended within `limit_s`; it may go on after that.

    Raises what `work` raised until then. On a thread of ours nothing is waited for: True. Where no
    thread can be started `work` is done here.
    """
    thread = OwnThread(name, work)
    if not thread.begins():
        work()
        return True
    if is_own():
        return True
    thread.join(limit_s)
    if thread.error is not None:
        raise thread.error
    return not thread.is_alive()


def pause_at_exit() -> None:
    """Where the program ends while it has other threads, let these go on for a moment.

    Python ends a daemon thread where it next wants Python's lock, and compiled code such as
    torch's aborts the whole program if that is inside of it. After much work of ours at the end
    threads queue for the lock, most of them in such code; after a pause they are where they would
    be without us.
    """
    if not threading.main_thread().is_alive() and threading.active_count() > 1:
        time.sleep(PAUSE_S)


class BackgroundThreads:
    """Threads that each call a function at an interval, until all of them are stopped.

    The garbage collector may free an abandoned epoch on one of these threads, which then stops
    them all. So none of these threads ever waits for another. What they raise trips `guard`.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        # Two threads of a program may start one of a name each, at once: both are stopped.
        self._running: list[tuple[OwnThread, threading.Lock]] = []

    def start(
        self,
        name: str,
        work: Callable[[], None],
        interval_s: float,
        *,
        at_end: bool = False,
    ) -> None:
        """Call `work` now and every `interval_s`, unless a thread of that name already runs.

        With `at_end` not now, but also when it is stopped. Nothing is done where no thread can be
        started.
        """
        if any(thread.name == name for thread, _ in self._running):
            return
        going_on = threading.Lock()  # held until it is stopped; an Event's own lock is Python code
        going_on.acquire()

        def repeat() -> None:
            is_stopped = False
            while not is_stopped:
                if at_end:
                    is_stopped = going_on.acquire(timeout=interval_s)
                with self._guard:
                    work()
                if not at_end:
                    is_stopped = going_on.acquire(timeout=interval_s)

        thread = OwnThread(name, repeat)
        if thread.begins():
            self._running.append((thread, going_on))

    def stop(self) -> None:
        """Stop all threads once their current call returns. One that hangs is left alone."""
        stopped: list[OwnThread] = []
        with suppress(IndexError):  # none is left; two threads may stop them at once
            while True:
                thread, going_on = self._running.pop()
                going_on.release()
                stopped.append(thread)
        if not is_own():
            for thread in stopped:
                thread.join(LONGEST_JOIN_S)


LOG_THREAD = "loadeval-log"
STALLED_S = 0.05
LONGEST_END_S = 3.0
"""The end of a run waits no longer for a file that stalls."""
STALLS = "it takes nothing at present"
_warned: set[tuple[Path, str]] = set()
"""A warning has said that something in this folder is not written, for this reason."""
_stalling: set[Path] = set()
"""Files in these folders took nothing when a run ended last."""


class LogQueue:
    """The lines of a run that are not in its file; all of them where it has none.

    They come from a training, which never waits, and other threads write them to `log`. A file that
    stalls gets them later; one that cannot be written any more gets none.
    """

    def __init__(self, log: RunLog | None) -> None:
        self.log = log
        self._written_bytes = 0 if log is None else log.written_bytes
        self._waiting: deque[bytes] = deque()
        self._writing = threading.Lock()
        self._moving = threading.RLock()
        self._is_broken = self._is_ended = False

    def put(self, text: bytes) -> None:
        """Let the `text` of a line be written."""
        self._waiting.append(text)

    def snapshot(self) -> tuple[int, list[bytes]]:
        """How many bytes of the file can be read back, and the lines behind those."""
        with self._moving:
            is_lost = self.log is None or self.log.is_lost
            return 0 if is_lost else self._written_bytes, list(self._waiting.copy())

    def write(self, patience_s: float = 0.0) -> bool:
        """Write what waits; False where another thread does so, or hangs in it, for that long."""
        log = self.log
        if log is None:
            return True
        if not self._writing.acquire(timeout=patience_s):
            return False
        try:
            while self._waiting and not self._is_broken:
                texts = list(self._waiting.copy())
                # It is one call: after each of them a thread waits for Python's lock.
                log.append(b"".join(texts))
                _stalling.discard(log.path.parent)
                with self._moving:
                    self._written_bytes = log.written_bytes
                    for _ in texts:
                        self._waiting.popleft()
        except OSError as error:
            self._is_broken = True
            log.close()
            reason = why(error)
            # That another run overwrites it was asked for.
            if not log.is_overwritten and is_news(log.path.parent, reason):
                warn(
                    f"the run log {log.path} cannot be written any more ({reason}); the run "
                    "continues in memory, and save_metrics() can save it"
                )
        finally:
            self._writing.release()
        return True

    def end(self) -> None:
        """Write what waits, and close the file; a file that stalls is not waited for long."""
        log = self.log
        if self._is_ended or log is None:
            return

        def write_and_close() -> None:
            if self.write(2 * LONGEST_END_S):  # longer than anybody waits for this
                log.close()
                self._is_ended = True  # until then, whoever comes waits too

        folder = log.path.parent
        if not within(patience_s(folder), LOG_THREAD, write_and_close) and not self._is_broken:
            _stalling.add(folder)
            if is_news(folder, STALLS):
                warn(f"the last lines of the run log {log.path} are missing ({STALLS})")


def patience_s(folder: Path) -> float:
    """How long to wait, at the end of a run, for files in `folder`: not for each of them."""
    return STALLED_S if folder in _stalling else LONGEST_END_S


def is_news(folder: Path, reason: str) -> bool:
    """Whether this is the first file in `folder` that cannot be written for this `reason`."""
    was_warned = (folder, reason) in _warned
    _warned.add((folder, reason))
    return not was_warned


Reading = tuple[str, str, int, Mapping[str, float | None]]
"""It has a probe's name, a subject, the time, and the value of each quantity; None is not known."""


PROBES_THREAD = "loadeval-probes"
LONGEST_MARK_S = 0.1
"""A training waits no longer at the edge of a block for probes to be read."""
LONGEST_CLOSE_S = 1.0


class MetricsReader:
    """Reads `probes` at their interval while epochs are served, first after one interval.

    The thread, one of `threads`, starts when a reading is due, not with the epoch: a shorter
    epoch has nothing to read, and should not pay for a thread.

    While it `is_paused` only light probes are read, and others at the edges of blocks.

    A probe that raises is closed, and a subject for which it returns text is not read again; the
    readings say why. Probes are called on threads of ours alone: one that hangs keeps others from
    being read, and holds up nothing else.
    """

    def __init__(
        self,
        probes: Iterable[Probe],
        interval_s: float,
        clock: Callable[[], int],
        origin_ns: int,
        threads: BackgroundThreads,
    ) -> None:
        self._interval_s = interval_s
        self._clock, self._origin_ns = clock, origin_ns
        self._threads = threads
        self._due_ns: int | None = None
        self._waiting = list(probes)
        self._open: list[Probe] = []
        self._readings: deque[Reading] = deque()
        self._notices: deque[Readings | CodeSamples] = deque()
        self._ticks = 0
        self.is_paused = self._was_late = False
        self._lock = threading.Lock()

    def start_when_due(self) -> None:
        """Start the thread once an interval has passed since the first call or last reading."""
        if not (self._waiting or self._open):
            return
        if self._due_ns is None:
            self._set_due()
        elif self._clock() >= self._due_ns:
            self._threads.start(PROBES_THREAD, self.tick, self._interval_s)

    def _set_due(self) -> None:
        self._due_ns = self._clock() + int(self._interval_s * 1e9)

    @property
    def can_pause(self) -> bool:
        """Whether `is_paused` makes a difference."""
        return not all(probe.is_light for probe in (*self._waiting, *self._open))

    def tick(self) -> None:
        """Read each probe that is due; the first tick opens all of them."""
        if not self._lock.acquire(blocking=False):  # one hangs
            return
        try:
            waiting, self._waiting = self._waiting, []
            for probe in (*waiting, *self._open):
                self._ask(probe)
            self._ticks += 1
        finally:
            self._lock.release()
        self._set_due()

    def mark(self) -> None:
        """Read each open probe now, so that its next means cover the time from here on."""

        def read() -> None:
            with self._lock:
                for probe in list(self._open):
                    self._ask(probe, is_edge=True)

        if self._open and not (self._was_late and self._lock.locked()):
            self._was_late = not within(LONGEST_MARK_S, PROBES_THREAD, read)

    def close(self) -> None:
        """Close all probes; stop the threads first."""

        def close_all() -> None:
            with self._lock:
                while self._open:
                    _close(self._open.pop(0))

        self._waiting = []
        if self._open:
            within(LONGEST_CLOSE_S, PROBES_THREAD, close_all)

    def take(self) -> list[Readings | CodeSamples]:
        """What was read, and what ended, since the last call."""
        # Ends are taken first and returned last, so no reading follows its subject's end.
        ends = [self._notices.popleft() for _ in range(len(self._notices))]
        tables: dict[tuple[str, str], list[Reading]] = {}
        for _ in range(len(self._readings)):
            reading = self._readings.popleft()
            tables.setdefault(reading[:2], []).append(reading)
        lines: list[Readings | CodeSamples] = []
        for (probe, subject), rows in tables.items():
            names = dict.fromkeys(name for *_, values in rows for name in values)
            columns = {name: [values.get(name) for *_, values in rows] for name in names}
            lines.append(Readings(probe, subject, [time_ns for _, _, time_ns, _ in rows], columns))
        return [*lines, *ends]

    def _ask(self, probe: Probe, *, is_edge: bool = False) -> None:
        """Open `probe` if it is not open, and read it if it is due; what it raises ends it."""
        try:
            if probe not in self._open:
                probe.open()
                self._open.append(probe)
            is_due = self._ticks % probe.every == 0 and (not self.is_paused or probe.is_light)
            if probe.at_edges if is_edge else is_due:
                quantities = probe.read()
                now_ns = self._clock() - self._origin_ns
                for subject, values in quantities.items():
                    if isinstance(values, str):
                        self._notices.append(Readings(probe.name, subject, [], {}, values))
                    elif isinstance(values, CodeSamples):
                        self._notices.append(replace(values, time_ns=now_ns))
                    else:
                        row = {each: _number(value) for each, value in values.items()}
                        self._readings.append((probe.name, subject, now_ns, row))
        except BaseException as error:  # noqa: BLE001 - on a thread of ours it would end only that
            kind = "" if isinstance(error, ProbeError) else f"{type(error).__name__}: "
            self._notices.append(Readings(probe.name, "", [], {}, f"{kind}{error}"))
            if probe in self._open:
                self._open.remove(probe)
                _close(probe)


def _close(probe: Probe) -> None:
    with suppress(BaseException):  # a probe may not keep others open
        probe.close()


def _number(value: float | None) -> float | None:
    """What a probe has read; None for what a log cannot hold."""
    number = None if value is None else float(value)
    return number if number is not None and abs(number) <= LARGEST_VALUE else None
