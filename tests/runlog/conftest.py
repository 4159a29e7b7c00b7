"""Runs and logs whose every time is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.evaluator import LoaderEvaluator
from loadeval.testing import FakeClock, ScriptedLoader

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def real_log(tmp_path: Path) -> Path:
    """A log with two epochs, the second broken off, and an event: batches wait 10, step 5."""
    return logged(tmp_path / "real.jsonl")


@pytest.fixture
def thinned_log(tmp_path: Path) -> Path:
    """The same with the detail of one batch in 2: numbers 0 and 2 of the first epoch."""
    return logged(tmp_path / "thinned.jsonl", every=2)


@pytest.fixture(name="log", params=["real_log", "thinned_log"])
def _log(request: pytest.FixtureRequest) -> Path:
    """A log of all batches, and one that keeps one batch in 2."""
    path: Path = request.getfixturevalue(request.param)
    return path


def logged(path: Path, **options: Any) -> Path:
    clock = FakeClock(1_000)
    batches = [np.zeros((2, 3), dtype=np.uint8) for _ in range(4)]
    loader = ScriptedLoader(batches, [10] * len(batches), clock)
    with LoaderEvaluator(loader, log_file=path, clock=clock, **options) as evaluator:
        for _ in evaluator:
            clock.advance(5)
        evaluator._measurement.recorder.note("the step changes its batch")
        for _ in evaluator:
            break
    return path
