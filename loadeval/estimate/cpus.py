"""Who uses the CPUs that training may use: training itself, its workers, and other programs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from loadeval.data.columns import Columns
from loadeval.data.lines import Arm
from loadeval.data.run import ARMS, Run
from loadeval.estimate.metrics import ByArm, quantities
from loadeval.estimate.steady import once_per_run, whole_windows

BUSY = 0.9
"""When this share of the CPUs is in use, nothing is left for anyone who wants more."""
KeptBy = Literal["workers", "process", "starter"]


@dataclass(frozen=True, slots=True)
class Cpus:
    """CPUs in use, by arm, in the blocks that count; None where it was not read.

    `usable` are those that the training process or its workers may use, of `every` one of the
    machine. `computing` are those that worker processes compute on, all together, in the real arm.
    `own`, `theirs` and `shared` are those that the training process, its workers and both may run
    on, and `fewest` what that worker may use which may use the fewest. `kept_by` tells what keeps
    workers from some CPUs: the workers themselves, the training process since it started, or
    whoever started it.
    """

    usable: int | None
    every: int | None
    training: ByArm
    workers: ByArm
    machine: ByArm
    computing: float | None
    own: int | None = None
    theirs: int | None = None
    shared: int | None = None
    fewest: int | None = None
    kept_by: KeptBy | None = None

    def used(self, arm: Arm = "real") -> float | None:
        """What training and its workers use."""
        known = [use for use in (self.training[arm], self.workers[arm]) if use is not None]
        return sum(known) if known else None

    def others(self, arm: Arm = "real") -> float | None:
        """What other programs use."""
        used, all_of_it = self.used(arm), self.machine[arm]
        return None if used is None or all_of_it is None else all_of_it - used

    @property
    def competing(self) -> float:
        """What others use of the CPUs that training may use; 0 where that was not read.

        Others are taken to use first those that training may not use.
        """
        elsewhere = max((self.every or 0) - (self.usable or 0), 0)
        return max((self.others() or 0.0) - elsewhere, 0.0)

    @property
    def step(self) -> float | None:
        """What a step uses with ideal loading."""
        ideal = self.training["ideal"]
        return self.training["real"] if ideal is None else ideal

    @property
    def left(self) -> float | None:
        """CPUs that training may use, less those of its steps and of others."""
        if self.usable is None or self.step is None or self.others() is None:
            return None
        return max(self.usable - self.step - self.competing, 0.0)

    @property
    def are_busy(self) -> bool:
        """Whether no CPU is left for more workers; False where that is not known too."""
        if self.usable is None or (used := self.used()) is None:
            return False
        return used + self.competing >= BUSY * self.usable

    @property
    def workers_differ(self) -> bool:
        """Whether some worker may use fewer CPUs than the others."""
        return self.fewest is not None and self.theirs is not None and self.fewest < self.theirs


@once_per_run
def cpus(run: Run) -> Cpus:
    """What was read in `run`."""
    environment, nothing = run.header.environment, dict.fromkeys(ARMS)
    read = {
        each.subject: each.means
        for each in quantities(run)
        if each.name == "cpu_cores" and each.probe == "host"
    }
    workers: ByArm = read.get("workers", nothing)
    counts = {name: n for name, n in environment.items() if isinstance(n, int) and n > 0}
    use = Cpus(
        usable=counts.get("cpus_usable"),
        every=counts.get("cpus"),
        training=read.get("process", nothing),
        workers=workers,
        machine=read.get("machine", nothing),
        # No CPU time at all may mean that the workers are threads of the training process.
        computing=workers_cpus(run, "real") or workers["real"],
    )

    def allowed(subject: str, name: str = "allowed_cpus") -> int | None:
        """The median of the CPUs that a process was seen to be allowed."""
        values = run.readings.get(("host", subject), Columns({})).get(name, np.empty(0))
        values = values[~np.isnan(values)]
        return int(np.percentile(values, 50, method="higher")) if len(values) else None

    own, theirs = allowed("process"), allowed("workers")
    shared = allowed("workers", "shared_allowed_cpus")
    if own is None or theirs is None or shared is None:
        return use
    threads = allowed("process", "threads_allowed_cpus") or own
    most = max(own, threads, counts.get("cpus_at_start", 0))
    every = max(allowed("machine") or 0, most, theirs)
    kept_by: KeptBy | None = None
    if theirs < every:
        # OpenMP binds the thread that imports torch to one CPU, maybe before loadeval is imported.
        is_bound = own < most or (bool(environment.get("cpu_binding")) and own == 1)
        kept_by = "process" if is_bound else "starter"
        if (theirs, shared) != (own, own):
            kept_by = "workers"
    if round(use.step or 1.0) > 1:  # each thread of a step may be bound to a CPU of its own
        own, shared = threads, min(theirs, threads)
    return replace(
        use,
        usable=own + theirs - shared,
        every=every,
        own=own,
        theirs=theirs,
        shared=shared,
        fewest=allowed("workers", "fewest_allowed_cpus"),
        kept_by=kept_by,
    )


def workers_cpus(run: Run, arm: Arm) -> float | None:
    """How many CPUs the workers kept busy in the blocks of an arm; None where that is not known."""
    windows = whole_windows(run, arm)
    used = [window.workers_cpu_ns for window in windows if window.workers_cpu_ns is not None]
    elapsed_ns = sum(window.elapsed_ns for window in windows)
    return sum(used) / elapsed_ns if len(used) == len(windows) and elapsed_ns else None
