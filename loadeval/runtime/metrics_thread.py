"""Reading probes of the machine beside the batches, and the threads that work meanwhile."""

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

    `name` is what its readings are called by, and `every` says that it is read at every so
    manieth tick of the MetricsReader.
    """

    name: str
    every: int

    def open(self) -> None:
        """Begin. Raises ProbeError, with the reason, when there is nothing to read here."""

    def read(self) -> Mapping[str, Mapping[str, float | None] | str]:
        """The quantities of each subject now; None is not known.

        Text instead of them says why that subject has none from now on. Raises ProbeError, with
        the reason, when there is nothing left to read.
        """

    def close(self) -> None:
        """Give back what `open` took."""


class Probes(NamedTuple):
    """What is read, and how often."""

    probes: tuple[Probe, ...]
    interval_s: float


NO_PROBES = Probes((), 1.0)


class MetricsReader:
    """Reads `probes` at their interval while epochs are served, first after one interval.

    The thread that does is one of `threads`, and started when a reading is due, not with the
    epoch: of an epoch that is over sooner nothing could be read, and it need not pay for a thread.

    A probe that raises ends, and so does a subject that it has text for: why is told in the
    readings, and by an Event when there had been some.
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
        self._said: deque[Readings | Event] = deque()
        self._ticks = 0
        self._reading = threading.Lock()

    def start_when_due(self) -> None:
        """Read from now on, if an interval has passed since this was first asked for.

        Or since the last reading; and unless there is nothing to read.
        """
        if not (self._waiting or self._open):
            return
        now_ns = self._clock()
        if self._due_ns is None:
            self._due_ns = now_ns + self._interval_ns
        if now_ns >= self._due_ns:
            self._threads.start("loadeval-probes", self._read_all, self._interval_s, at_once=True)

    def close(self) -> None:
        """End all probes, when the threads are stopped."""
        for probe in self._open:
            _close(probe)
        self._open, self._waiting = [], []

    def take(self) -> list[Readings | Event]:
        """What was read, and what came to its end, since it was last asked."""
        # An end is taken first, and given last: no reading then comes after its subject's end.
        said = [self._said.popleft() for _ in range(len(self._said))]
        rows: dict[tuple[str, str], list[Row]] = {}
        for _ in range(len(self._found)):
            probe, subject, row = self._found.popleft()
            rows.setdefault((probe, subject), []).append(row)
        return [*(_columns(*key, found) for key, found in rows.items()), *said]

    def tick(self) -> None:
        """One reading of each probe whose turn it is; at the first, all of them are opened."""
        with self._reading:
            waiting, self._waiting = self._waiting, []
            for probe in waiting:
                self._attempt(probe, self._opened)
            for probe in list(self._open):
                self._attempt(probe, self._read_in_turn)
            self._ticks += 1

    def mark(self) -> None:
        """A reading of each open probe, now: what is read next is of the time from here on."""
        with self._reading:
            for probe in list(self._open):
                self._attempt(probe, self._read)

    def _read_all(self) -> None:
        self.tick()
        self._due_ns = self._clock() + self._interval_ns

    def _opened(self, probe: Probe) -> None:
        probe.open()
        self._open.append(probe)

    def _read_in_turn(self, probe: Probe) -> None:
        if self._ticks % probe.every == 0:
            self._read(probe)

    def _read(self, probe: Probe) -> None:
        found = probe.read()
        now_ns = self._clock() - self._origin_ns
        for subject, values in found.items():
            if isinstance(values, str):
                self._ended(probe.name, subject, values)
            else:
                row = {name: _known(value) for name, value in values.items()}
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
            self._said.append(_nothing(probe.name, "", reason))

    def _ended(self, probe: str, subject: str, reason: str) -> None:
        now_ns = self._clock() - self._origin_ns
        what = subject or f"the {probe}"
        self._said.append(_nothing(probe, subject, reason))
        self._said.append(Event(now_ns, f"readings of {what} ended: {reason}"))


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


def _known(value: float | None) -> float:
    return np.nan if value is None else float(value)


class BackgroundThreads:
    """Daemon threads that each call something at an interval, until all of them are stopped.

    Python's garbage collector may free an abandoned epoch on one of them, which ends the epoch
    and then stops the threads from there: a thread of ours never waits for one of ours.
    """

    def __init__(self) -> None:
        self._running: list[_Repeating] = []

    def start(
        self, name: str, work: Callable[[], None], interval_s: float, *, at_once: bool = False
    ) -> None:
        """Call `work` every `interval_s` from now on, unless a thread of that name does."""
        if not any(thread.name == name for thread in self._running):
            thread = _Repeating(name, work, interval_s, at_once)
            self._running.append(thread)
            thread.start()

    def stop(self) -> None:
        """Stop, once what is under way is done."""
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
