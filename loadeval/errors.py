"""The exceptions and warnings of loadeval, and the guard that ends measuring, never training."""

import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType

PACKAGES = ("loadeval", "loadeval_adapters")


class LoadevalError(Exception):
    """Base of all errors that loadeval raises."""


class UsageError(LoadevalError, ValueError):
    """An invalid argument; the message says which, what was expected, and what to try."""


class RunLogError(LoadevalError, ValueError):
    """A file is no run log that this version can read, or a run log cannot be written."""


class CacheError(LoadevalError, RuntimeError):
    """Replay got no batches, or they need too much memory."""


class ProbeError(LoadevalError, RuntimeError):
    """A probe has nothing to read, or no longer has; the message says why."""


class LoadevalWarning(UserWarning):
    """Something that users should know about a measurement that continues."""


def in_words(error: BaseException) -> str:
    """The error's class and message, in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def warn(message: str) -> None:
    """Give a LoadevalWarning where the program called loadeval.

    It raises nothing, for it may not end a training: where warnings are errors, it is printed.
    """
    frames = traceback.walk_stack(sys._getframe(1))  # noqa: SLF001 - nothing else tells the caller
    callers = (level for level, (at, _) in enumerate(frames, 2) if _package_of(at) not in PACKAGES)
    try:
        warnings.warn(message, LoadevalWarning, stacklevel=next(callers, 2))
    except Exception:  # noqa: BLE001 - also what a program's own way to show warnings raises
        if sys.stderr is not None:
            with suppress(Exception):  # it is closed, or a program's own
                print(f"LoadevalWarning: {message}", file=sys.stderr)  # noqa: T201 - where warnings are errors


class Guard:
    """Ends what loadeval itself raises; `give_up` gets the first such error, and None ends nothing.

    What the loader raised passes through, and so does what is meant for the program: Ctrl-C, and
    what a signal's handler raised. As a context it ends what is raised in it.
    """

    def __init__(self, give_up: Callable[[Exception], object] | None) -> None:
        self.has_tripped = False
        self._give_up = give_up

    def ends(self, error: BaseException) -> bool:
        """Whether `error` ends here; the program must not see it then."""
        is_the_loaders = getattr(_raised, "by_loader", None) is error
        _raised.by_loader = None
        give_up = self._give_up
        if give_up is None or is_the_loaders or not isinstance(error, Exception):
            return False
        if is_of_a_signal(error):
            return False
        if not self.has_tripped:
            self.has_tripped = True
            give_up(error)
        return True

    def __enter__(self) -> None:
        """See `ends`."""

    def __exit__(self, _kind: object, error: BaseException | None, _where: object) -> bool:
        return error is not None and self.ends(error)


UNGUARDED = Guard(None)
"""Whoever handles our failures asks this one."""
_raised = threading.local()
"""`by_loader` is what a loader raised last in this thread, until a Guard was asked."""


def of_the_loader(error: BaseException) -> None:
    """Note that the loader raised `error`, so that no Guard ends it."""
    _raised.by_loader = error


class AskingTheLoader:
    """A context in which whatever is raised is the loader's own.

    But for what the code of an adapter itself raises, where that `may_fail`.
    """

    def __init__(self, *, may_fail: bool = False) -> None:
        self._may_fail = may_fail

    def __enter__(self) -> None:
        """See `of_the_loader`."""

    def __exit__(
        self, _kind: object, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if error is None:
            return
        *_, (innermost, _) = traceback.walk_tb(where)
        if not (self._may_fail and _package_of(innermost) in PACKAGES):
            of_the_loader(error)


def _package_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__")).partition(".")[0]


def is_of_a_signal(error: Exception) -> bool:
    """Whether a signal's handler raised `error`, in the middle of what we did."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if not {_package_of(frame) for frame in frames} - {*PACKAGES, "copy"}:
        return False  # asking for all handlers takes some 0.1 ms
    handlers = [signal.getsignal(number) for number in range(1, signal.NSIG)]
    codes = {
        getattr(function, "__code__", None)
        for handler in handlers
        if callable(handler)
        for function in (handler, type(handler).__call__, getattr(handler, "func", None))
    } - {None}
    return any(frame.f_code in codes for frame in frames)
