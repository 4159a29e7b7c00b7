"""Looks regularly in which line of code a thread is, and whether it runs there or is blocked."""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Container
    from types import CodeType, FrameType

INTERVAL_S = 0.02
FLUSH_NS = 500_000_000
PLACES = 200
"""How many places are told apart."""
OWN = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - frames have such names
LIBRARIES = tuple(
    path
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
    if (path := sysconfig.get_path(name))
)


class CodeSampler:
    """Counts where a thread is while `is_busy[0]`, with a thread of its own, from `start` on.

    `running` and `blocked` count under `FOLDER/FILE:LINE FUNCTION > WHAT`. `fetches` is the code
    that calls what is looked at. `flush` is called each half second in which something was found.
    """

    def __init__(
        self, is_busy: list[bool], fetches: Container[CodeType], flush: Callable[[], object]
    ) -> None:
        self.running: Counter[str] = Counter()
        self.blocked: Counter[str] = Counter()
        self.is_started = self._is_stopped = False
        self._is_busy = is_busy
        self._fetches = fetches
        self._flush = flush
        self._flushed_ns = 0
        self._is_library: dict[str, bool] = {}
        self._of_place: dict[tuple[CodeType, int, CodeType], str] = {}

    def start(self, thread: int, native: int) -> None:
        """Begin to look at a thread: its identifier, and that of the kernel."""
        self.is_started = True
        self._thread = thread
        self._kernel = Kernel(thread, native)
        if not self._kernel.tells:
            return
        threading.Thread(target=self._look, name="loadeval-code", daemon=True).start()

    def stop(self) -> None:
        """Stop looking, soon."""
        self._is_stopped = True

    def _look(self) -> None:
        self._flushed_ns = time.perf_counter_ns()
        try:
            while not self._is_stopped:
                time.sleep(INTERVAL_S)
                if self._is_busy[0]:
                    self._count()
        except Exception:  # noqa: BLE001 - without it only this is missing
            self._is_stopped = True

    def _count(self) -> None:
        place, leaf = self._place()
        blocked_in = self._kernel.blocked_in()
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
        return f"{path}:{own.f_lineno} {code.co_name}", leaf

    def _belongs_to_library(self, file_name: str) -> bool:
        known = self._is_library.get(file_name)
        if known is None:
            is_there = "-packages" in file_name or file_name.startswith(LIBRARIES)
            known = self._is_library[file_name] = is_there or file_name.startswith("<")
        return known


class Kernel:
    """What the kernel says of a thread: whether it is blocked, and in what."""

    def __init__(self, thread: int, native: int) -> None:
        self._task = f"/proc/self/task/{native}"
        self._stat = _opened(f"{self._task}/stat")
        self.tells = self._stat >= 0
        self._schedstat = _opened(f"{self._task}/schedstat")
        self._wchan = _opened(f"{self._task}/wchan")
        self._clock = getattr(time, "pthread_getcpuclockid", lambda _: None)(thread)
        self._before = self._moment()

    def blocked_in(self) -> str | None:
        """None while it runs; what it is blocked in, or "" where the kernel does not tell.

        A thread that waits for Python's lock, which ours has, runs: since the look before it was
        on a CPU, or waited for one, most of the time.
        """
        before, self._before = self._before, self._moment()
        state = os.pread(self._stat, 512, 0).rpartition(b") ")[2][:1]
        if state == b"R":
            return None
        where = "" if self._wchan < 0 else os.pread(self._wchan, 64, 0).decode().strip()
        where = "" if where == "0" else where
        active, passed = (b - a for a, b in zip(before, self._before, strict=True))
        if state == b"S" and (not where or "futex" in where) and 2 * active > passed:
            return None
        return where

    def _moment(self) -> tuple[int, int]:
        """Nanoseconds on a CPU or waiting for one, and the time."""
        active = 0 if self._clock is None else time.clock_gettime_ns(self._clock)
        if self._schedstat >= 0:
            active += int(os.pread(self._schedstat, 96, 0).split()[1])
        return active, time.perf_counter_ns()


def _opened(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY)
    except OSError:
        return -1


def _qualified(code: CodeType) -> str:
    return str(getattr(code, "co_qualname", code.co_name))
