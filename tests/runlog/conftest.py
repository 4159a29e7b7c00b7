"""Runs and logs whose every time is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from loadeval.evaluator import LoaderEvaluator
from loadeval.testing import FakeClock, ScriptedLoader

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(name="log")
def _log(tmp_path: Path) -> Path:
    """A log with two epochs, the second broken off, and an event: batches wait 10, step 5."""
    path = tmp_path / "real.jsonl"
    clock = FakeClock(1_000)
    batches = [np.zeros((2, 3), dtype=np.uint8) for _ in range(4)]
    loader = ScriptedLoader(batches, [10] * len(batches), clock)
    with LoaderEvaluator(loader, log_file=path, clock=clock) as evaluator:
        for _ in evaluator:
            clock.advance(5)
        evaluator._measurement.recorder.note("the step changes its batch")
        for _ in evaluator:
            break
    return path
