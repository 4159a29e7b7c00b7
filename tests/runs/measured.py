"""Runs that a LoaderEvaluator measures, of a loader and a clock that move as they are told."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from loadeval.data.run import Run
from loadeval.evaluator import LoaderEvaluator
from loadeval.testing import FakeClock, ScriptedLoader
from tests.runs.given import MS

IMAGES = np.zeros((4, 2))


def recorded(
    mode: str = "log",
    *,
    waits_ns: Sequence[int] = (30 * MS,) * 30,
    step_ns: int = 10 * MS,
    epochs: int = 1,
    batch: object = IMAGES,
    left_after: Collection[tuple[int, int]] = (),
    loader: type[ScriptedLoader] = ScriptedLoader,
    clock: FakeClock | None = None,
    **options: Any,
) -> Run:
    """A run of `epochs`, each with a `batch` for each of `waits_ns`; `options` are the evaluator's.

    Training leaves an epoch after the batches `left_after`: each is an epoch's number and its own.
    """
    clock = FakeClock() if clock is None else clock
    options = {"unit": "images", "name": mode, "warmup": 1, "num_cached_batches": 2, **options}
    batches = loader([batch] * len(waits_ns), waits_ns, clock)
    with LoaderEvaluator(batches, mode, clock=clock, **options) as evaluator:
        for epoch in range(epochs):
            for number, _ in enumerate(evaluator):
                clock.advance(step_ns)
                if (epoch, number) in left_after:
                    break
        return evaluator.recorded()


def record(
    path: Path, mode: str = "log", *, batches: int = 30, wait_ms: int = 30, **options: Any
) -> Path:
    """The log, at `path`, of a run that is `recorded`: its name and warm-up are the evaluator's."""
    waits_ns = (wait_ms * MS,) * batches
    options = {"waits_ns": waits_ns, "name": None, "warmup": None, **options}
    recorded(mode, log_file=path, **options)
    return path
