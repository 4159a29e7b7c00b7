"""How memory grows while a run goes on, what forked workers copy, and what workers keep.

Of the workers PSS counts, without mapped files, which the system may drop. Of the process its
anonymous memory does, for its PSS also rises while its workers copy what they shared with it. RSS
stands in where the system told no better.

The slope is Theil's and Sen's. Memory also grows when a run starts up, and steps up now and then.
So the readings are halved: the slope is that of the second half, and growth is only reported when
the first half grows too, which one step, at whatever time, cannot do to both. In a minute there are
too few readings for that, for they are costly where much memory is in use: growth is then reported
when they all grow about as fast.

Workers that are started anew, at the beginning of an epoch say, begin a new stretch, for they begin
with fresh memory. Nothing is concluded from one stretch to the next, and they cannot grow by more
than they do in their longest. Workers that are only found one after the other have not been started
anew. The training process has one stretch: its readings pause between epochs, and its memory does
not.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from loadeval.data.columns import UNKNOWN
from loadeval.estimate.stats import slope

if TYPE_CHECKING:
    from loadeval.data.columns import Columns, Values
    from loadeval.data.run import Run
    from loadeval.estimate.stats import Estimate

    Series: TypeAlias = tuple[Values, Values]

LEAST_SHARE = 0.01
"""Growth by less than this share of the total memory in an hour does not matter."""
MOST_POINTS = 200
"""At most so many readings of a stretch count; of more, medians of neighbours stand for them."""
FEWEST_EVEN = 6
"""Readings that may tell of growth without two halves: in as many the slope has an interval."""
EVEN = 0.5
"""Growth is even if the slowest, or the last, is at least this share of the fastest."""
HOUR_NS = 3.6e12
PAGE = 4096
"""Forked memory is copied in pages of so many bytes, also where large ones are in use."""
MOST_FAULT_NS = 10_000
"""A page fault is taken to need no more kernel time; 1 to 4 us are usual."""
FEWEST_READINGS = 5
"""Of fewer nobody can tell growth from a start: memory is read after 0, 0.5, 1, 2 and 4 s."""
LATEST = 3
"""Growth between so many of the last readings goes on, where it is even."""


@dataclass(frozen=True, slots=True)
class Growth:
    """How the memory of `subject`, "process" or "workers", grows.

    `bytes_per_hour` is None where it was not measured; `quantity` is what it is of, and
    `limit_bytes` the total memory. `grows` tells whether it does so beyond chance and by as much as
    matters, and `says` why not, or why it was not measured.
    """

    subject: str
    says: str
    grows: bool = False
    bytes_per_hour: Estimate | None = None
    quantity: str | None = None
    limit_bytes: int | None = None


def growth(run: Run, subject: str) -> Growth:
    """What `run` tells of the memory of `subject`."""
    table, limit_bytes = run.readings.get(("host", subject)), memory_there(run)
    if table is None:
        missing = [why for (probe, _), why in run.missing.items() if probe == "host"]
        return Growth(subject, missing[0] if missing else f"no memory readings of the {subject}")
    if limit_bytes is None:
        return Growth(subject, "the machine's memory size is not known")
    quantity, used = _memory(table, subject)
    parts = _between_starts(table, used)
    slopes = _slopes(parts)
    if not slopes:
        count = sum(len(times) for times, _ in parts)
        few = f"too few memory readings for a trend ({count}); run for some minutes"
        return Growth(subject, few)
    share = slopes[-1].value / limit_bytes
    is_anew = len(parts) > 1
    if {"started_workers", "alive_workers"} <= set(table.names):
        is_anew = is_anew and bool((table.started_workers > table.alive_workers).any())
    # How long it may go on growing, an hour at most: workers that are started anew begin again.
    hours = min(1.0, max(float(np.ptp(times)) for times, _ in parts)) if is_anew else 1.0
    grows = False
    if not all(each.low and each.low > 0 for each in slopes):
        says = "any growth is within the noise"
    elif share < LEAST_SHARE:
        says = "it grows by little"
    elif share * hours < LEAST_SHARE:
        says = "it grows, but the workers restart before that matters"
    else:
        says, grows = "it grows", True
    return Growth(subject, says, grows, slopes[-1], quantity, limit_bytes)


def memory_there(run: Run) -> int | None:
    """What training may use: of the machine, or of its control group; None is not known."""
    there = _last_read(run, "memory_limit_bytes") or run.header.environment.get("memory_bytes")
    return int(there) if there else None


def memory_left(run: Run) -> int | None:
    """What was still free of it when that was last read; None is not known."""
    return _last_read(run, "memory_available_bytes")


def _last_read(run: Run, name: str) -> int | None:
    table = run.readings.get(("host", "machine"))
    read = np.empty(0) if table is None else table.get(name, np.empty(0))
    known = read[np.isfinite(read)]
    return int(known[-1]) if len(known) else None


def _memory(table: Columns, subject: str) -> tuple[str, Values]:
    if subject == "process" and "anonymous_bytes" in table:
        return "anonymous_bytes", table.anonymous_bytes
    unknown = np.full(len(table), np.nan)
    if "pss_bytes" in table:
        return "pss_bytes", table.pss_bytes - np.nan_to_num(table.get("pss_file_bytes", unknown))
    return "rss_bytes", table.get("rss_bytes", unknown)


def _between_starts(table: Columns, used: Values) -> list[Series]:
    """The known readings, by hours, cut where a worker has come or gone."""
    known = np.isfinite(used)
    table, used = table.take(known), used[known]
    changes = np.zeros(max(len(used) - 1, 0), dtype=np.bool_)
    for name in ("started_workers", "alive_workers"):
        if name in table:
            changes |= np.diff(table[name]) != 0
    at = np.flatnonzero(changes) + 1
    return list(zip(np.split(table.time_ns / HOUR_NS, at), np.split(used, at), strict=True))


def _slopes(parts: list[Series]) -> list[Estimate]:
    """The slopes of both halves; of few readings that grow evenly the slope of all.

    Fewer than FEWEST_EVEN have none.
    """
    halves: tuple[list[Series], list[Series]] = ([], [])
    for times, values in parts:
        middle = len(times) // 2
        halves[0].append(_thinned(times[:middle], values[:middle]))
        halves[1].append(_thinned(times[middle:], values[middle:]))
    slopes = [each for each in map(slope, halves) if each is not None and each.low is not None]
    if len(slopes) == len(halves):
        return slopes
    times, values = max(parts, key=lambda part: len(part[0]))
    if len(times) < FEWEST_EVEN:
        return []
    with np.errstate(all="ignore"):  # a line that is there twice: its rates are no numbers
        rates = np.diff(values) / np.diff(times)
    whole = slope([(times, values)]) if rates.min() >= EVEN * rates.max() > 0 else None
    return [] if whole is None else [whole]


def _thinned(times: Values, values: Values) -> Series:
    if len(times) <= MOST_POINTS:
        return times, values
    groups = (np.array_split(column, MOST_POINTS) for column in (times, values))
    times, values = (np.array([*map(np.median, parts)]) for parts in groups)
    return times, values


@dataclass(frozen=True, slots=True)
class Copies:
    """The pages that forked workers have copied.

    Means over workers: `copied_bytes`, of `shared_bytes` that each had with the training process
    at first. `of_faults` is the share of their page faults that copied, `faults` the number of
    those in a batch, and `share` what they took, in the kernel, of the CPU time of fetching and
    collating.
    """

    copied_bytes: float
    shared_bytes: float
    of_faults: float
    faults: float
    share: float


def copies(run: Run) -> Copies | None:
    """What forked workers have copied; None where that was not read."""
    workers, stages = _of_workers(run), run.stages
    known = (stages.cpu_ns > 0) & (stages.system_ns != UNKNOWN) & (stages.minor_faults != UNKNOWN)
    if not workers or not known.any():
        return None
    copied, shared, pages = 0, 0, 0
    for _, read, faults in workers:
        unshared = int(read.shared_bytes[0] - read.shared_bytes[-1])
        own = int(read.private_bytes[-1] - read.private_bytes[0])
        copied += max(min(unshared, own), 0)
        shared += int(read.shared_bytes[0])
        pages += faults
    of_faults = min(copied / PAGE / max(pages, 1), 1.0)
    cpu_ns, kernel_ns, all_faults = (
        float(column[known].sum())
        for column in (stages.cpu_ns, stages.system_ns, stages.minor_faults)
    )
    return Copies(
        copied_bytes=copied / len(workers),
        shared_bytes=shared / len(workers),
        of_faults=of_faults,
        faults=of_faults * all_faults / int(known.sum()),
        share=min(of_faults * min(kernel_ns, all_faults * MOST_FAULT_NS) / cpu_ns, 1.0),
    )


def bytes_kept(run: Run) -> float:
    """What workers keep more after each batch of the loader, as far as that goes on.

    Pages that a worker copies are not more than it shared. Growth that becomes slower, as of a
    cache that is nearly full, is none, nor is that of too few readings. Of workers that were
    started anew the last ones count.
    """
    latest = {worker: read for worker, read, _ in _of_workers(run)}
    kept = 0.0
    for read in latest.values():
        held = read.private_bytes + read.shared_bytes
        grown = (np.diff(held) / np.diff(read.batches))[-LATEST:]
        if len(held) >= FEWEST_READINGS and grown.min() > 0 and grown[-1] >= EVEN * grown.max():
            kept += float(grown[-1])
    return kept / max(len(latest), 1)


def _of_workers(run: Run) -> list[tuple[int, Columns, int]]:
    """The workers whose memory was read twice or more, each start of one by itself.

    Each with its readings: `batches` that it had loaded until then, `private_bytes` and
    `shared_bytes`; and with all its minor faults between the first and the last.
    """
    starts = defaultdict[int, list[int]](list)
    for start in run.worker_starts:
        starts[start.worker].append(start.epoch)
    workers = []
    for worker, loaded in run.stages.take(run.stages.worker != UNKNOWN).by("worker"):
        life = np.searchsorted(sorted(starts[worker]), loaded.epoch, side="right")
        for _, own in loaded.replace(life=life).by("life"):
            (rows,) = np.nonzero((own.private_bytes != UNKNOWN) & (own.shared_bytes != UNKNOWN))
            if len(rows) > 1:
                faults = own.minor_faults[rows[0] : rows[-1] + 1].clip(0).sum()
                workers.append((worker, own.take(rows).replace(batches=rows + 1), int(faults)))
    return workers
