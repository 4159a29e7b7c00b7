"""Whether memory grows while a run goes on: of the training process, and of its workers.

Of the workers PSS counts, without mapped files, which the system may drop. Of the process its
anonymous memory does, for its PSS also rises while its workers copy what they shared with it. RSS
stands in where the system told no better.

The slope is Theil's and Sen's, see `slope`. Memory also grows when a run starts up, and steps up
now and then. So each stretch of readings is halved: the slope is that of the second half, and
growth is only reported when the first half grows too, which one step, at whatever time, cannot do
to both.

Workers that are started anew, at the beginning of an epoch say, begin a new stretch, for they
begin with fresh memory. Nothing is concluded from one stretch to the next, and they cannot grow by
more than they do in their longest. The training process has one stretch: its readings pause
between epochs, and its memory does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.slope import slope

if TYPE_CHECKING:
    from loadeval.analysis.intervals import Estimate
    from loadeval.analysis.slope import Series, Stretch
    from loadeval.runlog.model import Readings, Run

SUBJECTS = ("process", "workers")
LEAST_SHARE = 0.01
"""Of the memory there is: growth by less in an hour does not matter."""
MOST_POINTS = 200
"""Of a stretch; a longer one is told by the medians of neighbouring readings."""
HOUR_NS = 3.6e12
GB = 1e9
PROCESS_GROWS = (
    "Something is kept from step to step: look for losses or outputs that are kept as tensors, "
    "with all that they were computed from (keep loss.item() instead), and for lists and caches "
    "without a bound."
)
FORKED_WORKERS_GROW = (
    "The usual cause is copy-on-write: to read a Python object writes its reference count, so "
    "workers that were forked copy, bit by bit, the lists and dictionaries of the dataset. Keep "
    "them in NumPy arrays or tensors, or in a file that is mapped, or use fewer workers. Else look "
    "for caches without a bound in the dataset."
)
WORKERS_GROW = (
    "Each worker has a dataset of its own: look for caches without a bound in it, and for files "
    "that it never closes; or use fewer workers, or start them anew for each epoch."
)


@dataclass(frozen=True, slots=True)
class Growth:
    """How the memory of `subject`, "process" or "workers", grows.

    `bytes_per_hour` is None where it was not measured; `quantity` is what it is of, and
    `limit_bytes` the memory there is. `grows` tells whether it does, beyond chance and by as much
    as matters; `reason` why, or why it was not measured; `advice` what to try, "" for nothing.
    """

    subject: str
    bytes_per_hour: Estimate | None
    quantity: str | None
    limit_bytes: int | None
    grows: bool
    reason: str
    advice: str = ""


def growths(run: Run) -> tuple[Growth, ...]:
    """What `run` tells of the process, and of its workers."""
    return tuple(growth(run, subject) for subject in SUBJECTS)


def growth(run: Run, subject: str) -> Growth:
    """What `run` tells of the memory of `subject`."""
    readings = _readings(run, subject)
    if readings is None:
        return _not_measured(subject, _why_no_readings(run, subject))
    limit_bytes = _limit_bytes(run)
    if limit_bytes is None:
        return _not_measured(subject, "how much memory the machine has is not known")
    quantity, used = _memory(readings)
    stretches = _stretches(readings, used)
    firsts, seconds = (slope(list(map(_thinned, half))) for half in _halves(stretches))
    if firsts is None or seconds is None or firsts.low is None or seconds.low is None:
        return _not_measured(
            subject,
            "too few readings of memory for a trend, "
            f"{sum(len(times) for times, _ in stretches)}: run for some minutes",
        )
    goes_on = firsts.low > 0 and seconds.low > 0
    gained = seconds.value * _hours(stretches) / limit_bytes
    grows = goes_on and gained >= LEAST_SHARE
    return Growth(
        subject,
        seconds,
        quantity,
        limit_bytes,
        grows,
        _reason(seconds, limit_bytes, grows, goes_on),
        _advice(run, subject) if grows else "",
    )


def _not_measured(subject: str, why: str) -> Growth:
    return Growth(subject, None, None, None, False, f"not measured: {why}")


def _readings(run: Run, subject: str) -> Readings | None:
    found = (one for one in run.readings if (one.probe, one.subject) == ("host", subject))
    return next(found, None)


def _why_no_readings(run: Run, subject: str) -> str:
    missing = (one.missing for one in run.readings if one.probe == "host" and one.missing)
    return next(missing, f"there are no readings of the {subject}")


def _limit_bytes(run: Run) -> int | None:
    machine = _readings(run, "machine")
    told = np.empty(0) if machine is None else machine.values.get("memory_limit_bytes", np.empty(0))
    known = told[np.isfinite(told)]
    found = known[-1] if len(known) else run.header.environment.get("memory_bytes")
    return int(found) if found else None


def _memory(readings: Readings) -> tuple[str, Series]:
    values, unknown = readings.values, np.full(len(readings), np.nan)
    if readings.subject == "process" and "anonymous_bytes" in values:
        return "anonymous_bytes", values["anonymous_bytes"]
    if "pss_bytes" in values:
        of_files = np.nan_to_num(values.get("pss_file_bytes", unknown))
        return "pss_bytes", values["pss_bytes"] - of_files
    return "rss_bytes", values.get("rss_bytes", unknown)


def _stretches(readings: Readings, used: Series) -> list[Stretch]:
    """The known readings, by hours, cut where a worker has come or gone."""
    known = np.isfinite(used)
    hours, used = readings.time_ns[known] / HOUR_NS, used[known]
    cuts: set[int] = set()
    for name in ("started_workers", "alive_workers"):
        if name in readings.values:
            changed = np.diff(readings.values[name][known]) != 0
            cuts |= set((np.flatnonzero(changed) + 1).tolist())
    at = sorted(cuts)
    return list(zip(np.split(hours, at), np.split(used, at), strict=True))


def _halves(stretches: list[Stretch]) -> tuple[list[Stretch], list[Stretch]]:
    middles = [(len(times) // 2, times, values) for times, values in stretches]
    return (
        [(times[:middle], values[:middle]) for middle, times, values in middles],
        [(times[middle:], values[middle:]) for middle, times, values in middles],
    )


def _thinned(stretch: Stretch) -> Stretch:
    count = len(stretch[0])
    if count <= MOST_POINTS:
        return stretch
    groups = np.array_split(np.arange(count), MOST_POINTS)
    times, values = (np.array([np.median(one[group]) for group in groups]) for one in stretch)
    return times, values


def _hours(stretches: list[Stretch]) -> float:
    """How long it may go on growing, an hour at most."""
    if len(stretches) == 1:
        return 1.0
    return min(1.0, max(float(np.ptp(times)) for times, _ in stretches))


def _reason(found: Estimate, limit_bytes: int, grows: bool, goes_on: bool) -> str:
    if not goes_on:
        return "it does not grow beyond chance"
    share = found.value / limit_bytes
    pace = (
        f"{found.value / GB:.3g} GB an hour, {share:.1%} of the {limit_bytes / GB:.3g} GB there are"
    )
    if grows:
        return f"it grows by {pace}"
    if share >= LEAST_SHARE:
        return f"it grows by {pace}, but the workers are started anew before that matters"
    return f"it grows by no more than {pace}"


def _advice(run: Run, subject: str) -> str:
    if subject == "process":
        return PROCESS_GROWS
    forked = run.header.loader.start_method in (None, "fork")
    return FORKED_WORKERS_GROW if forked else WORKERS_GROW
