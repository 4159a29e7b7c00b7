"""Iterations that are much longer than usual, found while they come."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.stats import quantiles
from loadeval.analysis.summary import steady
from loadeval.runlog.histogram import BINS, counted
from loadeval.runlog.model import ARMS

if TYPE_CHECKING:
    import numpy.typing as npt

    from loadeval.runlog.model import Arm, Block, Column, Run

TIMES_MEDIAN = 2
"""An iteration is an outlier when it is longer than so many times the median."""
FEWEST = 20
"""Iterations before which the median is not trusted."""
SHOWN = 5
FRESH = 1.05
"""The median is asked for again once there are so many times as many iterations."""


@dataclass(frozen=True, slots=True, eq=False)
class ArmIterations:
    """The iterations of one arm that count, as rows of the run's steps, and which are outliers."""

    arm: Arm
    rows: npt.NDArray[np.intp]
    outliers: npt.NDArray[np.intp]
    median_ns: float


def iterations_of(run: Run) -> list[ArmIterations]:
    """Of each arm of `run` that has any. With fewer than FEWEST, none is called an outlier."""
    found = []
    iteration_ns = run.steps.wait_ns + run.steps.step_ns
    for code, arm in enumerate(ARMS):
        rows = np.flatnonzero(steady(run, arm) & (run.steps.arm == code))
        if len(rows):
            median_ns = float(np.median(iteration_ns[rows]))
            slow = iteration_ns[rows] > TIMES_MEDIAN * median_ns
            trusted = len(rows) >= FEWEST and median_ns > 0
            found.append(ArmIterations(arm, rows, rows[slow] if trusted else rows[:0], median_ns))
    return found


@dataclass(frozen=True, slots=True)
class Outlier:
    """A batch by its number in its epoch, when it was asked for since the run's start, how long."""

    epoch: int
    batch: int
    request_ns: int
    wait_ns: int
    step_ns: int


class Outliers:
    """Those of a run so far: how many, and the last ones."""

    def __init__(self) -> None:
        self.count = 0
        self.last: deque[Outlier] = deque(maxlen=SHOWN)
        self.median_ns: float | None = None
        self._counts = np.zeros(BINS, dtype=np.int64)
        self._seen = 0
        self._asked = 0.0

    def see(self, rows: Block) -> None:
        """Let `rows` count for the median."""
        self._counts += counted(rows.wait_ns + rows.step_ns)
        self._seen += len(rows)
        if self._seen >= max(FEWEST, FRESH * self._asked):
            self._asked = self._seen
            self.median_ns = float(quantiles(self._counts, [0.5])[0])

    def find(self, rows: Block, batch: Column) -> None:
        """Note which of `rows`, the batches of these numbers, are outliers."""
        if self.median_ns is None:
            return
        long = rows.wait_ns + rows.step_ns > TIMES_MEDIAN * self.median_ns
        self.count += int(long.sum())
        for row in np.flatnonzero(long)[-SHOWN:]:
            times = (batch[row], rows.request_ns[row], rows.wait_ns[row], rows.step_ns[row])
            self.last.append(Outlier(rows.epoch, *map(int, times)))

    def find_one(self, one: Outlier) -> None:
        """Note `one` if it is an outlier."""
        if self.median_ns is not None and one.wait_ns + one.step_ns > TIMES_MEDIAN * self.median_ns:
            self.count += 1
            self.last.append(one)
