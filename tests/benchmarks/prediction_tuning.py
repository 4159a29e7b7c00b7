"""tune beside a grid search: how good its settings are, and how soon it has them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from loadeval import compare_backends, tune

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.benchmarks.prediction_loaders import Setting, Workload
    from tests.benchmarks.prediction_runs import speedups
else:  # a script finds its siblings by their plain names
    from prediction_loaders import Setting
    from prediction_runs import speedups

GRID = (
    {"num_workers": 0},
    *(
        {"num_workers": workers, "prefetch_factor": prefetch, "in_order": in_order}
        for workers in (1, 2, 3, 4, 6, 8)
        for prefetch in (2, 4)
        for in_order in (True, False)
    ),
)
"""What tune chooses from on four CPUs."""
TUNED = ("jpeg", "latency", "step")
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
    """The grid and tune, which measure a setting alike; then the choices of both in turns."""
    began = time.perf_counter()
    best = grid_best(workload)
    grid_s = time.perf_counter() - began
    began = time.perf_counter()
    present = Setting(workload.workers).options()
    tuning = tune(workload.loader, workload.train, settings=present)
    tune_s = time.perf_counter() - began
    chosen = dict(tuning.settings)
    ratio = speedups(workload, {"tune": chosen, "grid": best}, "grid")["tune"]
    return Tuned(workload.name, best, chosen, ratio.value, ratio.low, ratio.high, grid_s, tune_s)


def grid_best(workload: Workload) -> Mapping[str, Any]:
    """The fastest of the grid, with as many batches and rounds as tune has for each setting."""
    loaders = {str(number): workload.loader(**options) for number, options in enumerate(GRID)}
    measured = compare_backends(loaders, workload.train, batches=80, rounds=4)
    rates = {
        backend.name: backend.real.value
        for backend in measured.backends
        if backend.real is not None
    }
    return GRID[int(max(rates, key=rates.__getitem__))]
