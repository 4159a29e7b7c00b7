"""Looks regularly in which line of code a thread is, and whether it runs there or is blocked."""

from __future__ import annotations

import ast
import gc
import linecache
import os
import sys
import sysconfig
import threading
import time
from collections import Counter
from contextlib import closing, contextmanager, suppress
from itertools import cycle, islice
from types import BuiltinFunctionType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from loadeval_adapters.pytorch_kernel import ThreadState

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator
    from types import CodeType, FrameType

COUNTERS = ("running", "blocked", "calls")
"""What a CodeSampler counts, by its name."""
INTERVAL_S = 0.05
INTERVAL_IN_TRAINING_S = 0.1
SWITCH_S = 0.0001
"""How long code may keep Python's lock from others at the moment when it is looked at.

Else it would mostly be seen where it gives the lock up by itself, not where it spends its time. At
any other moment it keeps the lock as ever, for the training process waits for it to receive.
"""
BEFORE_LOOKING_S = (0.001, 0.003, 0.002, 0.004)
"""The thread may not keep the lock for so long before a look, in turns: then it is anywhere."""
FLUSH_NS = 500_000_000
PLACES = 200
"""How many places are counted separately."""
CAN_COLLECT_WHILE_READING = sys.version_info[:2] == (3, 11)
"""There a frame is made when it is first read, and making it may collect garbage.

A finalizer lets the thread that is looked at run on, and so free what is being read: the process
ends by a segmentation fault or hangs (python/cpython#97002 and #106883). Mended in Python 3.12.
"""
COMPREHENSIONS = {"<listcomp>", "<setcomp>", "<dictcomp>"}  # until Python 3.11
OWN = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - frames have such names
LIBRARIES = tuple(
    path
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
    if (path := sysconfig.get_path(name))
)


class Instruction(NamedTuple):
    """Where a thread is in a function, and the global names that it sees."""

    code: CodeType
    offset: int
    names: dict[str, Any]


class CodeSampler:
    """Counts, from `start` on, in its own thread, where a thread is while `busy[0]` is that one.

    `running` and `blocked` count under `FOLDER/FILE:LINE FUNCTION > WHAT`, and `calls` both under
    `FOLDER/FILE:LINE FUNCTION > MODULE.FUNCTION`, which that line called. `fetches` is the code
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
        self.calls: Counter[str] = Counter()
        self.is_started = False
        self._busy = busy
        self._fetches = fetches
        self._flush = flush
        self._in_training = in_training
        self._until_stopped = threading.Lock()  # an Event may not be set by a finalizer
        self._until_stopped.acquire()
        self._flushed_ns = 0
        self._is_library: dict[str, bool] = {}
        self._called_in: dict[tuple[CodeType, int], str] = {}

    def start(self, thread: int, native: int) -> None:
        """Begin to look at a thread: its identifier, and that of the kernel."""
        self.is_started = True
        self._thread = thread
        self._state = ThreadState(thread, native)
        if not self._state.tells or not _can_read_frames():
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
        # If it fails, only lines of code are missing. No other thread closes what this one reads.
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
        with nothing_collected():
            place, leaf, call = self._place()
        blocked_in = self._state.blocked_in()
        if not place:
            return
        if blocked_in is not None:
            count, what = self.blocked, blocked_in or leaf
        else:
            count, what = self.running, leaf
        name = f"{place} > {what}" if what else place
        _add(count, name)
        if isinstance(call, Instruction):
            call = self._called_by(call)
        if call:
            _add(self.calls, f"{place} > {call}")
        now = time.perf_counter_ns()
        if now - self._flushed_ns > FLUSH_NS:
            self._flushed_ns = now
            self._flush()

    def _place(self) -> tuple[str, str, str | Instruction]:
        """The innermost line that is not a library's, the function it waits for, and what it calls.

        The last is an instruction of that line where what it calls is not written in Python.
        """
        frame: FrameType | None = sys._current_frames().get(self._thread)  # noqa: SLF001 - the one way
        innermost = own = called = None
        while frame is not None and frame.f_code not in self._fetches:
            if not frame.f_code.co_filename.startswith(OWN):
                innermost = innermost or frame
                if not self._belongs_to_library(frame.f_code.co_filename):
                    own = frame
                    break
                called = frame
            frame = frame.f_back
        if innermost is None:
            return "", "", ""
        call: str | Instruction = ""
        if own is not None and called is not None:
            call = f"{called.f_globals.get('__name__', '')}.{_qualified(called.f_code)}"
        elif own is not None:
            call = Instruction(own.f_code, own.f_lasti, own.f_globals)
        own = own or innermost
        code = own.f_code
        path = "/".join(code.co_filename.replace("\\", "/").split("/")[-2:])
        leaf = "" if innermost is own else _qualified(innermost.f_code)
        return f"{path}:{own.f_lineno} {_function(own)}", leaf, call

    def _called_by(self, at: Instruction) -> str:
        known = self._called_in.get((at.code, at.offset))
        if known is None:
            known = called_by(at)
            if len(self._called_in) < PLACES:
                self._called_in[at.code, at.offset] = known
        return known

    def _belongs_to_library(self, file_name: str) -> bool:
        known = self._is_library.get(file_name)
        if known is None:
            is_there = "-packages" in file_name or file_name.startswith(LIBRARIES)
            known = self._is_library[file_name] = is_there or file_name.startswith("<")
        return known


def _add(counts: Counter[str], name: str) -> None:
    if name in counts or len(counts) < PLACES:
        counts[name] += 1


def called_by(at: Instruction) -> str:
    """The function that an instruction calls, by its name in the source: `torch.tensor`.

    "" where it calls none, or its source is not known, as before Python 3.11.
    """
    positions = getattr(at.code, "co_positions", tuple)
    first, last, begin, end = next(islice(positions(), at.offset // 2, None), (None,) * 4)
    if first is None or last is None or begin is None or end is None:
        return ""
    lines = linecache.getlines(at.code.co_filename)[first - 1 : last]
    text = "".join(lines)
    if not text or "\\" in text:  # an escape may be warned of
        return ""
    try:
        source = text.encode()
        call = ast.parse(
            source[begin : len(source) - len(lines[-1].encode()) + end], mode="eval"
        ).body
    except (SyntaxError, ValueError):  # of a file that has changed since
        return ""
    if not isinstance(call, ast.Call):
        return ""
    names, function = [], call.func
    while isinstance(function, ast.Attribute):
        names.append(function.attr)
        function = function.value
    if isinstance(function, ast.Name):
        names.append(_full_name(function.id, at.names.get(function.id)))
    return ".".join(reversed(names))


def _full_name(name: str, value: object) -> str:
    """The module that a name stands for, or a function with its module; else the name."""
    if isinstance(value, ModuleType):
        return value.__name__
    if isinstance(value, BuiltinFunctionType):
        return f"{value.__module__ or 'builtins'}.{value.__name__}"
    return name


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


def _can_read_frames() -> bool:
    """Whether other threads stand still meanwhile: not in a free-threaded Python."""
    has_gil = getattr(sys, "_is_gil_enabled", None)
    return has_gil is None or bool(has_gil())


def _function(frame: FrameType) -> str:
    """The name of a frame's function; for a comprehension's frame, of the function around it."""
    outer: FrameType | None = frame
    while outer is not None and outer.f_code.co_name in COMPREHENSIONS:
        outer = outer.f_back
    return _qualified((outer or frame).f_code)


def _qualified(code: CodeType) -> str:
    """The function's name, with its class from Python 3.11 on: `Texts.__getitem__`."""
    name = str(getattr(code, "co_qualname", code.co_name))
    return name.rpartition("<locals>.")[2]
