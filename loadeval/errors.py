"""What loadeval raises and warns."""


class LoadevalError(Exception):
    """Base of every error that loadeval raises on its own account."""


class UsageError(LoadevalError, ValueError):
    """An argument cannot be used: the message says which, what was expected, what to try."""


class RunLogError(LoadevalError, ValueError):
    """A file is not a run log that this version reads, or one cannot be written there."""


class CacheError(LoadevalError, RuntimeError):
    """Batches for replay could not be kept."""


class ProbeError(LoadevalError, RuntimeError):
    """A probe has nothing to read here, or no longer: the message says why."""


class LoadevalWarning(UserWarning):
    """Something a user should know about a measurement that goes on."""
