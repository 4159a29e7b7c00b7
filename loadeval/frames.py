"""In which line of a program a thread is, and which function that line calls."""

from __future__ import annotations

import ast
import gc
import linecache
import sys
import sysconfig
from collections.abc import Container, Iterator
from contextlib import contextmanager
from dis import opmap
from itertools import islice
from types import BuiltinFunctionType, CodeType, FrameType, ModuleType
from typing import Any

SWITCH_S = 0.0001
"""How long code may keep Python's lock from others at the moment when it is looked at.

Else it would mostly be seen where it gives the lock up by itself, not where it spends its time. At
any other moment it keeps the lock as ever, for the training process waits for it to receive.
"""
CAN_COLLECT_WHILE_READING = sys.version_info[:2] == (3, 11)
"""There a frame is made when it is first read, and making it may collect garbage.

A finalizer lets the thread that is looked at run on, and so free what is being read: the process
ends by a segmentation fault or hangs (python/cpython#97002 and #106883). Mended in Python 3.12.
"""
COMPREHENSIONS = {"<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>"}
"""Frames of their own within a function: the last three until Python 3.11."""
PACKAGES = "-packages"
"""What is in the path of installed packages: site-packages, dist-packages."""
LIBRARIES = tuple(
    path
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
    if (path := sysconfig.get_path(name))
)


def is_library(path: str) -> bool:
    """Whether a file belongs to Python or a package, or is none."""
    return PACKAGES in path or path.startswith((*LIBRARIES, "<"))


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


@nothing_collected()
def current_line(
    thread: int,
    until: Container[CodeType],
    skipped: tuple[str, ...] = (),
    *,
    by_source: bool = False,
) -> tuple[str, str, str, FrameType | None]:
    """Where `thread` is, `FOLDER/FILE:LINE FUNCTION`, or "", in its frames up to one of `until`.

    It is in the innermost frame that is not of a library; where all are, of an installed package,
    or else of Python. Files whose path begins as one of `skipped` are passed over. With it come the
    innermost function, "" where it is that one, what the line calls, and the outermost frame. Of a
    function of a library the full name is told, or, `by_source`, its name in the line.
    """
    frame: FrameType | None = sys._current_frames().get(thread)  # noqa: SLF001 - the one way
    innermost = package = own = called = None
    while frame is not None:
        path = frame.f_code.co_filename
        if not (own or path.startswith(skipped)):
            innermost = innermost or frame
            if is_library(path):
                package = package or (frame if PACKAGES in path else None)
                called = frame
            else:
                own = frame
        if frame.f_code in until or frame.f_back is None:
            break
        frame = frame.f_back
    line, called = own or package or innermost, called if own else None
    if line is None or innermost is None:
        return "", "", "", frame
    outer: FrameType | None = line
    while outer is not None and outer.f_code.co_name in COMPREHENSIONS:
        outer = outer.f_back
    if outer is None or outer.f_code.co_filename != line.f_code.co_filename:
        outer = line
    path = "/".join(line.f_code.co_filename.replace("\\", "/").split("/")[-2:])
    place = f"{path}:{line.f_lineno} {_qualified(outer.f_code)}"
    leaf = "" if innermost is line else _qualified(innermost.f_code)
    name = f"{called.f_globals.get('__name__', '')}.{_qualified(called.f_code)}" if called else ""
    if own is not None and (by_source or not called):
        name = called_by(own.f_code, own.f_lasti, own.f_globals) or name
    return place, leaf, name, frame


def called_by(code: CodeType, offset: int, names: dict[str, Any]) -> str:
    """The function that an instruction calls, by its name in the source: `torch.tensor`.

    A loop that asks for the next item calls what has made the items: `txn.cursor`.
    A name that stands for a module or a compiled function is told by its own in full. "" where
    nothing is called, or its source is not known, as before Python 3.11.
    """
    if (code, offset) not in _CALLED:
        _CALLED[code, offset] = _called_by(code, offset, names)
    return _CALLED[code, offset]


_CALLED: dict[tuple[CodeType, int], str] = {}


def _called_by(code: CodeType, offset: int, names: dict[str, Any]) -> str:
    positions = getattr(code, "co_positions", tuple)
    first, last, begin, end = next(islice(positions(), offset // 2, None), (None,) * 4)
    if first is None or last is None or begin is None or end is None:
        return ""
    lines = linecache.getlines(code.co_filename)[first - 1 : last]
    source = "".join(lines).encode()
    if not source or b"\\" in source:  # an escape may be warned of
        return ""
    try:
        call: Any = ast.parse(source[begin : len(source) - len(lines[-1].encode()) + end]).body[0]
    except (SyntaxError, ValueError, IndexError):  # of a file that has changed since
        return ""
    call = call.value if isinstance(call, ast.Expr) else call
    if code.co_code[offset] == opmap["FOR_ITER"]:  # of a loop or a comprehension, or what it reads
        call = getattr(getattr(call, "generators", [call])[0], "iter", call)
    parts, function = [], getattr(call, "func", None)
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


def _qualified(code: CodeType) -> str:
    """The function's name, with its class from Python 3.11 on: `Texts.__getitem__`."""
    name = str(getattr(code, "co_qualname", code.co_name))
    return name.rpartition("<locals>.")[2]
