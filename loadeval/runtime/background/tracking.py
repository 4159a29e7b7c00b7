"""Passes scalars of a run on to an experiment tracker, on a thread beside the training."""

from __future__ import annotations

import threading
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Protocol

from loadeval.errors import in_words, warn
from loadeval.runtime.background.threads import within

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.runlog.log_file.codec import Line
    from loadeval.runlog.model import Run
    from loadeval.runtime.background.threads import BackgroundThreads

THREAD = "loadeval-tracker"
TICK_S = 1.0
INTERVAL_S = 10.0
MOST_LINES = 10_000
"""A tracker that hangs makes lines wait: some minutes, of a run that writes many of them."""
LONGEST_FINISH_S = 120.0
"""The end of a training waits no longer for a tracker, whose server may be gone."""
GAVE_UP = "{name} gets nothing more of this run ({why}); training and measurement go on"
LATE = "it takes too long"


class Tracker(Protocol):
    """An experiment tracker, by its `name`. What it raises ends the tracking, and nothing else."""

    name: str

    def join(self) -> None:
        """Join what the program tracks itself. It is called by the thread that trains."""

    def take(self, line: Line) -> None:
        """Note a line of the run."""

    def scalars(self) -> tuple[int, dict[str, float]]:
        """How many batches there were by now, and what is known by then."""

    def log(self, step: int, scalars: dict[str, float]) -> None:
        """Pass scalars on, at a `step`. It may take long."""

    def finish(self, run: Run) -> None:
        """Attach what is said of the whole run, which is over. It may take long."""


class Tracking:
    """Gives the lines of a run to `tracker`, and lets it log at an interval, until it fails.

    The thread that trains only hands lines over. One thread at a time calls the tracker.
    """

    def __init__(self, tracker: Tracker, now_s: Callable[[], float] = time.monotonic) -> None:
        self._tracker: Tracker | None = tracker
        self._now_s = now_s
        self._due_s: float | None = None
        self._lines: deque[Line] = deque()
        self._lock = threading.Lock()

    def begin(self, threads: BackgroundThreads, drain: Callable[[], None]) -> None:
        """Log while an epoch is served, which has its first batch; that of the run joins first.

        `drain` hands over the lines that are due.
        """
        if self._due_s is None:
            self._due_s = self._now_s() + INTERVAL_S
            self._attempt(lambda tracker: tracker.join())
        threads.start(THREAD, partial(self.tick, drain), TICK_S, at_once=True)

    def take(self, line: Line) -> None:
        """Hand a line over."""
        tracker = self._tracker
        if tracker is None:
            return
        self._lines.append(line)
        if len(self._lines) > MOST_LINES:
            self._give_up(tracker, LATE)

    def tick(self, drain: Callable[[], None]) -> None:
        """Give lines to the tracker; it logs if an interval has passed since it did."""
        with self._lock:
            if self._due_s is None or self._now_s() < self._due_s:
                self._attempt(self._give_lines)
                return
            self._due_s = self._now_s() + INTERVAL_S
            drain()
            self._attempt(self._log)

    def finish(self, run: Callable[[], Run]) -> None:
        """Attach what is said of the run, once, if it had a batch."""
        tracker, began = self._tracker, self._due_s is not None
        if tracker is None or not began:
            return

        def finish(tracker: Tracker) -> None:
            self._give_lines(tracker)
            tracker.finish(run())

        def work() -> None:
            with self._lock:
                self._attempt(finish)

        if not within(LONGEST_FINISH_S, THREAD, work):
            self._give_up(tracker, LATE)
        self._tracker = None

    def _log(self, tracker: Tracker) -> None:
        self._give_lines(tracker)
        tracker.log(*tracker.scalars())

    def _give_lines(self, tracker: Tracker) -> None:
        while self._lines:
            tracker.take(self._lines.popleft())

    def _attempt(self, work: Callable[[Tracker], None]) -> None:
        tracker = self._tracker
        if tracker is None:
            return
        try:
            work(tracker)
        except Exception as error:  # noqa: BLE001 - a tracker's fault is none of the training's
            self._give_up(tracker, in_words(error))

    def _give_up(self, tracker: Tracker, why: str) -> None:
        self._tracker = None
        self._lines.clear()
        warn(GAVE_UP.format(name=tracker.name, why=why))
