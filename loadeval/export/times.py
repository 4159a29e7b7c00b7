"""When a run began, for formats that show values by the time of day."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING

from loadeval.errors import UsageError

if TYPE_CHECKING:
    from loadeval.runlog.model import Run


def began_at_s(run: Run) -> float:
    """When `run` began, in seconds since 1970. Raises UsageError where that is not known."""
    try:
        return seconds_of(run.header.created)
    except ValueError:
        raise UsageError(
            f"{run.path} was created at {run.header.created!r}, where a time in ISO 8601 was "
            "expected: this format shows values by the time of day; export the run as csv or "
            "parquet"
        ) from None


def seconds_of(created: str) -> float:
    """A time in ISO 8601, in UTC where it names no zone, in seconds since 1970.

    Raises ValueError for other text.
    """
    moment = datetime.fromisoformat(created)
    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()
