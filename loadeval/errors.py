"""The exceptions and warnings of loadeval."""


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
