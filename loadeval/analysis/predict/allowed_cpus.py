"""Which CPUs training and its workers may run on, and what set that."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.predict.scheduling import Affinity

if TYPE_CHECKING:
    from loadeval.data.run import Run


HOST = "host"
NOTHING_READ = np.empty(0)


class SetBy(Enum):
    """What set the affinity."""

    WORKERS = "the workers, which may use other CPUs than the training process"
    PROCESS = "the training process, after it started"
    STARTER = "who started the process, or nobody: it has been so from the start"


@dataclass(frozen=True, slots=True)
class AllowedCpus:
    """How many CPUs the training process and its workers may run on, as was read.

    `own` counts those of the main thread, and `most` those that the process could use when it
    started, or that one of its threads may use. `every` counts those of the machine or its
    container. `first` is the number of the workers' first CPU, and `fewest` counts those of the
    worker that may use the fewest. `binds` tells whether a variable lets OpenMP bind the thread
    that imports it.
    """

    affinity: Affinity
    own: int
    first: int | None
    most: int
    every: int
    binds: bool = False
    fewest: int | None = None

    @classmethod
    def of(cls, run: Run, step_cpus: float) -> AllowedCpus | None:
        """What was read in `run`, whose step uses so many CPUs; None of a run without workers."""

        def cpus(subject: str, name: str) -> int | None:
            read = run.readings.get((HOST, subject))
            values = read[name] if read is not None and name in read else NOTHING_READ
            known = np.sort(values[~np.isnan(values)])
            return int(known[len(known) // 2]) if len(known) else None

        own, workers = cpus("process", "allowed_cpus"), cpus("workers", "allowed_cpus")
        shared = cpus("workers", "shared_allowed_cpus")
        if own is None or workers is None or shared is None:
            return None
        threads = cpus("process", "threads_allowed_cpus") or own
        binding, at_start = map(run.header.environment.get, ("cpu_binding", "cpus_at_start"))
        most = max(own, threads, at_start if isinstance(at_start, int) else 0)
        # Each thread of a step may be bound to a CPU of its own, the main thread to one.
        affinity = Affinity(own, workers, shared)
        if round(step_cpus) > 1:
            affinity = Affinity(threads, workers, min(workers, threads))
        every = max(cpus("machine", "allowed_cpus") or 0, most, workers)
        first, fewest = (
            cpus("workers", name) for name in ("first_allowed_cpu", "fewest_allowed_cpus")
        )
        return cls(affinity, own, first, most, every, bool(binding), fewest)

    @property
    def differ(self) -> bool:
        """Whether some worker may use fewer CPUs than the others."""
        return self.fewest is not None and self.fewest < self.affinity.workers

    @property
    def set_by(self) -> SetBy | None:
        """What keeps the workers from some of the CPUs; None where they may use all of them."""
        workers = self.affinity.workers
        if workers >= self.every:
            return None
        if (workers, self.affinity.shared) != (self.own, self.own):
            return SetBy.WORKERS
        # OpenMP binds the thread that imports torch to one CPU, maybe before loadeval is imported.
        is_bound = self.own < self.most or (self.binds and self.own == 1)
        return SetBy.PROCESS if is_bound else SetBy.STARTER

    def are_kept_from(self, workers: int) -> bool:
        """Whether so many workers are kept from CPUs, and have too few for want of them.

        They need one each, and one for training where it may use no other.
        """
        with_training = self.affinity.training <= self.affinity.shared
        return self.set_by is not None and workers + with_training > self.affinity.workers
