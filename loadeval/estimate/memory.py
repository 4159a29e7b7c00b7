"""How memory grows while a run goes on, what forked workers copy, and what workers keep.

Of the workers PSS counts, without mapped files, which the system may drop. Of the process its
anonymous memory does, and shared memory, in which tensors come from workers: its PSS also rises
while workers copy what they shared with it. That of workers does not, and is read more often: it
tells what they keep of their own, and stands in where PSS was read too few times, as RSS does where
the system told no better.

Memory also grows when a run starts up, and steps up now and then. So growth is that of the second
half, where the first one grows too, and not far faster: one step cannot do that to both. Where a
worker comes or goes a new stretch begins, and nothing is concluded from one to the next.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from loadeval.data.columns import UNKNOWN, Columns, Values
from loadeval.data.run import Run, host_values
from loadeval.estimate.stats import Estimate, slope
from loadeval.estimate.steady import once_per_run
from loadeval.words import size

HOUR_NS = 3.6e12
LEAST_SHARE = 0.01
"""Growth by less than this share of the total memory in an hour does not matter."""
PAGE, MOST_FAULT_NS = 4096, 10_000
"""Forked memory is copied in pages of so many bytes, also where large ones are in use. A fault is
taken to need no more kernel time: 1 to 4 us are usual."""
MINUTE_NS = 6e10
FEWEST_BYTES = 16_000_000
"""Growth that was seen for less than a minute may be a start: an allocator keeps 0.45 GB of what it
frees in the first seconds. It counts where the process kept at least so much, and fills the memory
in an hour or keeps half of what its batches had."""
FEWEST_READINGS = 5
"""Fewer do not tell growth from a start: memory is read after 0, 0.5, 1, 2 and 4 s."""
LATEST, EVEN, ARENA_BYTES = 3, 0.5, 1 << 20
"""What workers keep grows on if it grew between each of so many last readings, by so much in all,
which is what Python takes from the system at once, and in the end at this share of the fastest."""


class Growth(NamedTuple):
    """How the memory of the training process, or of its workers, grows.

    `bytes_per_hour` is None where it was not measured. `grows` tells whether it does so beyond
    chance and by as much as matters, and `says` why not, or why it was not measured. In `seen_ns`
    it has grown by `kept_bytes`, which is `of_batches`, a share, of the bytes of the `batches` that
    were served meanwhile; `of_shared` of it is in shared memory, and `of_own` are no copied pages.
    """

    says: str
    grows: bool = False
    bytes_per_hour: Estimate | None = None
    seen_ns: float = 0.0
    kept_bytes: float = 0.0
    batches: int = 0
    of_batches: float = 0.0
    of_shared: float = 0.0
    of_own: float = 0.0


@once_per_run
def growth(run: Run, subject: str) -> Growth:
    """What `run` tells of the memory of `subject`, "process" or "workers"."""
    table, limit_bytes = run.readings.get(("host", subject)), last_read(run, "memory_limit_bytes")
    if table is None:
        missing = [why for (probe, _), why in run.missing.items() if probe == "host"]
        return Growth(missing[0] if missing else f"no memory readings of the {subject}")
    if limit_bytes is None:
        return Growth("the machine's memory size is not known")
    unknown = np.full(len(table), np.nan)
    shared = np.nan_to_num(table.get("shared_memory_bytes", unknown))
    own: Values = table.get("anonymous_bytes", unknown) + shared
    of_files = np.nan_to_num(table.get("pss_file_bytes", unknown))
    ways: list[Values] = [table.get("pss_bytes", unknown) - of_files, own]
    ways = [each for each in ways[:: -1 if subject == "process" else 1] if np.isfinite(each).any()]
    ways = ways or [table.get("rss_bytes", unknown)]
    of_own = trend(run, table, own)[1]
    told = (
        each for each in ways if (known := trend(run, table, each)[1]) and known.low is not None
    )
    used = next(told, ways[0])
    first, second, lives_ns = trend(run, table, used)
    if first is None or second is None or None in (first.low, second.low):
        readings = f"too few memory readings for a trend ({np.isfinite(used).sum()})"
        return Growth(f"{readings}; let it run for a minute")
    began_ns, *_, ended_ns = table.time_ns[np.isfinite(used)]
    at_ns, seen_ns = run.steps.request_ns, float(ended_ns - began_ns)
    served = run.steps.nbytes[(began_ns <= at_ns) & (at_ns < ended_ns)].clip(0)
    kept_bytes, batch_bytes = second.value * seen_ns / HOUR_NS, float(served.sum())
    matters, grows = LEAST_SHARE * limit_bytes, False
    is_fast = second.value >= limit_bytes or kept_bytes >= EVEN * batch_bytes > 0
    is_start = seen_ns < MINUTE_NS and not (is_fast and kept_bytes >= FEWEST_BYTES)
    if min(first.bounds[0], second.bounds[0]) <= 0:
        says = "any growth is within the noise"
    elif second.value < matters:
        says = "it grows by little"
    elif second.value < EVEN * first.value:
        says = "it grows ever more slowly"
    elif second.value * min(lives_ns / HOUR_NS, 1.0) < matters:
        says = "it grows, but the workers restart before that matters"
    elif is_start:
        says = "it grows, but was seen for less than a minute"
    else:
        says, grows = "it grows", True
    mapped = trend(run, table, table.get("mapped_file_bytes", unknown))[1]
    if mapped is not None and mapped.bounds[0] > 0 and mapped.value >= matters:
        says += f" (pages of mapped files do, by {size(mapped.value)}: the system may drop them)"
    of_shared = trend(run, table, shared)[1]
    in_shared = of_shared.value / second.value if of_shared and second.value else 0.0
    of_batches = kept_bytes / max(batch_bytes, 1.0)
    in_own = of_own.value / second.value if of_own and second.value else 0.0
    seen = (seen_ns, kept_bytes, len(served), of_batches, in_shared, in_own)
    return Growth(says, grows, second, *seen)


def trend(run: Run, table: Columns, used: Values) -> tuple[Estimate | None, Estimate | None, float]:
    """How much `used`, which was read with `table`, grows in an hour: in each half of the run.

    And how long workers live, in ns: those that are started anew begin with fresh memory. Others
    that come and go, as for validation, are told from them where their starts were seen.
    """
    table, used = table.take(np.isfinite(used)), used[np.isfinite(used)]
    none, hours = np.zeros(len(used)), table.time_ns / HOUR_NS
    started, alive = table.get("started_workers", none), table.get("alive_workers", none)
    cuts = np.flatnonzero((np.diff(started) != 0) | (np.diff(alive) != 0)) + 1
    stretches = [*zip(np.split(hours, cuts), np.split(used, cuts), strict=True)]
    first = slope([(t[: len(t) // 2], used[: len(t) // 2]) for t, used in stretches])
    second = slope([(t[len(t) // 2 :], used[len(t) // 2 :]) for t, used in stretches])
    lives_ns, epochs = np.inf, {start.epoch for start in run.worker_starts}
    if (started > alive).any() and len(epochs) != 1:
        lives_ns = HOUR_NS * max(float(np.ptp(times)) for times, _ in stretches)
    return first, second, lives_ns


def last_read(run: Run, name: str) -> int | None:
    """The last value of this name that was read of the machine."""
    known = host_values(run, "machine", name)
    return int(known[-1]) if len(known) else None


class Copies(NamedTuple):
    """The pages that forked workers have copied.

    Means over workers: `copied_bytes`, of `shared_bytes` that each had with the training process
    at first. `of_faults` is the share of their page faults that copied, and `share` what these
    took, in the kernel, of the CPU time of fetching and collating.
    """

    copied_bytes: float
    shared_bytes: float
    of_faults: float
    share: float


@once_per_run
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
    cpu_ns, kernel_ns = float(stages.cpu_ns[known].sum()), float(stages.system_ns[known].sum())
    most_ns = float(stages.minor_faults[known].sum()) * MOST_FAULT_NS
    return Copies(
        copied / len(workers),
        shared / len(workers),
        of_faults,
        share=min(of_faults * min(kernel_ns, most_ns) / cpu_ns, 1.0),
    )


def bytes_kept(run: Run) -> float | None:
    """What workers keep more after each batch of the loader, as far as that goes on.

    Pages that a worker copies are not more than it shared. Growth that becomes slower, as of a
    cache that is nearly full, is none. Of workers that were started anew the last ones count. None
    where one of them has too few readings.
    """
    latest = {worker: read for worker, read, _ in _of_workers(run)}
    kept = 0.0
    for read in latest.values():
        held = read.private_bytes + read.shared_bytes
        grown = (np.diff(held) / np.diff(read.batches))[-LATEST:]
        if len(held) < FEWEST_READINGS:
            return None
        is_even = grown.min() > 0 and grown[-1] >= EVEN * grown.max()
        if is_even and held[-1] - held[-1 - LATEST] >= ARENA_BYTES:
            kept += float(grown[-1])
    return kept / len(latest) if latest else None


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
