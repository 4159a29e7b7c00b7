"""Looks regularly in which line of code a thread is, and whether it runs there or is blocked."""

from __future__ import annotations

import ast
import gc
import linecache
import os
import sys
import sysconfig
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from itertools import cycle, islice
from types import BuiltinFunctionType, CodeType, FrameType, ModuleType
from typing import Any

from torch.utils.data._utils import fetch

from loadeval_adapters.torch_trace.kernel import ThreadState

INTERVAL_S, INTERVAL_IN_TRAINING_S = 0.05, 0.1
SWITCH_S = 0.0001
"""How long code may keep Python's lock from others at the moment when it is looked at.

Else it would mostly be seen where it gives the lock up by itself, not where it spends its time. At
any other moment it keeps the lock as ever, for the training process waits for it to receive.
"""
BEFORE_LOOKING_S = (0.001, 0.003, 0.002, 0.004)
"""The thread may not keep the lock for so long before a look, in turns: then it is anywhere."""
AT_ONCE, LONGEST = 20, 150
"""So many places are told with a batch, the others with later ones; and so many letters of each."""
CAN_COLLECT_WHILE_READING = sys.version_info[:2] == (3, 11)
"""There a frame is made when it is first read, and making it may collect garbage.

A finalizer lets the thread that is looked at run on, and so free what is being read: the process
ends by a segmentation fault or hangs (python/cpython#97002 and #106883). Mended in Python 3.12.
"""
COMPREHENSIONS = {"<listcomp>", "<setcomp>", "<dictcomp>"}  # until Python 3.11
NOT_THEIRS = (os.path.dirname(os.path.abspath(__file__)), fetch.__file__)  # noqa: PTH100, PTH120 - frames have such names
LIBRARIES = tuple(
    path
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
    if (path := sysconfig.get_path(name))
)
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
        self._called_in: dict[tuple[CodeType, int], str] = {}

    def take(self) -> dict[Seen, int]:
        """The most frequent places since the last call, with how often they were seen."""
        if not (self._counts or self._untold):
            return {}
        # No lock, which a fork may keep: at most the look of this moment is lost, and a copy is
        # made at once, where a loop would see that the other thread still adds to it.
        counts, self._counts = self._counts, Counter()
        self._untold.update(counts.copy())
        taken = dict(self._untold.most_common(AT_ONCE))
        for place in taken:
            del self._untold[place]
        return taken

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
        with nothing_collected():
            stage = self._activity.stage  # before the frames: both of one moment
            place, leaf, call = self._place()
        blocked_in = state.blocked_in()
        if not place:
            return
        kind, what = ("running", leaf) if blocked_in is None else ("blocked", blocked_in or leaf)
        self._counts[stage, kind, (f"{place} > {what}" if what else place)[:LONGEST]] += 1
        if isinstance(call, tuple):
            if call[:2] not in self._called_in:
                self._called_in[call[:2]] = called_by(*call)
            call = self._called_in[call[:2]]
        if call:
            self._counts[stage, "calls", f"{place} > {call}"[:LONGEST]] += 1

    def _place(self) -> tuple[str, str, str | tuple[CodeType, int, dict[str, Any]]]:
        """The innermost line that is not a library's, the function it waits for, and what it calls.

        The last is an instruction of that line, and the global names that it sees, where what it
        calls is not written in Python.
        """
        frame: FrameType | None = sys._current_frames().get(self._thread)  # noqa: SLF001 - the one way
        innermost = own = called = None
        while frame is not None and frame.f_code not in self._until:
            path = frame.f_code.co_filename
            if not path.startswith(NOT_THEIRS):
                innermost = innermost or frame
                if not ("-packages" in path or path.startswith((*LIBRARIES, "<"))):
                    own = frame
                    break
                called = frame
            frame = frame.f_back
        if innermost is None:
            return "", "", ""
        call: str | tuple[CodeType, int, dict[str, Any]] = ""
        if own is not None and called is not None:
            call = f"{called.f_globals.get('__name__', '')}.{_qualified(called.f_code)}"
        elif own is not None:
            call = own.f_code, own.f_lasti, own.f_globals
        line = own or innermost
        leaf = "" if innermost is line else _qualified(innermost.f_code)
        outer: FrameType | None = line
        while outer is not None and outer.f_code.co_name in COMPREHENSIONS:
            outer = outer.f_back
        path = "/".join(line.f_code.co_filename.replace("\\", "/").split("/")[-2:])
        return f"{path}:{line.f_lineno} {_qualified((outer or line).f_code)}", leaf, call


def called_by(code: CodeType, offset: int, names: dict[str, Any]) -> str:
    """The function that an instruction calls, by its name in the source: `torch.tensor`.

    A name that stands for a module or a compiled function is told by its own in full. "" where
    nothing is called, or its source is not known, as before Python 3.11.
    """
    positions = getattr(code, "co_positions", tuple)
    first, last, begin, end = next(islice(positions(), offset // 2, None), (None,) * 4)
    if first is None or last is None or begin is None or end is None:
        return ""
    lines = linecache.getlines(code.co_filename)[first - 1 : last]
    source = "".join(lines).encode()
    if not source or b"\\" in source:  # an escape may be warned of
        return ""
    try:
        call = ast.parse(source[begin : len(source) - len(lines[-1].encode()) + end], mode="eval")
    except (SyntaxError, ValueError):  # of a file that has changed since
        return ""
    parts, function = [], getattr(call.body, "func", None)
    while isinstance(function, ast.Attribute):
        parts.append(function.attr)
        function = function.value
    if isinstance(function, ast.Name):
        value = names.get(function.id)
        if isinstance(value, BuiltinFunctionType):
            parts.append(f"{value.__module__ or 'builtins'}.{value.__name__}")
        else:
            parts.append(value.__name__ if isinstance(value, ModuleType) else function.id)
    return ".".join(reversed(parts))


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


@contextmanager
def nothing_collected() -> Iterator[None]:
    """Collect no garbage where that may free the frames of other threads while they are read."""
    is_collecting = CAN_COLLECT_WHILE_READING and gc.isenabled()
    if is_collecting:
        gc.disable()
    try:
        yield
    finally:
        if is_collecting:
            gc.enable()


def _qualified(code: CodeType) -> str:
    """The function's name, with its class from Python 3.11 on: `Texts.__getitem__`."""
    name = str(getattr(code, "co_qualname", code.co_name))
    return name.rpartition("<locals>.")[2]
