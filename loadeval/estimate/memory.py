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

from loadeval.analysis.estimate.stats import slope
from loadeval.data.columns import UNKNOWN

if TYPE_CHECKING:
    from loadeval.analysis.estimate.stats import Estimate
    from loadeval.data.columns import Column, Columns, Values
    from loadeval.data.run import Run

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
    read = table[name] if table is not None and name in table else np.empty(0)
    known = read[np.isfinite(read)]
    return int(known[-1]) if len(known) else None


def _memory(table: Columns, subject: str) -> tuple[str, Values]:
    if subject == "process" and "anonymous_bytes" in table:
        return "anonymous_bytes", table.anonymous_bytes
    if "pss_bytes" in table:
        of_files = np.nan_to_num(table.pss_file_bytes) if "pss_file_bytes" in table else 0.0
        return "pss_bytes", table.pss_bytes - of_files
    unknown = np.full(len(table), np.nan)
    return "rss_bytes", table.rss_bytes if "rss_bytes" in table else unknown


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
    groups = np.array_split(np.arange(len(times)), MOST_POINTS)
    medians = [[np.median(column[group]) for group in groups] for column in (times, values)]
    return np.array(medians[0]), np.array(medians[1])


@dataclass(frozen=True, slots=True, eq=False)
class WorkerMemory:
    """The memory of one worker, from its start to its end, whenever it was read.

    `batches` counts those that it had loaded until then, and `faults` all its minor faults between
    the first and the last reading. `copied_bytes` is what it shared at first, and has as its own in
    the end.
    """

    worker: int
    batches: Column
    private_bytes: Column
    shared_bytes: Column
    faults: int
    copied_bytes: int


def memory_of_workers(run: Run) -> list[WorkerMemory]:
    """The workers whose memory was read twice or more, each start of one by itself."""
    starts = defaultdict[int, list[int]](list)
    for start in run.worker_starts:
        starts[start.worker].append(start.epoch)
    memories = []
    for worker in np.unique(run.stages.worker[run.stages.worker != UNKNOWN]).tolist():
        loaded = run.stages.where(worker=worker)
        life = np.searchsorted(sorted(starts[worker]), loaded.epoch, side="right")
        for number in np.unique(life).tolist():
            own = loaded.take(life == number)
            (read,) = np.nonzero((own.private_bytes != UNKNOWN) & (own.shared_bytes != UNKNOWN))
            if len(read) > 1:
                private, shared = own.private_bytes[read], own.shared_bytes[read]
                faults = int(own.minor_faults[read[0] : read[-1] + 1].clip(0).sum())
                copied = max(min(int(shared[0] - shared[-1]), int(private[-1] - private[0])), 0)
                memories.append(WorkerMemory(worker, read + 1, private, shared, faults, copied))
    return memories


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
    memories, stages = memory_of_workers(run), run.stages
    known = (stages.cpu_ns > 0) & (stages.system_ns != UNKNOWN) & (stages.minor_faults != UNKNOWN)
    if not memories or not known.any():
        return None
    stages = stages.take(known)
    copied = sum(memory.copied_bytes for memory in memories)
    pages = max(sum(memory.faults for memory in memories), 1)
    of_faults = min(copied / PAGE / pages, 1.0)
    kernel_ns, faults = float(stages.system_ns.sum()), float(stages.minor_faults.sum())
    in_faults_ns = min(kernel_ns, faults * MOST_FAULT_NS)
    return Copies(
        copied_bytes=copied / len(memories),
        shared_bytes=sum(int(memory.shared_bytes[0]) for memory in memories) / len(memories),
        of_faults=of_faults,
        faults=of_faults * float(stages.minor_faults.mean()),
        share=min(of_faults * in_faults_ns / float(stages.cpu_ns.sum()), 1.0),
    )


def bytes_kept(run: Run) -> float:
    """What workers keep more after each batch of the loader, as far as that goes on.

    Pages that a worker copies are not more than it shared. Growth that becomes slower, as of a
    cache that is nearly full, is none, nor is that of too few readings. Of workers that were
    started anew the last ones count.
    """
    latest = {memory.worker: memory for memory in memory_of_workers(run)}
    kept = 0.0
    for memory in latest.values():
        held = memory.private_bytes + memory.shared_bytes
        grown = (np.diff(held) / np.diff(memory.batches))[-LATEST:]
        if len(held) >= FEWEST_READINGS and grown.min() > 0 and grown[-1] >= EVEN * grown.max():
            kept += float(grown[-1])
    return kept / max(len(latest), 1)
