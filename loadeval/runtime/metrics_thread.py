"""Reads system metrics from probes, on a background thread."""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from loadeval.errors import ProbeError
from loadeval.runlog.model import Event, Readings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Row = tuple[int, "Mapping[str, float]"]
"""When it was read, and the value of each quantity, NaN for what is not known."""
Found = tuple[str, str, Row]
"""A probe's name, a subject, and what was read of it."""


class Probe(Protocol):
    """Reads one kind of thing about the machine. Called by one thread at a time.

    `name` names its readings; it is read at one in `every` ticks of the MetricsReader.
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


class MetricsReader:
    """Reads `probes` at their interval while epochs are served, first after one interval.

    The thread, one of `threads`, starts when a reading is due, not with the epoch: a shorter
    epoch has nothing to read, and should not pay for a thread.

    A probe that raises is closed, and a subject for which it returns text is not read again. The
    readings say why, and an Event does if there were some before.
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
        self._found: deque[Found] = deque()
        self._notices: deque[Readings | Event] = deque()
        self._ticks = 0
        self._reading = threading.Lock()

    def start_when_due(self) -> None:
        """Start the thread once an interval has passed since the first call or last reading."""
        if not (self._waiting or self._open):
            return
        now_ns = self._clock()
        if self._due_ns is None:
            self._due_ns = now_ns + self._interval_ns
        if now_ns >= self._due_ns:
            self._threads.start("loadeval-probes", self.tick, self._interval_s, at_once=True)

    def close(self) -> None:
        """Close all probes; stop the threads first."""
        for probe in self._open:
            _close(probe)
        self._open, self._waiting = [], []

    def take(self) -> list[Readings | Event]:
        """What was read, and what ended, since the last call."""
        # Ends are taken first and returned last, so no reading follows its subject's end.
        notices = [self._notices.popleft() for _ in range(len(self._notices))]
        rows: dict[tuple[str, str], list[Row]] = {}
        for _ in range(len(self._found)):
            probe, subject, row = self._found.popleft()
            rows.setdefault((probe, subject), []).append(row)
        return [*(_columns(*key, found) for key, found in rows.items()), *notices]

    def tick(self) -> None:
        """Read each probe that is due; the first tick opens all of them."""
        with self._reading:
            waiting, self._waiting = self._waiting, []
            for probe in waiting:
                self._attempt(probe, self._opened)
            for probe in list(self._open):
                self._attempt(probe, self._read_if_due)
            self._ticks += 1
        self._due_ns = self._clock() + self._interval_ns

    def mark(self) -> None:
        """Read each open probe now, so that its next means cover the time from here on."""
        with self._reading:
            for probe in list(self._open):
                self._attempt(probe, self._read)

    def _opened(self, probe: Probe) -> None:
        probe.open()
        self._open.append(probe)

    def _read_if_due(self, probe: Probe) -> None:
        if self._ticks % probe.every == 0:
            self._read(probe)

    def _read(self, probe: Probe) -> None:
        found = probe.read()
        now_ns = self._clock() - self._origin_ns
        for subject, values in found.items():
            if isinstance(values, str):
                self._ended(probe.name, subject, values)
            else:
                row = {
                    name: np.nan if value is None else float(value)
                    for name, value in values.items()
                }
                self._found.append((probe.name, subject, (now_ns, row)))

    def _attempt(self, probe: Probe, work: Callable[[Probe], None]) -> None:
        try:
            work(probe)
        except ProbeError as error:
            reason = str(error)
        except Exception as error:  # noqa: BLE001 - a probe may not end a training run
            reason = f"{type(error).__name__}: {error}"
        else:
            return
        if probe in self._open:
            self._open.remove(probe)
            self._ended(probe.name, "", reason)
            _close(probe)
        else:
            self._notices.append(_nothing(probe.name, "", reason))

    def _ended(self, probe: str, subject: str, reason: str) -> None:
        now_ns = self._clock() - self._origin_ns
        what = subject or f"the {probe}"
        self._notices.append(_nothing(probe, subject, reason))
        self._notices.append(Event(now_ns, f"readings of {what} ended: {reason}"))


def _close(probe: Probe) -> None:
    with suppress(Exception):  # a probe may not end a training run, nor keep others open
        probe.close()


def _nothing(probe: str, subject: str, reason: str) -> Readings:
    return Readings(probe, subject, np.empty(0, np.int64), {}, reason)


def _columns(probe: str, subject: str, rows: list[Row]) -> Readings:
    names = dict.fromkeys(name for _, values in rows for name in values)
    return Readings(
        probe,
        subject,
        np.array([time_ns for time_ns, _ in rows], np.int64),
        {name: np.array([values.get(name, np.nan) for _, values in rows]) for name in names},
    )


class BackgroundThreads:
    """Daemon threads that each call a function at an interval, until all of them are stopped.

    The garbage collector may free an abandoned epoch on one of these threads, which then stops
    them all. So none of these threads ever waits for another.
    """

    def __init__(self) -> None:
        self._running: list[_Repeating] = []

    def start(
        self, name: str, work: Callable[[], None], interval_s: float, *, at_once: bool = False
    ) -> None:
        """Call `work` every `interval_s` from now on, unless a thread of that name already runs."""
        if not any(thread.name == name for thread in self._running):
            thread = _Repeating(name, work, interval_s, at_once)
            self._running.append(thread)
            thread.start()

    def stop(self) -> None:
        """Stop all threads once their current call returns."""
        running, self._running = self._running, []
        for thread in running:
            thread.stopping.set()
        if not isinstance(threading.current_thread(), _Repeating):
            for thread in running:
                thread.join()


class _Repeating(threading.Thread):
    def __init__(
        self, name: str, work: Callable[[], None], interval_s: float, at_once: bool
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.stopping = threading.Event()
        self._work = work
        self._interval_s = interval_s
        self._at_once = at_once

    def run(self) -> None:
        if self._at_once:
            self._work()
        while not self.stopping.wait(self._interval_s):
            self._work()
