"""What probes read while each arm was served: levels of each quantity, real beside ideal."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.estimate.memory import MEMORY_SUBJECTS, growth_of
from loadeval.analysis.estimate.steady import steady
from loadeval.analysis.estimate.summary import gpu_wait
from loadeval.analysis.once import once_per_run
from loadeval.data.columns import UNKNOWN, Columns
from loadeval.data.run import ARMS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loadeval.analysis.estimate.memory import Growth
    from loadeval.data.columns import Column, Values
    from loadeval.data.lines import Arm
    from loadeval.data.run import Run

THREADS = "threads"
"""The probe with many subjects, which `analysis.operators` has in a table of its own."""
MOSTLY = 0.9
"""An arm must have this share of the time that a reading is about."""
OVER_NS = {"kernel_busy_percent": 1_000_000_000, "power_watts": 1_000_000_000}
"""How long before it is read a mean of a GPU's driver may begin."""


@dataclass(frozen=True, slots=True)
class Level:
    """Some readings of one quantity, in its own unit."""

    count: int
    mean: float
    p50: float
    p95: float


@dataclass(frozen=True, slots=True)
class Quantity:
    """One quantity of one subject, in each arm; None: not read there.

    The name of the quantity ends in its unit.
    """

    probe: str
    subject: str
    name: str
    real: Level | None
    ideal: Level | None

    @property
    def difference(self) -> float | None:
        """The ideal mean minus the real one; None where either was not read."""
        if self.real is None or self.ideal is None:
            return None
        return self.ideal.mean - self.real.mean


@dataclass(frozen=True, slots=True)
class Metrics:
    """System metrics: each quantity real beside ideal, and the probes that read nothing, and why.

    `gpu_idle_ns` is how long the device had no work in the wait for a batch, on average, in each
    arm; None where no device's clock told.
    """

    quantities: tuple[Quantity, ...]
    missing: tuple[tuple[str, str], ...]
    gpu_idle_ns: Mapping[Arm, float | None]
    growths: tuple[Growth, ...]

    @classmethod
    def of(cls, run: Run) -> Metrics:
        """The metrics of one run."""
        waits = {arm: gpu_wait(run, arm) for arm in ARMS}
        return cls(
            tuple(each for each in quantities(run) if each.probe != THREADS),
            tuple((probe, why) for (probe, _), why in run.missing.items() if probe != THREADS),
            {arm: None if wait is None else wait.gpu_idle_ns for arm, wait in waits.items()},
            tuple(growth_of(run, subject) for subject in MEMORY_SUBJECTS),
        )

    @classmethod
    def of_two(cls, real: Metrics, ideal: Metrics) -> Metrics:
        """The real arm's from one run, the ideal one's from another."""
        levels = {
            arm: {
                (quantity.probe, quantity.subject, quantity.name): getattr(quantity, arm)
                for quantity in side.quantities
            }
            for arm, side in zip(ARMS, (real, ideal), strict=True)
        }
        keys = dict.fromkeys(chain(*levels.values()))
        return cls(
            tuple(Quantity(*key, *(levels[arm].get(key) for arm in ARMS)) for key in keys),
            tuple(dict.fromkeys([*real.missing, *ideal.missing])),
            {"real": real.gpu_idle_ns["real"], "ideal": ideal.gpu_idle_ns["ideal"]},
            (*real.growths, *ideal.growths),
        )


@once_per_run
def quantities(run: Run) -> tuple[Quantity, ...]:
    """Every quantity that was read while batches that count were served, in order.

    A reading is a mean since the one before it, or over some time that a GPU's driver chooses. It
    counts for an arm that was served nearly all of that time.
    """
    stretches = {arm: stretches_of(run, arm) for arm in ARMS}
    return tuple(
        Quantity(probe, subject, name, *levels)
        for (probe, subject), read in run.readings.items()
        for name in read.names[1:]
        if any(levels := [_level(probe, read, name, stretches[arm]) for arm in ARMS])
    )


@once_per_run
def stretches_of(run: Run, arm: Arm) -> tuple[Column, Column]:
    """When batches of `arm` that count were served: from and to, in the order of time."""
    steps = run.steps
    rows = steady(run, arm) & (steps.request_ns != UNKNOWN)
    begin_ns = steps.request_ns[rows]
    order = np.argsort(begin_ns, kind="stable")
    return begin_ns[order], (begin_ns + steps.wait_ns[rows] + steps.step_ns[rows])[order]


def _level(
    probe: str, readings: Columns, name: str, stretches: tuple[Column, Column]
) -> Level | None:
    values = readings[name]
    known = ~np.isnan(values)
    covered = _covered(readings.time_ns[known], _over_ns(probe, readings, name), *stretches)
    chosen = values[known][covered >= MOSTLY]
    if not len(chosen):
        return None
    p50, p95 = np.percentile(chosen, [50, 95]).tolist()
    return Level(len(chosen), float(chosen.mean()), p50, p95)


def _over_ns(probe: str, readings: Columns, name: str) -> int:
    """How long a reading is about at least; a GPU's own counters count since the one before."""
    is_counted = name == "kernel_busy_percent" and "sm_busy_percent" in readings
    return 0 if probe != "gpu" or is_counted else OVER_NS.get(name, 0)


def _covered(time_ns: Column, least_ns: int, begin_ns: Column, end_ns: Column) -> Values:
    """The share of the stretches in the time since the reading before each, or in `least_ns`."""
    since_ns = np.minimum(np.append(time_ns[:1], time_ns[:-1]), time_ns - least_ns)
    served_ns = _served(time_ns, begin_ns, end_ns) - _served(since_ns, begin_ns, end_ns)
    return served_ns / np.maximum(time_ns - since_ns, 1)


def _served(time_ns: Column, begin_ns: Column, end_ns: Column) -> Column:
    """How much of the stretches lies before each time."""
    before = np.searchsorted(begin_ns, time_ns, side="right")
    served_ns = np.append(0, np.cumsum(end_ns - begin_ns))[before]
    still_to_come = np.append(0, end_ns)[before] - time_ns
    return served_ns - np.where(before > 0, np.maximum(still_to_come, 0), 0)
