"""Threads beside a training: it never waits long for one of them, and its signals are its own."""

from __future__ import annotations

import signal
import sys
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

from loadeval.runtime.guard import UNGUARDED, Guard

if TYPE_CHECKING:
    from collections.abc import Callable

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
