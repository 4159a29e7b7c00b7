"""Who uses the CPUs that training may use: training itself, its workers, and other programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loadeval.analysis.metrics import THREADS, quantities

if TYPE_CHECKING:
    from loadeval.analysis.metrics import Level, Quantity
    from loadeval.runlog.model import Run


@dataclass(frozen=True, slots=True)
class CpuUse:
    """CPUs in use while real, or ideal, batches were served; None where it was not read.

    `usable` are those that the training process may use, of `every` one of the machine.
    """

    usable: int | None
    every: int | None
    process: Quantity | None
    workers: Quantity | None
    machine: Quantity | None

    @classmethod
    def of(cls, run: Run) -> CpuUse:
        """What was read in `run`."""
        found = {
            one.subject: one
            for one in quantities(run)
            if one.name == "cpu_cores" and one.probe != THREADS
        }
        usable, every = (run.header.environment.get(name) for name in ("cpus_usable", "cpus"))
        return cls(
            usable if isinstance(usable, int) and usable > 0 else None,
            every if isinstance(every, int) else None,
            *(found.get(subject) for subject in ("process", "workers", "machine")),
        )

    @property
    def own(self) -> float | None:
        """What training and its workers use in the real arm."""
        levels = [one.real for one in (self.process, self.workers) if one is not None]
        found = [level.mean for level in levels if level is not None]
        return sum(found) if found else None

    @property
    def others(self) -> float | None:
        """What other programs use in the real arm."""
        own, level = self.own, _real(self.machine)
        return None if own is None or level is None else level.mean - own

    @property
    def competing(self) -> float:
        """What others use of the CPUs that training may use; 0 where that was not read.

        Others are taken to use first those that training may not use.
        """
        elsewhere = self.every - self.usable if self.every and self.usable else 0
        return max((self.others or 0.0) - max(elsewhere, 0), 0.0)


def _real(found: Quantity | None) -> Level | None:
    return None if found is None else found.real
