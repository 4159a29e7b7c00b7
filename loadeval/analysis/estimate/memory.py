"""Whether memory grows while a run goes on: of the training process, and of its workers.

Of the workers PSS counts, without mapped files, which the system may drop. Of the process its
anonymous memory does, for its PSS also rises while its workers copy what they shared with it. RSS
stands in where the system told no better.

The slope is Theil's and Sen's. Memory also grows when a run starts up, and steps up now and then.
So the readings are halved: the slope is that of the second half, and
growth is only reported when the first half grows too, which one step, at whatever time, cannot do
to both. In a minute there are too few readings for that, for they are costly where much memory is
in use: growth is then reported when they all grow about as fast.

Workers that are started anew, at the beginning of an epoch say, begin a new stretch, for they
begin with fresh memory. Nothing is concluded from one stretch to the next, and they cannot grow by
more than they do in their longest. Workers that are only found one after the other have not been
started anew. The training process has one stretch: its readings pause
between epochs, and its memory does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.estimate.stats import slope
from loadeval.analysis.once import once_per_run
from loadeval.analysis.remark import Remark
from loadeval.data.columns import Columns

if TYPE_CHECKING:
    from loadeval.analysis.estimate.stats import Estimate, Series, TimeSeries
    from loadeval.data.run import Run

MEMORY_SUBJECTS = ("process", "workers")
LEAST_SHARE = 0.01
"""Growth by less than this share of the total memory in an hour does not matter."""
MOST_POINTS = 200
"""At most so many readings of a stretch count; of more, medians of neighbours stand for them."""
FEWEST_EVEN = 6
"""Readings that may tell of growth without two halves: in as many the slope has an interval."""
EVEN = 0.5
"""Growth is even if the slowest between two readings is at least this share of the fastest."""
HOUR_NS = 3.6e12


class GrowthReason(Enum):
    """Whether memory grows, or why that is not known."""

    GROWS = "grows"
    STARTED_ANEW = "workers started anew in time"
    LITTLE = "little"
    BY_CHANCE = "not beyond chance"
    NO_READINGS = "no readings"
    PROBE_FAILED = "probe failed"
    NO_LIMIT = "memory of the machine not known"
    FEW_READINGS = "few readings"


class GrowthAdvice(Enum):
    """What to look for where memory grows."""

    DROP_KEPT_TENSORS = "drop_kept_tensors"
    AVOID_COPY_ON_WRITE = "avoid_copy_on_write"
    BOUND_WORKER_CACHES = "bound_worker_caches"


@dataclass(frozen=True, slots=True)
class Growth:
    """How the memory of `subject`, "process" or "workers", grows.

    `bytes_per_hour` is None where it was not measured; `quantity` is what it is of, and
    `limit_bytes` the total memory. `reason` tells whether it grows, beyond chance and by as much
    as matters, or why it was not measured; `advice` is what to look for, None for nothing.
    """

    subject: str
    bytes_per_hour: Estimate | None
    quantity: str | None
    limit_bytes: int | None
    reason: Remark
    advice: GrowthAdvice | None = None

    @property
    def grows(self) -> bool:
        """Whether it does."""
        return self.reason.code is GrowthReason.GROWS


@once_per_run
def growth_of(run: Run, subject: str) -> Growth:
    """What `run` tells of the memory of `subject`."""
    readings = run.readings.get(("host", subject))
    limit_bytes = memory_there(run)
    if readings is None:
        return _not_measured(subject, _why_no_readings(run, subject))
    if limit_bytes is None:
        return _not_measured(subject, Remark(GrowthReason.NO_LIMIT))
    quantity, used = _memory(readings, subject)
    parts = _between_starts(readings, used)
    slopes = _slopes(parts)
    if not slopes:
        count = sum(len(times) for times, _ in parts)
        return _not_measured(subject, Remark(GrowthReason.FEW_READINGS, {"count": count}))
    latest = slopes[-1]
    share = latest.value / limit_bytes
    # How long it may go on growing, an hour at most: workers that are started anew begin again.
    hours = 1.0
    if len(parts) > 1 and _restart(readings):
        hours = min(1.0, max(float(np.ptp(times)) for times, _ in parts))
    advice = None
    if not all(each.low and each.low > 0 for each in slopes):
        code = GrowthReason.BY_CHANCE
    elif share * hours >= LEAST_SHARE:
        code = GrowthReason.GROWS
        advice = GrowthAdvice.DROP_KEPT_TENSORS
        if subject == "workers":
            forked = run.header.loader.start_method in (None, "fork")
            advice = (
                GrowthAdvice.AVOID_COPY_ON_WRITE if forked else GrowthAdvice.BOUND_WORKER_CACHES
            )
    else:
        code = GrowthReason.STARTED_ANEW if share >= LEAST_SHARE else GrowthReason.LITTLE
    values = {"bytes_per_hour": latest.value, "share": share, "limit_bytes": limit_bytes}
    return Growth(subject, latest, quantity, limit_bytes, Remark(code, values), advice)


def _not_measured(subject: str, reason: Remark) -> Growth:
    return Growth(subject, None, None, None, reason)


def _why_no_readings(run: Run, subject: str) -> Remark:
    missing = [why for (probe, _), why in run.missing.items() if probe == "host"]
    if missing:
        return Remark(GrowthReason.PROBE_FAILED, {"reason": missing[0]})
    return Remark(GrowthReason.NO_READINGS, {"subject": subject})


def memory_there(run: Run) -> int | None:
    """What training may use: of the machine, or of its control group; None is not known."""
    there = _last_read(run, "memory_limit_bytes") or run.header.environment.get("memory_bytes")
    return int(there) if there else None


def memory_left(run: Run) -> int | None:
    """What was still free of it when that was last read; None is not known."""
    return _last_read(run, "memory_available_bytes")


def _last_read(run: Run, name: str) -> int | None:
    machine = run.readings.get(("host", "machine"), Columns.empty(()))
    read = machine[name] if name in machine else np.empty(0)
    known = read[np.isfinite(read)]
    return int(known[-1]) if len(known) else None


def _memory(read: Columns, subject: str) -> tuple[str, Series]:
    unknown = np.full(len(read), np.nan)
    if subject == "process" and "anonymous_bytes" in read:
        return "anonymous_bytes", read.anonymous_bytes
    if "pss_bytes" in read:
        of_files = np.nan_to_num(read.pss_file_bytes if "pss_file_bytes" in read else unknown)
        return "pss_bytes", read.pss_bytes - of_files
    return "rss_bytes", read.rss_bytes if "rss_bytes" in read else unknown


def _between_starts(readings: Columns, used: Series) -> list[TimeSeries]:
    """The known readings, by hours, cut where a worker has come or gone."""
    known = np.isfinite(used)
    hours, used = readings.time_ns[known] / HOUR_NS, used[known]
    cuts: set[int] = set()
    for name in ("started_workers", "alive_workers"):
        if name in readings:
            changed = np.diff(readings[name][known]) != 0
            cuts |= set((np.flatnonzero(changed) + 1).tolist())
    at = sorted(cuts)
    return list(zip(np.split(hours, at), np.split(used, at), strict=True))


def _restart(readings: Columns) -> bool:
    """Whether workers have ended and others begun, as far as that is told."""
    if not {"started_workers", "alive_workers"} <= set(readings.names):
        return True
    return bool((readings.started_workers > readings.alive_workers).any())


def _slopes(parts: list[TimeSeries]) -> list[Estimate]:
    """The slopes of both halves; of few readings that grow evenly the slope of all.

    Fewer than FEWEST_EVEN have none.
    """
    slopes = [slope(list(map(_thinned, half))) for half in _halves(parts)]
    known = [estimate for estimate in slopes if estimate is not None and estimate.low is not None]
    if len(known) == len(slopes):
        return known
    times, values = max(parts, key=lambda part: len(part[0]))
    if len(times) < FEWEST_EVEN:
        return []
    with np.errstate(all="ignore"):  # a line that is there twice: its rates are no numbers
        rates = np.diff(values) / np.diff(times)
    whole = slope([(times, values)]) if rates.min() >= EVEN * rates.max() > 0 else None
    return [] if whole is None else [whole]


def _halves(parts: list[TimeSeries]) -> tuple[list[TimeSeries], list[TimeSeries]]:
    middles = [(len(times) // 2, times, values) for times, values in parts]
    return (
        [(times[:middle], values[:middle]) for middle, times, values in middles],
        [(times[middle:], values[middle:]) for middle, times, values in middles],
    )


def _thinned(part: TimeSeries) -> TimeSeries:
    count = len(part[0])
    if count <= MOST_POINTS:
        return part
    groups = np.array_split(np.arange(count), MOST_POINTS)
    times, values = (np.array([np.median(column[group]) for group in groups]) for column in part)
    return times, values
