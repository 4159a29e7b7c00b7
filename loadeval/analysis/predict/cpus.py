"""Who uses the CPUs that training may use: training itself, its workers, and other programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loadeval.analysis.estimate.metrics import THREADS, quantities
from loadeval.analysis.estimate.steady import whole_windows
from loadeval.analysis.estimate.verdict import MODERATE_SHARE
from loadeval.analysis.predict.allowed_cpus import AllowedCpus

if TYPE_CHECKING:
    from loadeval.analysis.estimate.headroom import Headroom
    from loadeval.analysis.estimate.metrics import Level, Quantity
    from loadeval.data.lines import Arm
    from loadeval.data.run import Run


@dataclass(frozen=True, slots=True)
class CpuUse:
    """CPUs in use while real, or ideal, batches were served; None where it was not read.

    `usable` are those that the training process or its workers may use, of `every` one of the
    machine. `computing` are those that worker processes compute on, all together, in the real arm.
    `allowed` is which of them either may use.
    """

    usable: int | None
    every: int | None
    process: Quantity | None
    workers: Quantity | None
    machine: Quantity | None
    computing: float | None
    allowed: AllowedCpus | None = None

    @classmethod
    def of(cls, run: Run) -> CpuUse:
        """What was read in `run`."""
        read = [
            quantity
            for quantity in quantities(run)
            if quantity.name == "cpu_cores" and quantity.probe != THREADS
        ]
        by_subject = {quantity.subject: quantity for quantity in reversed(read)}
        usable, every = (run.header.environment.get(name) for name in ("cpus_usable", "cpus"))
        process, workers, machine = map(by_subject.get, ("process", "workers", "machine"))
        step = _level(process, "ideal") or _level(process, "real")
        allowed = AllowedCpus.of(run, 1.0 if step is None else step.mean)
        usable = usable if allowed is None else allowed.affinity.cpus
        return cls(
            usable if isinstance(usable, int) and usable > 0 else None,
            every if isinstance(every, int) else None,
            process,
            workers,
            machine,
            _computing(run, workers),
            allowed,
        )

    @property
    def own(self) -> float | None:
        """What training and its workers use in the real arm."""
        return self.own_in("real")

    @property
    def others(self) -> float | None:
        """What other programs use in the real arm."""
        return self.others_in("real")

    def own_in(self, arm: Arm) -> float | None:
        """What training and its workers use in one arm."""
        levels = (_level(self.process, arm), _level(self.workers, arm))
        known = [level.mean for level in levels if level is not None]
        return sum(known) if known else None

    def others_in(self, arm: Arm) -> float | None:
        """What other programs use in one arm."""
        own, level = self.own_in(arm), _level(self.machine, arm)
        return None if own is None or level is None else level.mean - own

    @property
    def competing(self) -> float:
        """What others use of the CPUs that training may use; 0 where that was not read.

        Others are taken to use first those that training may not use.
        """
        return self.competing_for(self.usable)

    def competing_for(self, cpus: int | None) -> float:
        """The same, if training might use so many CPUs."""
        elsewhere = self.every - cpus if self.every and cpus else 0
        return max((self.others or 0.0) - max(elsewhere, 0), 0.0)

    @property
    def busy(self) -> float | None:
        """CPUs that anyone uses, of those that training may use."""
        return None if self.own is None else self.own + self.competing

    @property
    def left(self) -> float | None:
        """CPUs that training may use, less those of its steps and of others."""
        level = _level(self.process, "ideal") or _level(self.process, "real")
        if self.usable is None or level is None or self.others is None:
            return None
        return max(self.usable - level.mean - self.competing, 0.0)


FEWEST_THREADS = 2
"""So many threads of a step, or more, may wait for each other."""
SPINS = 2.0
"""Times the CPU time of a step with ideal loading: work that is the same takes about as much."""


@dataclass(frozen=True, slots=True)
class Spinning:
    """Threads of the step that wait for each other by computing, which others need the CPUs for.

    `real_ns` and `ideal_ns` are CPU times of a step, with real and with ideal loading.
    """

    threads: int
    workers: int
    cpus: int
    real_ns: float
    ideal_ns: float

    @classmethod
    def of(cls, use: CpuUse, gain: Headroom, workers: int, handed_ns: float) -> Spinning | None:
        """The threads that spin; None where none do, or where that was not read.

        Beside its step the training process computes for `handed_ns` in a batch.
        """
        real, ideal = _level(use.process, "real"), _level(use.process, "ideal")
        if real is None or ideal is None or use.usable is None or not workers:
            return None
        threads, slower = round(ideal.mean), gain.contention_ns
        if threads < FEWEST_THREADS or threads + workers <= use.usable or slower is None:
            return None
        step_ns, ideal_ns = gain.real_ns or 0.0, ideal.mean * (gain.ideal_ns or 0.0)
        real_ns = real.mean * step_ns - handed_ns
        if real_ns < SPINS * ideal_ns or slower.value < MODERATE_SHARE * step_ns:
            return None
        return cls(threads, workers, use.usable, real_ns, ideal_ns)


def _computing(run: Run, workers: Quantity | None) -> float | None:
    windows = whole_windows(run, "real")
    spent = [window.workers_cpu_ns for window in windows if window.workers_cpu_ns is not None]
    elapsed_ns = sum(window.elapsed_ns for window in windows)
    # No CPU time at all may mean that the workers are threads of the training process.
    if len(spent) == len(windows) and sum(spent) > 0 and elapsed_ns > 0:
        return sum(spent) / elapsed_ns
    level = _level(workers, "real")
    return None if level is None else level.mean


def _level(quantity: Quantity | None, arm: Arm) -> Level | None:
    if quantity is None:
        return None
    return quantity.real if arm == "real" else quantity.ideal
