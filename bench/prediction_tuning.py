"""tune beside a grid search: how good its settings are, and how soon it has them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

from loadeval import compare_backends, tune
from loadeval.probes import NAMES
from loadeval.runtime.registry import adapter_for
from loadeval.runtime.settings import DEFAULT_CACHE_BYTES, EvaluatorSettings
from loadeval.tuning.in_training import TrainingTuner

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.prediction_loaders import Setting, Workload
    from bench.prediction_runs import speedups
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


def tuned(workload: Workload) -> list[Tuned]:
    """The grid and tune, which measure a setting alike, and tuning within a training.

    Then the choices of each and of the grid in turns.
    """
    began = time.perf_counter()
    best = grid_best(workload)
    grid_s = time.perf_counter() - began
    searches = {workload.name: by_tune, f"{workload.name}, in a training": in_a_training}
    results = []
    for name, search in searches.items():
        began = time.perf_counter()
        chosen = dict(search(workload))
        search_s = time.perf_counter() - began
        ratio = speedups(workload, {"tune": chosen, "grid": best}, "grid")["tune"]
        results.append(
            Tuned(name, best, chosen, ratio.value, ratio.low, ratio.high, grid_s, search_s)
        )
    return results


def by_tune(workload: Workload) -> Mapping[str, Any]:
    present = Setting(workload.workers).options()
    return tune(workload.loader, workload.train, settings=present).settings


def in_a_training(workload: Workload) -> Mapping[str, Any]:
    """As `loadeval tune -- COMMAND`: settings take turns in the epochs of a training."""
    loader = workload.loader(**Setting(workload.workers).options())
    feeding = adapter_for(loader).feeding(loader)
    assert feeding is not None
    settings = EvaluatorSettings(
        mode="alternate",
        samples=None,
        unit="samples",
        max_cache_bytes=DEFAULT_CACHE_BYTES,
        overwrite=False,
        pairs=4,
        batches=80,
        seed=0,
        clock=time.perf_counter_ns,
        probes=NAMES,
        stages=True,
    )
    tuner = TrainingTuner(loader, settings, {}, 6, len(loader), lambda: None)
    for epoch in count():
        for batch in tuner.epoch(feeding, feeding.indices(is_first=not epoch)):
            workload.train(batch)
            if tuner.is_over:
                break
        if tuner.is_over:
            break
    assert tuner.report is not None, tuner.error
    return {**Setting(workload.workers).options(), **tuner.changes}


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
