"""The threads beside a training: one writes the log, one reads the machine.

A training never waits long for one of them, and its signals are its own.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from loadeval.data.lines import LARGEST_VALUE, Event, Readings
from loadeval.data.log import RunLog, why
from loadeval.errors import UNGUARDED, Guard, ProbeError, warn

PAUSE_S = 0.02
"""It is four of the intervals after which threads pass on Python's lock."""
LONGEST_JOIN_S = 0.1
"""A training waits so long, once, for a thread that does not end, as when a file stalls."""
GREEN_THREADS = {"gevent.monkey", "eventlet.patcher"}
"""With these the threads of Python may share one of the system, which is the program's."""
SIGNALS = signal.valid_signals() if hasattr(signal, "pthread_sigmask") else set()


class OwnThread(threading.Thread):
    """A daemon thread that does `work`, and takes no signal.

    A program may block a signal in its own thread, to save a checkpoint for example. The system
    would then give the signal to a thread that does not block it.
    """

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        super().__init__(name=name, daemon=True)
        self.work = work
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
        """Do it."""
        if SIGNALS and GREEN_THREADS.isdisjoint(sys.modules):
            signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            self.do()
        except Exception as error:  # noqa: BLE001 - for who waits for it
            self.error = error

    def do(self) -> None:
        """What it is for."""
        self.work()


def is_own() -> bool:
    """Whether this is a thread of ours. The garbage collector may run anything on one."""
    return isinstance(threading.current_thread(), OwnThread)


def within(limit_s: float | None, name: str, work: Callable[[], None]) -> bool:
    """Whether `work`, on a thread of its own, ended within `limit_s`; it may go on after that.

    Raises what `work` raised until then. None is no limit. On a thread of ours nothing is waited
    for: True. Where no thread can be started `work` is done here.
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

    def __init__(self, guard: Guard = UNGUARDED) -> None:
        self._guard = guard
        self._running: list[_Repeating] = []

    def start(
        self,
        name: str,
        work: Callable[[], None],
        interval_s: float,
        *,
        at_once: bool = False,
        at_end: bool = False,
    ) -> bool:
        """Call `work` every `interval_s` from now on, unless a thread of that name already runs.

        With `at_once` also now, with `at_end` also when it is stopped. False where no thread can
        be started.
        """
        if any(thread.name == name for thread in self._running):
            return True
        thread = _Repeating(name, partial(self._guarded, work), interval_s, at_once, at_end)
        if thread.begins():
            self._running.append(thread)
        return thread in self._running

    def _guarded(self, work: Callable[[], None]) -> None:
        with self._guard:
            work()

    def hurry(self, name: str) -> None:
        """Let the thread of that name, if it runs, call its function now."""
        for thread in self._running:
            if thread.name == name:
                thread.waking.set()

    def stop(self) -> None:
        """Stop all threads once their current call returns. One that hangs is left alone."""
        running, self._running = self._running, []
        for thread in running:
            thread.is_stopping = True
            thread.waking.set()
        if not is_own():
            for thread in running:
                thread.join(LONGEST_JOIN_S)


class _Repeating(OwnThread):
    def __init__(
        self,
        name: str,
        work: Callable[[], None],
        interval_s: float,
        at_once: bool,
        at_end: bool,
    ) -> None:
        super().__init__(name, work)
        self.waking = threading.Event()
        self.is_stopping = False
        self._interval_s = interval_s
        self._at_once = at_once
        self._at_end = at_end

    def do(self) -> None:
        if self._at_once:
            self.work()
        while not self.is_stopping:
            self.waking.wait(self._interval_s)
            self.waking.clear()
            if self._at_end or not self.is_stopping:
                self.work()


LOG_THREAD = "loadeval-log"
MOST_WAITING_BYTES = 16_000_000
"""A stalled file makes lines wait: at 1000 batches a second these are minutes."""
STALLED_S = 0.05
LONGEST_END_S = 3.0
"""The end of a run waits no longer for a file that stalls."""
BROKEN = (
    "the run log {path} cannot be written any more ({why}); the run continues in memory, and "
    "save_metrics() can save it"
)
DROPPED = (
    "batches are not recorded: the run log {path} cannot be written ({why}); it will tell how many"
)
LEFT = "the last lines of the run log {path} are missing ({why})"
STALLS = "it takes nothing at present"
_warned: set[tuple[Path, str]] = set()
"""A warning has said that something in this folder is not written, for this reason."""
_stalling: set[Path] = set()
"""Files in these folders took nothing when last a run ended."""


class LogQueue:
    """Takes lines from a training, which never waits, and writes them to `log` on other threads.

    `is_broken` is True once the file takes no more: what was put and is not in the file by then
    stays here. `written_bytes` are those of whole lines in the file. One thread puts at a time,
    and any number of threads may write.
    """

    def __init__(self, log: RunLog) -> None:
        self.is_broken = False
        self.written_bytes = log.written_bytes
        self.log, self.path = log, log.path
        self._texts: deque[tuple[int, bytes]] = deque()
        self._writing = threading.Lock()
        self._busy_since_s: float | None = None
        self._is_ended = False

    @property
    def is_full(self) -> bool:
        """Whether so much waits for the file that nothing more should be put."""
        return self._put_bytes() - self.written_bytes > MOST_WAITING_BYTES

    def snapshot(self) -> tuple[int, list[bytes]]:
        """How many bytes of the file are whole lines, and the lines behind those."""
        texts = self._texts.copy()
        written_bytes = self.written_bytes  # after what it counts was copied
        return written_bytes, [text for start, text in texts if start >= written_bytes]

    def put(self, text: bytes) -> None:
        """Let the `text` of a line be written."""
        # It is one step, as a signal may come between two.
        self._texts.append((self._put_bytes(), text))

    def _put_bytes(self) -> int:
        try:
            start, text = self._texts[-1]
        except IndexError:  # all is written
            return self.written_bytes
        return start + len(text)

    def write(self) -> None:
        """Write what waits, unless another thread does so, or hangs in it."""
        if self._writing.acquire(blocking=False):
            try:
                self._write()
            finally:
                self._writing.release()

    def relieve(self) -> None:
        """Write here too, where much waits though the file takes it: its thread gets no CPU."""
        is_much = self._put_bytes() - self.written_bytes > MOST_WAITING_BYTES // 2
        if is_much and self._stalled_s() < STALLED_S and self._writing.acquire(timeout=STALLED_S):
            try:
                self._write()
            finally:
                self._writing.release()

    def end(self) -> None:
        """Write what waits, and close the file; a file that stalls is not waited for long."""
        if self._is_ended:
            return
        self._is_ended = True
        limit_s = max(patience_s(self.path.parent) - self._stalled_s(), 0.0)
        if not within(limit_s, LOG_THREAD, self._end) and not self.is_broken:
            _stalling.add(self.path.parent)
            self.warn(LEFT)

    def _stalled_s(self) -> float:
        """How long the file has not taken what it was given."""
        since_s = self._busy_since_s
        return 0.0 if since_s is None else time.monotonic() - since_s

    def warn(self, message: str, reason: str = STALLS) -> None:
        """Warn of this log; see warn_once."""
        warn_once(self.path, message, reason)

    def _end(self) -> None:
        if self._writing.acquire(timeout=-1 if is_own() else LONGEST_END_S):
            try:
                self._write()
                self.log.close()
            finally:
                self._writing.release()

    def _write(self) -> None:
        while (waiting := self.snapshot()[1]) and not self.is_broken:
            self._busy_since_s = time.monotonic()
            try:
                # It is one call: after each of them a thread waits for Python's lock.
                self.log.append(b"".join(waiting))
            except OSError as error:
                self.is_broken = True
                self.log.close()
                if not self.log.is_overwritten:  # as was asked for
                    self.warn(BROKEN, why(error))
            else:
                _stalling.discard(self.path.parent)
                self.written_bytes += sum(map(len, waiting))
                for _ in waiting:
                    self._texts.popleft()
        self._busy_since_s = None


def patience_s(folder: Path) -> float:
    """How long to wait, at the end of a run, for files in `folder`: not for each of them."""
    return STALLED_S if folder in _stalling else LONGEST_END_S


def warn_once(path: Path, message: str, reason: str) -> None:
    """Warn that `path` is not written, unless another file beside it was not for that reason."""
    if is_news(path.parent, reason):
        warn(message.format(path=path, why=reason))


def is_news(folder: Path, reason: str) -> bool:
    """Whether nothing was said yet of files in `folder` that are not written, for that reason."""
    was_warned = (folder, reason) in _warned
    _warned.add((folder, reason))
    return not was_warned


Reading = tuple[str, str, int, Mapping[str, float | None]]
"""It has a probe's name, a subject, the time, and the value of each quantity; None is not known."""


class Probe(Protocol):
    """Reads one kind of thing about the machine. Called by one thread at a time.

    `name` names its readings; it is read at one in `every` ticks of the MetricsReader. One that has
    `is_light = True` is read in all blocks of an alternating run, others in those that are for the
    instruments alone, and at the edges of all.
    """

    name: str
    every: int

    def open(self) -> None:
        """Start. Raises ProbeError, with the reason, if there is nothing to read here."""

    def read(self) -> Mapping[str, Mapping[str, float | None] | str]:
        """The quantities of each subject now; None is not known.

        Text instead of quantities says why that subject has none from now on. Raises ProbeError,
        with the reason, if there is nothing left to read.
        """

    def close(self) -> None:
        """Release what `open` acquired."""


class Probes(NamedTuple):
    """Probes, and how often to read them."""

    probes: tuple[Probe, ...]
    interval_s: float


NO_PROBES = Probes((), 1.0)
PROBES_THREAD = "loadeval-probes"
LONGEST_MARK_S = 0.1
"""A training waits no longer at the edge of a block for probes to be read."""
LONGEST_CLOSE_S = 1.0


class MetricsReader:
    """Reads `probes` at their interval while epochs are served, first after one interval.

    The thread, one of `threads`, starts when a reading is due, not with the epoch: a shorter
    epoch has nothing to read, and should not pay for a thread.

    A probe that raises is closed, and a subject for which it returns text is not read again. The
    readings say why, and an Event does if there were some before. Probes are called on threads of
    ours alone: one that hangs keeps others from being read, and holds up nothing else.
    """

    def __init__(
        self, probes: Probes, clock: Callable[[], int], origin_ns: int, threads: BackgroundThreads
    ) -> None:
        self._interval_s = probes.interval_s
        self._interval_ns = int(probes.interval_s * 1e9)
        self._clock = clock
        self._origin_ns = origin_ns
        self._threads = threads
        self._due_ns: int | None = None
        self._waiting = list(probes.probes)
        self._open: list[Probe] = []
        self._readings: deque[Reading] = deque()
        self._notices: deque[Readings | Event] = deque()
        self._ticks = 0
        self._is_paused = False
        self._lock = threading.Lock()
        self._reading_since_s: float | None = None

    def start_when_due(self) -> None:
        """Start the thread once an interval has passed since the first call or last reading."""
        if not (self._waiting or self._open):
            return
        now_ns = self._clock()
        if self._due_ns is None:
            self._due_ns = now_ns + self._interval_ns
        if now_ns >= self._due_ns:
            self._threads.start(PROBES_THREAD, self.tick, self._interval_s, at_once=True)

    @property
    def can_pause(self) -> bool:
        """Whether `look` makes a difference."""
        return not all(_is_light(probe) for probe in (*self._waiting, *self._open))

    def look(self, on: bool) -> None:
        """Read all probes from now on, or the light ones alone."""
        self._is_paused = not on

    def close(self) -> None:
        """Close all probes; stop the threads first."""
        self._waiting = []
        if self._open:
            within(LONGEST_CLOSE_S, PROBES_THREAD, self._close_all)

    def take(self) -> list[Readings | Event]:
        """What was read, and what ended, since the last call."""
        # Ends are taken first and returned last, so no reading follows its subject's end.
        notices = [self._notices.popleft() for _ in range(len(self._notices))]
        tables: dict[tuple[str, str], list[Reading]] = {}
        for _ in range(len(self._readings)):
            reading = self._readings.popleft()
            tables.setdefault(reading[:2], []).append(reading)
        lines: list[Readings | Event] = []
        for (probe, subject), rows in tables.items():
            names = dict.fromkeys(name for *_, values in rows for name in values)
            columns = {name: [_known(values.get(name)) for *_, values in rows] for name in names}
            lines.append(Readings(probe, subject, [time_ns for _, _, time_ns, _ in rows], columns))
        return [*lines, *notices]

    def tick(self) -> None:
        """Read each probe that is due; the first tick opens all of them."""
        with self._reading(0) as may_read:
            if not may_read:  # one hangs
                return
            waiting, self._waiting = self._waiting, []
            for probe in waiting:
                self._attempt(probe, self._opened)
            for probe in list(self._open):
                self._attempt(probe, self._read_if_due)
            self._ticks += 1
        self._due_ns = self._clock() + self._interval_ns

    def mark(self) -> None:
        """Read each open probe now, so that its next means cover the time from here on."""
        since_s = self._reading_since_s
        hangs = since_s is not None and time.monotonic() - since_s > LONGEST_MARK_S
        if self._open and not hangs:
            within(LONGEST_MARK_S, PROBES_THREAD, self._read_at_mark)

    def _read_at_mark(self) -> None:
        with self._reading(LONGEST_MARK_S) as may_read:
            for probe in list(self._open) if may_read else []:
                if getattr(probe, "at_edges", True):
                    self._attempt(probe, self._read)

    @contextmanager
    def _reading(self, patience_s: float) -> Iterator[bool]:
        """Call probes, one thread at a time; False where another one still does."""
        if not self._lock.acquire(timeout=patience_s):
            yield False
            return
        self._reading_since_s = time.monotonic()
        try:
            yield True
        finally:
            self._reading_since_s = None
            self._lock.release()

    def _close_all(self) -> None:
        with self._reading(LONGEST_CLOSE_S) as may_close:
            for probe in self._open if may_close else []:
                _close(probe)
            self._open = []

    def _opened(self, probe: Probe) -> None:
        probe.open()
        self._open.append(probe)

    def _read_if_due(self, probe: Probe) -> None:
        if self._ticks % probe.every == 0 and (not self._is_paused or _is_light(probe)):
            self._read(probe)

    def _read(self, probe: Probe) -> None:
        quantities = probe.read()
        now_ns = self._clock() - self._origin_ns
        for subject, values in quantities.items():
            if isinstance(values, str):
                self._ended(probe.name, _text(subject), values)
            else:
                row = {
                    _text(name): None if value is None else float(value)
                    for name, value in values.items()
                }
                self._readings.append((probe.name, _text(subject), now_ns, row))

    def _attempt(self, probe: Probe, work: Callable[[Probe], None]) -> None:
        try:
            if not isinstance(probe.name, str):
                raise TypeError(f"its name is {probe.name!r}, where text was expected")  # noqa: TRY301 - a probe's own fault, as others
            work(probe)
        except ProbeError as error:
            reason = str(error)
        except BaseException as error:  # noqa: BLE001 - on a thread of ours it would end only that
            reason = f"{type(error).__name__}: {error}"
        else:
            return
        name = type(probe).__name__
        with suppress(Exception):
            name = str(probe.name)
        if any(other is probe for other in self._open):
            self._open = [other for other in self._open if other is not probe]
            self._ended(name, "", reason)
            _close(probe)
        else:
            self._notices.append(Readings(name, "", [], {}, reason))

    def _ended(self, probe: str, subject: str, reason: str) -> None:
        now_ns = self._clock() - self._origin_ns
        what = subject or f"the {probe}"
        self._notices.append(Readings(probe, subject, [], {}, reason))
        self._notices.append(Event(now_ns, f"readings of {what} ended: {reason}"))


def _close(probe: Probe) -> None:
    with suppress(BaseException):  # a probe may not keep others open
        probe.close()


def _text(name: object) -> str:
    """`name`. Raises TypeError for what would be no name in a log."""
    if not isinstance(name, str):
        raise TypeError(f"{name!r} is the name of a subject or quantity, where text was expected")
    return name


def _known(value: float | None) -> float | None:
    """None for what a log cannot hold."""
    return value if value is not None and abs(value) <= LARGEST_VALUE else None


def _is_light(probe: Probe) -> bool:
    return getattr(probe, "is_light", False)
