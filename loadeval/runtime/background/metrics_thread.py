"""Reads system metrics from probes, on a background thread."""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol

from loadeval.data.lines import LARGEST_VALUE, Event, Readings
from loadeval.errors import ProbeError
from loadeval.runtime.background.threads import within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from loadeval.runtime.background.threads import BackgroundThreads

Row = tuple[int, "Mapping[str, float | None]"]
"""It has the time of a reading, and the value of each quantity, None for what is not known."""
Reading = tuple[str, str, Row]
"""It has a probe's name, a subject, and what was read of it."""


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
THREAD = "loadeval-probes"
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
            self._threads.start(THREAD, self.tick, self._interval_s, at_once=True)

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
            within(LONGEST_CLOSE_S, THREAD, self._close_all)

    def take(self) -> list[Readings | Event]:
        """What was read, and what ended, since the last call."""
        # Ends are taken first and returned last, so no reading follows its subject's end.
        notices = [self._notices.popleft() for _ in range(len(self._notices))]
        rows: dict[tuple[str, str], list[Row]] = {}
        for _ in range(len(self._readings)):
            probe, subject, row = self._readings.popleft()
            rows.setdefault((probe, subject), []).append(row)
        return [*(_columns(*key, rows_of_key) for key, rows_of_key in rows.items()), *notices]

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
            within(LONGEST_MARK_S, THREAD, self._read_at_mark)

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
                self._readings.append((probe.name, _text(subject), (now_ns, row)))

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
            self._notices.append(_nothing(name, "", reason))

    def _ended(self, probe: str, subject: str, reason: str) -> None:
        now_ns = self._clock() - self._origin_ns
        what = subject or f"the {probe}"
        self._notices.append(_nothing(probe, subject, reason))
        self._notices.append(Event(now_ns, f"readings of {what} ended: {reason}"))


def _close(probe: Probe) -> None:
    with suppress(BaseException):  # a probe may not keep others open
        probe.close()


def _text(name: object) -> str:
    """`name`. Raises TypeError for what would be no name in a log."""
    if not isinstance(name, str):
        raise TypeError(f"{name!r} is the name of a subject or quantity, where text was expected")
    return name


def _nothing(probe: str, subject: str, reason: str) -> Readings:
    return Readings(probe, subject, [], {}, reason)


def _known(value: float | None) -> float | None:
    """None for what a log cannot hold."""
    return value if value is not None and abs(value) <= LARGEST_VALUE else None


def _is_light(probe: Probe) -> bool:
    return getattr(probe, "is_light", False)


def _columns(probe: str, subject: str, rows: list[Row]) -> Readings:
    names = dict.fromkeys(name for _, values in rows for name in values)
    return Readings(
        probe,
        subject,
        [time_ns for time_ns, _ in rows],
        {name: [_known(values.get(name)) for _, values in rows] for name in names},
    )
