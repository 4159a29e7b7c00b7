"""The threads that work beside a training: one brings its log up to date, one reads probes."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


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
