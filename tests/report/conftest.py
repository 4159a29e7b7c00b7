"""Runs for the reports, made by the real writer with a clock that moves when told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.measure.evaluator import LoaderEvaluator
from loadeval.testing import FakeClock, ScriptedLoader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loadeval.record.model import Run

MS = 1_000_000


class TickingClock(FakeClock):
    """A clock that moves by itself, a little at each reading, as real ones seem to."""

    def __init__(self, tick_ns: int) -> None:
        super().__init__()
        self.tick_ns = tick_ns

    def __call__(self) -> int:
        self.now_ns += self.tick_ns
        return self.now_ns


def record(
    mode: str = "log",
    *,
    waits_ns: Sequence[int] = (30 * MS,) * 30,
    step_ns: int = 10 * MS,
    epochs: int = 1,
    samples: int | None = 4,
    tick_ns: int = 0,
    warmup: int = 1,
    **options: Any,
) -> Run:
    """A run of `epochs`, of which each has one batch for each of `waits_ns`."""
    clock = TickingClock(tick_ns)
    batch: object = "text" if samples is None else np.zeros((samples, 2))
    loader = ScriptedLoader([batch] * len(waits_ns), waits_ns, clock)
    options = {"unit": "images", "name": mode, "warmup": warmup, "clock": clock, **options}
    with LoaderEvaluator(loader, mode=mode, num_cached_batches=2, **options) as evaluator:
        for _ in range(epochs):
            for _ in evaluator:
                clock.advance(step_ns)
        return evaluator.recorded()


@pytest.fixture(name="record", scope="session")
def _record() -> Callable[..., Run]:
    return record
