"""Looks regularly in which line of code a thread is, and whether it runs there or is blocked."""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from contextlib import closing, suppress
from itertools import cycle
from types import CodeType

from torch.utils.data._utils import fetch

from loadeval.frames import current_line, short_switches
from loadeval_adapters.torch_trace.kernel import ThreadState

INTERVAL_S, INTERVAL_IN_TRAINING_S = 0.05, 0.1
BEFORE_LOOKING_S = (0.001, 0.003, 0.002, 0.004)
"""The thread may not keep the lock for so long before a look, in turns: then it is anywhere."""
AT_ONCE, LONGEST = 20, 150
"""So many places are told with a batch, the others with later ones; and so many letters of each."""
NOT_THEIRS = (os.path.dirname(os.path.abspath(__file__)), fetch.__file__)  # noqa: PTH100, PTH120 - frames have such names
Seen = tuple[str, str, str]
"""The stage, whether the line was "running" or "blocked", or its "calls", and where it is."""


class Activity:
    """What is fetched now: by which thread, 0 for none, and in which stage.

    That is "start" for all that comes before the first batch of an epoch, then "fetch" and
    "collate".
    """

    def __init__(self) -> None:
        self.thread, self.stage = 0, "fetch"


class CodeSampler:
    """Counts, from `start` on, in its own thread, where a thread is while `activity` has it.

    It counts by stage how often it was "running" and "blocked" in `FOLDER/FILE:LINE FUNCTION >
    WHAT`, and both as "calls", `FOLDER/FILE:LINE FUNCTION > MODULE.FUNCTION`, which that line
    called. A stage counts by itself, for its share of the time is known from clocks: a thread that
    gives up Python's lock is seen more often than one that keeps it.

    `until` has the code of the frames that call what is looked at. `in_training` tells that the
    process is the one that trains: there it looks less often, and does not make others give up
    Python's lock earlier.
    """

    def __init__(self, activity: Activity, *until: CodeType, in_training: bool = False) -> None:
        self.is_started = False
        self._activity, self._until, self._in_training = activity, until, in_training
        self._counts: Counter[Seen] = Counter()
        self._untold: Counter[Seen] = Counter()
        self._until_stopped = threading.Lock()  # an Event may not be set by a finalizer
        self._until_stopped.acquire()

    def take(self) -> dict[Seen, int]:
        """The most frequent places since the last call, with how often they were seen."""
        self.keep()
        taken = dict(self._untold.most_common(AT_ONCE))
        for place in taken:
            del self._untold[place]
        return taken

    def keep(self) -> None:
        """Keep what was seen until now for `take`: no end of an epoch is in it."""
        if self._counts:
            # No lock, which a fork may keep: at most the look of this moment is lost, and a copy is
            # made at once, where a loop would see that the other thread still adds to it.
            counts, self._counts = self._counts, Counter()
            self._untold.update(counts.copy())

    def ended(self) -> dict[Seen, int]:
        """Where it was since the last call, which the end of an epoch has turned out to be."""
        counts, self._counts = self._counts, Counter()
        seen = counts.copy().most_common(AT_ONCE)
        return {("end", kind, place): count for (_, kind, place), count in seen}

    def start(self, thread: int, native: int) -> None:
        """Begin to look at a thread: its identifier, and that of the kernel."""
        self.is_started = True
        self._thread = thread
        # In a free-threaded Python other threads do not stand still while they are looked at.
        if not getattr(sys, "_is_gil_enabled", lambda: True)():
            return
        state = ThreadState(thread, native)  # now: to ask for the clock of an ended thread crashes
        try:
            threading.Thread(
                target=self._look, args=(state,), name="loadeval-code", daemon=True
            ).start()
        except RuntimeError:  # there can be no more threads
            state.close()
            raise

    def stop(self) -> None:
        """Stop looking, for good."""
        with suppress(RuntimeError):  # it was stopped before
            self._until_stopped.release()

    def _look(self, state: ThreadState) -> None:
        waits_s = cycle(BEFORE_LOOKING_S)
        interval_s = INTERVAL_IN_TRAINING_S if self._in_training else INTERVAL_S
        # If it fails, only lines of code are missing.
        with suppress(Exception), closing(state):
            while state.tells and not self._until_stopped.acquire(timeout=interval_s):
                if self._in_training:
                    self._count(state)
                elif self._activity.thread == self._thread:
                    with short_switches():
                        if self._until_stopped.acquire(timeout=next(waits_s)):
                            return
                        self._count(state)

    def _count(self, state: ThreadState) -> None:
        if self._activity.thread != self._thread:
            return
        stage = self._activity.stage  # before the frames: both of one moment
        place, leaf, call, _ = current_line(self._thread, self._until, NOT_THEIRS)
        blocked_in = state.blocked_in()
        if not place:
            return
        kind, what = ("running", leaf) if blocked_in is None else ("blocked", blocked_in or leaf)
        self._counts[stage, kind, (f"{place} > {what}" if what else place)[:LONGEST]] += 1
        if call:
            self._counts[stage, "calls", f"{place} > {call}"[:LONGEST]] += 1
