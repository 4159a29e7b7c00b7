"""Events of the Trace Event Format, as text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

PROCESS = 1
MARGIN = "2"
"""A fifth of a nanosecond, behind the three digits that count.

Some readers take microseconds times 1,000 and cut off what is behind the point. They would read
1.001, which as a binary fraction is a little less, as 1,000 ns, and see overlaps.
"""


def track_names(track: int, name: str) -> Iterator[str]:
    """The events that name a track, and put it at its place."""
    yield event("M", "thread_name", track, args={"name": name})
    yield event("M", "thread_sort_index", track, args={"sort_index": track})


def event(
    kind: str,
    name: str,
    track: int = PROCESS,
    ts: str | None = None,
    dur: str | None = None,
    **fields: Any,
) -> str:
    """One event as JSON in ASCII, `ts` and `dur` as below, other fields as they are."""
    text = json.dumps({"ph": kind, "pid": PROCESS, "tid": track, "name": name, **fields})
    times = (("ts", ts), ("dur", dur))
    timed = "".join(f', "{key}": {value}' for key, value in times if value is not None)
    return f"{text[:-1]}{timed}}}"


def moment(ns: int) -> str:
    """`ns` nanoseconds as the microseconds of `ts`."""
    return f"{ns // 1000}.{ns % 1000:03d}{MARGIN}"


def length(ns: int) -> str:
    """`ns` nanoseconds as the microseconds of `dur`."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def enclosing(ns: int) -> str:
    """The `dur` of an event around others, which must not look shorter than they are."""
    return length(ns) + MARGIN
