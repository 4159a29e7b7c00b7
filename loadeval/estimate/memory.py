"""How memory grows while a run goes on, what forked workers copy, and what workers keep.

Of the workers PSS counts, without mapped files, which the system may drop. Of the process its
anonymous memory does, for its PSS also rises while its workers copy what they shared with it.

Memory also grows when a run starts up, and steps up now and then. So growth is that of the second
half, where the first one grows too: one step cannot do that to both. Where a worker comes or goes a
new stretch begins, and nothing is concluded from one to the next.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from loadeval.data.columns import UNKNOWN, Columns, Values
from loadeval.data.run import Run
from loadeval.estimate.stats import slope

HOUR_NS = 3.6e12
LEAST_SHARE = 0.01
"""Growth by less than this share of the total memory in an hour does not matter."""
PAGE, MOST_FAULT_NS = 4096, 10_000
"""Forked memory is copied in pages of so many bytes, also where large ones are in use. A fault is
taken to need no more kernel time: 1 to 4 us are usual."""
FEWEST_READINGS = 5
"""Of fewer nobody can tell growth from a start: memory is read after 0, 0.5, 1, 2 and 4 s."""
LATEST, EVEN = 3, 0.5
"""Growth between so many of the last readings goes on, where the last is as large a share of the
fastest."""


def growth(run: Run, subject: str) -> float | None:
    """By how many bytes an hour the memory of `subject`, "process" or "workers", grows.

    0 where that is chance, or so little that it does not matter; None where it was read too rarely.
    """
    table, limit_bytes = run.readings.get(("host", subject)), last_read(run, "memory_limit_bytes")
    if table is None or limit_bytes is None:
        return None
    unknown = np.full(len(table), np.nan)
    of_files = np.nan_to_num(table.get("pss_file_bytes", unknown))
    used: Values = table.get("pss_bytes", unknown) - of_files
    if subject == "process":
        used = table.get("anonymous_bytes", unknown)
    known = np.isfinite(used)
    table, hours, used = table.take(known), table.time_ns[known] / HOUR_NS, used[known]
    none = np.zeros(len(used))
    started, alive = table.get("started_workers", none), table.get("alive_workers", none)
    cuts = np.flatnonzero((np.diff(started) != 0) | (np.diff(alive) != 0)) + 1
    stretches = [*zip(np.split(hours, cuts), np.split(used, cuts), strict=True)]
    first = slope([(t[: len(t) // 2], used[: len(t) // 2]) for t, used in stretches])
    second = slope([(t[len(t) // 2 :], used[len(t) // 2 :]) for t, used in stretches])
    if first is None or second is None or first.low is None or second.low is None:
        return None
    lives = 1.0
    if (started > alive).any():  # those that are started anew begin with fresh memory
        lives = min(1.0, max(float(np.ptp(times)) for times, _ in stretches))
    matters = second.value * lives >= LEAST_SHARE * limit_bytes
    return second.value if min(first.low, second.low) > 0 and matters else 0.0


def last_read(run: Run, name: str) -> float | None:
    """What was last read of the machine, or its control group, under that name."""
    read = run.readings.get(("host", "machine"), Columns({})).get(name, np.empty(0))
    known = read[np.isfinite(read)]
    return float(known[-1]) if len(known) else None


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
