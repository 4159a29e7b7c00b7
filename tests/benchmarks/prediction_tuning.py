"""tune beside a grid search: how good its settings are, and how soon it has them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from loadeval import tune

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.benchmarks.prediction_loaders import Setting, Workload
    from tests.benchmarks.prediction_runs import batch_s, speedups
else:  # a script finds its siblings by their plain names
    from prediction_loaders import Setting
    from prediction_runs import batch_s, speedups

GRID = (
    {"num_workers": 0},
    *(
        {"num_workers": workers, "prefetch_factor": prefetch}
        for workers in (1, 2, 3, 4, 6)
        for prefetch in (2, 4)
    ),
)
TUNED = ("jpeg", "python", "latency", "step", "head of line", "small")
AS_GOOD = 0.97
"""Throughput with tune's settings over that with the grid's best, at least."""
SHORT = 1 / 3
"""Time that tune takes over the grid's, at most."""


@dataclass(frozen=True)
class Tuned:
    """The settings that each chose, the throughput of tune's over that of the grid's, and times."""

    workload: str
    grid: Mapping[str, Any]
    tune: Mapping[str, Any]
    ratio: float
    low: float | None
    high: float | None
    grid_s: float
    tune_s: float

    @property
    def is_reached(self) -> bool:
        return self.ratio >= AS_GOOD and self.tune_s <= SHORT * self.grid_s

    def row(self) -> list[str]:
        ratio = f"{self.ratio:.2f}"
        if self.low is not None and self.high is not None:
            ratio += f" [{self.low:.2f}, {self.high:.2f}]"
        return [
            self.workload,
            in_words(self.grid),
            in_words(self.tune),
            ratio,
            f"{self.grid_s:.0f} s",
            f"{self.tune_s:.0f} s",
            f"{self.tune_s / self.grid_s:.2f}",
            "yes" if self.is_reached else "no",
        ]


def in_words(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items())


def tuned(workload: Workload) -> Tuned:
    """The grid and tune, one after the other; then both choices in turns."""
    began = time.perf_counter()
    best = min(GRID, key=lambda options: batch_s(workload, options))
    grid_s = time.perf_counter() - began
    began = time.perf_counter()
    present = Setting(workload.workers).options()
    found = tune(workload.loader, workload.train, settings=present)
    tune_s = time.perf_counter() - began
    chosen = dict(found.settings)
    ratio = speedups(workload, {"tune": chosen, "grid": best}, "grid")["tune"]
    return Tuned(workload.name, best, chosen, ratio.value, ratio.low, ratio.high, grid_s, tune_s)
