"""Looks regularly in which line of code a thread is, and whether it runs there or is blocked."""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
import time
from collections import Counter
from contextlib import closing, contextmanager, suppress
from itertools import cycle
from typing import TYPE_CHECKING

from loadeval_adapters.pytorch_kernel import ThreadState

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator
    from types import CodeType, FrameType

INTERVAL_S = 0.05
INTERVAL_IN_TRAINING_S = 0.1
SWITCH_S = 0.0001
"""How long code may keep Python's lock from others at the moment when it is looked at.

Else it would mostly be seen where it gives the lock up by itself, not where it spends its time. At
any other moment it keeps the lock as ever, for the training process waits for it to receive.
"""
BEFORE_LOOKING_S = (0.001, 0.003, 0.002, 0.004)
"""For how long it may not before, in turns: then it is anywhere."""
FLUSH_NS = 500_000_000
PLACES = 200
"""How many places are told apart."""
COMPREHENSIONS = {"<listcomp>", "<setcomp>", "<dictcomp>"}  # until Python 3.11
OWN = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - frames have such names
LIBRARIES = tuple(
    path
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
    if (path := sysconfig.get_path(name))
)


class CodeSampler:
    """Counts where a thread is while `busy[0]` is it, with a thread of its own, from `start` on.

    `running` and `blocked` count under `FOLDER/FILE:LINE FUNCTION > WHAT`. `fetches` is the code
    that calls what is looked at. `flush` is called each half second in which something was found.
    `in_training` tells that the process is the one that trains: there it looks less often, and
    does not make others give up Python's lock earlier.
    """

    def __init__(
        self,
        busy: list[int],
        fetches: Container[CodeType],
        flush: Callable[[], object],
        *,
        in_training: bool = False,
    ) -> None:
        self.running: Counter[str] = Counter()
        self.blocked: Counter[str] = Counter()
        self.is_started = False
        self._busy = busy
        self._fetches = fetches
        self._flush = flush
        self._in_training = in_training
        self._until_stopped = threading.Lock()  # an Event may not be set by a finalizer
        self._until_stopped.acquire()
        self._flushed_ns = 0
        self._is_library: dict[str, bool] = {}

    def start(self, thread: int, native: int) -> None:
        """Begin to look at a thread: its identifier, and that of the kernel."""
        self.is_started = True
        self._thread = thread
        self._state = ThreadState(thread, native)
        if not self._state.tells:
            self._state.close()
            return
        try:
            threading.Thread(target=self._look, name="loadeval-code", daemon=True).start()
        except RuntimeError:  # there can be no more threads
            self._state.close()
            raise

    def stop(self) -> None:
        """Stop looking, for good."""
        with suppress(RuntimeError):  # it was stopped before
            self._until_stopped.release()

    def _look(self) -> None:
        self._flushed_ns = time.perf_counter_ns()
        # Without it only this is missing. No other thread closes what this one reads.
        with suppress(Exception), closing(self._state):
            if self._in_training:
                while not self._is_stopped_in(INTERVAL_IN_TRAINING_S):
                    self._count()
                return
            for short_s in cycle(BEFORE_LOOKING_S):
                if self._is_stopped_in(INTERVAL_S):
                    return
                if self._busy[0] != self._thread:
                    continue
                with short_switches():
                    if self._is_stopped_in(short_s):
                        return
                    self._count()

    def _is_stopped_in(self, seconds: float) -> bool:
        return self._until_stopped.acquire(timeout=seconds)

    def _count(self) -> None:
        if self._busy[0] != self._thread:
            return
        place, leaf = self._place()
        blocked_in = self._state.blocked_in()
        if not place:
            return
        if blocked_in is not None:
            count, what = self.blocked, blocked_in or leaf
        else:
            count, what = self.running, leaf
        name = f"{place} > {what}" if what else place
        if name in count or len(count) < PLACES:
            count[name] += 1
        now = time.perf_counter_ns()
        if now - self._flushed_ns > FLUSH_NS:
            self._flushed_ns = now
            self._flush()

    def _place(self) -> tuple[str, str]:
        """The innermost line that is not a library's, and the function it waits for."""
        frame: FrameType | None = sys._current_frames().get(self._thread)  # noqa: SLF001 - the one way
        innermost = own = None
        while frame is not None and frame.f_code not in self._fetches:
            if not frame.f_code.co_filename.startswith(OWN):
                innermost = innermost or frame
                if not self._belongs_to_library(frame.f_code.co_filename):
                    own = frame
                    break
            frame = frame.f_back
        if innermost is None:
            return "", ""
        own = own or innermost
        code = own.f_code
        path = "/".join(code.co_filename.replace("\\", "/").split("/")[-2:])
        leaf = "" if innermost is own else _qualified(innermost.f_code)
        return f"{path}:{own.f_lineno} {_function(own)}", leaf

    def _belongs_to_library(self, file_name: str) -> bool:
        known = self._is_library.get(file_name)
        if known is None:
            is_there = "-packages" in file_name or file_name.startswith(LIBRARIES)
            known = self._is_library[file_name] = is_there or file_name.startswith("<")
        return known


@contextmanager
def short_switches() -> Iterator[None]:
    """Let threads have Python's lock sooner."""
    users_s = sys.getswitchinterval()
    sys.setswitchinterval(min(SWITCH_S, users_s))
    ours_s = sys.getswitchinterval()  # in whole microseconds
    try:
        yield
    finally:
        if sys.getswitchinterval() == ours_s:
            sys.setswitchinterval(users_s)


def _function(frame: FrameType) -> str:
    """The name of its function; for a comprehension with a frame of its own that around it."""
    outer: FrameType | None = frame
    while outer is not None and outer.f_code.co_name in COMPREHENSIONS:
        outer = outer.f_back
    return _qualified((outer or frame).f_code)


def _qualified(code: CodeType) -> str:
    """With its class, `Texts.__getitem__`, where Python tells: from 3.11 on."""
    name = str(getattr(code, "co_qualname", code.co_name))
    return name.rpartition("<locals>.")[2]
