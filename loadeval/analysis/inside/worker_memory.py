"""What the memory of a loader's workers tells: the pages that each copied, and what it keeps."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.inside.timeline import or_0
from loadeval.analysis.once import once_per_run
from loadeval.data.columns import UNKNOWN

if TYPE_CHECKING:
    from loadeval.data.columns import Column
    from loadeval.data.run import Run

PAGE = 4096
"""Forked memory is copied in pages of so many bytes, also where large ones are in use."""
MOST_FAULT_NS = 10_000
"""A page fault is taken to need no more kernel time; 1 to 4 us are usual."""
FEWEST_READINGS = 5
"""Of fewer nobody can tell growth from a start: memory is read after 0, 0.5, 1, 2 and 4 s."""
LATEST = 3
"""Growth between so many of the last readings goes on, where it is even."""
EVEN = 0.5
"""Growth is even if the last is at least this share of the fastest."""
COLUMNS = ("worker", "private_bytes", "shared_bytes", "minor_faults")


@dataclass(frozen=True, slots=True, eq=False)
class WorkerMemory:
    """The memory of one worker, from its start to its end, whenever it was read.

    `batches` counts those that it had loaded until then, and `faults` all its minor faults between
    the first and the last reading.
    """

    worker: int
    batches: Column
    private_bytes: Column
    shared_bytes: Column
    faults: int

    @property
    def copied_bytes(self) -> int:
        """What it shared at first, and has as its own now."""
        unshared = int(self.shared_bytes[0] - self.shared_bytes[-1])
        own = int(self.private_bytes[-1] - self.private_bytes[0])
        return max(min(unshared, own), 0)


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


@once_per_run
def memory_of_workers(run: Run) -> tuple[WorkerMemory, ...]:
    """The workers whose memory was read twice or more, each start of one by itself."""
    starts = defaultdict(list)
    for start in run.worker_starts:
        starts[start.worker].append(start.epoch)
    table = np.array([run.stages[name] for name in ("epoch", *COLUMNS)])
    memories = []
    for worker in np.unique(table[1]).tolist():
        rows = table[:, table[1] == worker]
        life = np.searchsorted(sorted(starts[worker]), rows[0], side="right")
        for number in np.unique(life).tolist():
            _, _, private, shared, faults = rows[:, life == number]
            read = np.flatnonzero((private != UNKNOWN) & (shared != UNKNOWN))
            if worker != UNKNOWN and len(read) > 1:
                between = int(or_0(faults[read[0] : read[-1] + 1]).sum())
                memories.append(
                    WorkerMemory(worker, read + 1, private[read], shared[read], between)
                )
    return tuple(memories)


@once_per_run
def copies_of(run: Run) -> Copies | None:
    """What forked workers have copied; None where that was not read."""
    memories = memory_of_workers(run)
    if not memories:
        return None
    stages = run.stages
    cpu_ns, kernel_ns, faults = stages.cpu_ns, stages.system_ns, stages.minor_faults
    known = (cpu_ns > 0) & (kernel_ns != UNKNOWN) & (faults != UNKNOWN)
    if not known.any():
        return None
    copied = sum(memory.copied_bytes for memory in memories)
    pages = max(sum(memory.faults for memory in memories), 1)
    of_faults = min(copied / PAGE / pages, 1.0)
    in_faults_ns = min(float(kernel_ns[known].sum()), float(faults[known].sum()) * MOST_FAULT_NS)
    return Copies(
        copied_bytes=copied / len(memories),
        shared_bytes=sum(int(memory.shared_bytes[0]) for memory in memories) / len(memories),
        of_faults=of_faults,
        faults=of_faults * float(faults[known].mean()),
        share=min(of_faults * in_faults_ns / float(cpu_ns[known].sum()), 1.0),
    )


@once_per_run
def bytes_kept(run: Run) -> float:
    """What workers keep more after each batch of the loader, as far as that goes on.

    Pages that a worker copies are not more than it shared. Growth that becomes slower, as of a
    cache that is nearly full, is none, nor is that of too few readings. Of workers that were
    started anew the last ones count.
    """
    latest = {memory.worker: memory for memory in memory_of_workers(run)}
    rates = []
    for memory in latest.values():
        held = memory.private_bytes + memory.shared_bytes
        grown = (np.diff(held) / np.diff(memory.batches))[-LATEST:]
        goes_on = len(held) >= FEWEST_READINGS and 0 < EVEN * grown.max() <= grown[-1]
        rates.append(float(grown[-1]) if goes_on and grown.min() > 0 else 0.0)
    return sum(rates) / max(len(rates), 1)
