"""A loader that was looked into: what its stages were waited for, and what fixing one gains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from loadeval.analysis.simulation import Costs, Setting, costs_of, iteration_ns
from loadeval.analysis.timeline import Stage
from loadeval.runlog.columns import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from loadeval.analysis.stages import CodeLine, StageReport, WorkerTime
    from loadeval.analysis.stats import Series
    from loadeval.runlog.model import Run

    Fix: TypeAlias = Callable[[Costs, Setting], tuple[Costs, Setting]]

MOSTLY = 0.8
"""Of the batches: when fewer are without a slow sample, that is what batches are like."""
USUAL_PREFETCH = 2
"""Batches that torch keeps ready for each worker, unless told otherwise."""
LEAST_GAIN = 0.02
"""Of the iteration: what would gain less is no cause."""
DOMINATES = 0.4
"""Of fetching and collating a batch: one transform or function that takes as much is named."""
CHARGED = 0.2
"""Of the loader's time, from which on a stage is a cause of its own."""
MOSTLY_BLOCKED = 0.4
"""Of fetching and collating: workers that are blocked for so long need no CPU."""
SLOWER_WORKER = 1.5
"""Times the median worker."""
FEWEST_BATCHES = 4
"""Of each worker, before it is said to be slow."""


@dataclass(frozen=True)
class Inside:
    """A loader that was looked into, and its batches and setting as a simulation takes them.

    `setting` has the workers that have something to do, of `workers`. `base_ns` is what the
    simulation gives for an iteration as measured.
    """

    stages: StageReport
    costs: Costs
    setting: Setting
    workers: int
    base_ns: float

    @classmethod
    def of(cls, run: Run, stages: StageReport | None, step_ns: float | None) -> Inside | None:
        """None where the loader of `run` was not looked into, or its step is not known."""
        costs = costs_of(run, step_ns) if step_ns else None
        if stages is None or costs is None:
            return None
        workers, depth = run.header.loader.workers or 0, run.header.loader.prefetch_depth or 0
        busy = {number for one in run.stages for number in one.worker[one.samples > 0].tolist()}
        setting = Setting(
            workers=min(len(busy - {UNKNOWN}) or workers, workers),
            prefetch_factor=max(depth // workers, 1) if workers else USUAL_PREFETCH,
            pins=bool(costs.pin_ns.any()),
        )
        return cls(stages, costs, setting, workers, iteration_ns(costs, setting))

    def gain(self, fixes: Iterable[Fix]) -> float:
        """The share of the waiting that is gone with `fixes`, 0 to 1."""
        lost_ns = self.base_ns - self.costs.step_ns
        if lost_ns < LEAST_GAIN * self.base_ns:
            return 0.0
        costs, setting = self.costs, self.setting
        for fix in fixes:
            costs, setting = fix(costs, setting)
        return min(max((self.base_ns - iteration_ns(costs, setting)) / lost_ns, 0.0), 1.0)

    def charged(self, *stages: Stage) -> float:
        """The share of the loader's time that training waited for some stages."""
        found = [self.stages.share_of(stage) for stage in stages]
        charged_ns = sum(one.charged_ns for one in found if one is not None)
        return charged_ns / self.stages.total_ns if self.stages.total_ns else 0.0

    @property
    def blocked(self) -> float:
        """The share of fetching and collating in which a worker is blocked, slow samples apart."""
        return self._typical(self.costs.blocked_ns)

    @property
    def run_queue(self) -> float:
        """The share in which it is runnable without a CPU."""
        return self._typical(self.costs.run_queue_ns)

    @property
    def mostly_blocked(self) -> bool:
        """Whether workers are blocked for so long that they need no CPU for themselves."""
        return self.blocked >= MOSTLY_BLOCKED

    def _typical(self, part_ns: Series) -> float:
        typical = self.costs.slow_ns == 0
        if typical.mean() < MOSTLY:
            typical = np.ones(len(self.costs), dtype=np.bool_)
        whole_ns = float(self.costs.fetch_ns[typical].sum())
        return float(part_ns[typical].sum()) / whole_ns if whole_ns else 0.0

    @property
    def line(self) -> CodeLine | None:
        """The line of code that workers were seen in most often."""
        return next(iter(self.stages.code), None)

    @property
    def computes(self) -> bool:
        """Whether training waits for workers that fetch, and are not blocked most of that."""
        return self.charged(Stage.FETCH, Stage.COLLATE) >= CHARGED and not self.mostly_blocked

    @property
    def collates(self) -> bool:
        """Whether training waits for workers that collate for a large part of their time."""
        collate_ns, fetch_ns = self.stages.collate_ns, self.stages.fetch_ns
        return collate_ns >= DOMINATES * (collate_ns + fetch_ns) > 0 and (
            self.charged(Stage.FETCH, Stage.COLLATE) >= CHARGED
        )

    @property
    def slow_worker(self) -> tuple[WorkerTime, float] | None:
        """The worker that is slower than the others in all it does, and what these take in ns."""
        workers = [one for one in self.stages.workers if one.batches >= FEWEST_BATCHES]
        if len(workers) <= 1:
            return None
        slowest = max(workers, key=lambda one: one.typical_ns)
        others_ns = float(np.median([one.typical_ns for one in workers if one is not slowest]))
        slow_ns = max(SLOWER_WORKER * others_ns, 1.0)
        return (slowest, others_ns) if slowest.typical_ns >= slow_ns else None
