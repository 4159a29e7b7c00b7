"""The exceptions and warnings of loadeval."""

import sys
import warnings
from contextlib import suppress


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


def text_of(error: BaseException) -> str:
    """`str(error)`; empty where its class, which may be anybody's, cannot say."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - anybody's class may raise anything
        return ""


def in_words(error: BaseException) -> str:
    """The error's class and message, in one line."""
    text = " ".join(text_of(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def warn(message: str, stacklevel: int = 1) -> None:
    """Give a LoadevalWarning, which raises nothing: where warnings are errors, it is printed.

    For what a training meets while it is measured, which may not end it.
    """
    try:
        warnings.warn(message, LoadevalWarning, stacklevel=stacklevel + 1)
    except Exception:  # noqa: BLE001 - also what a program's own way to show warnings raises
        if sys.stderr is not None:
            with suppress(Exception):  # it is closed, or a program's own
                print(f"LoadevalWarning: {message}", file=sys.stderr)  # noqa: T201 - where warnings are errors
