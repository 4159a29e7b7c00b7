"""Parts that go wrong, by which the kit itself is tested: no test of loadeval."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from bench.gpu.claims import IDLE, Part
from bench.gpu.test_idle import Waiting, log_of
from bench.judge import column

if TYPE_CHECKING:
    from pathlib import Path

    from bench.gpu.conftest import Notes

pytestmark = pytest.mark.gpu

WRONG = Part("planted.py", 60, (IDLE,), "idle_twice or raises")
ABORTING = Part("planted.py", 60, (IDLE,), "aborts")
HANGING = Part("planted.py", 10, (IDLE,), "hangs")
BEFORE = "before it goes wrong"


def test_idle_twice(note: Notes, tmp_path: Path) -> None:
    """A wrong claim: the device is idle for twice as long as it is waited for."""
    log = log_of(tmp_path, Waiting(3.0), int, syncs=False)
    idle_ms = float(np.median(column(log, "gpu_idle_ns"))) / 1e6
    note(
        IDLE,
        "planted",
        expected=f"{2 * idle_ms:.3g} ms",
        measured=f"{idle_ms:.3g} ms",
        held=abs(idle_ms - 2 * idle_ms) < 0.2,
    )


def noted(note: Notes) -> None:
    note(IDLE, BEFORE, expected="written", measured="written", held=True)


def test_raises(note: Notes) -> None:
    noted(note)
    raise ValueError("planted")


def test_aborts(note: Notes) -> None:
    noted(note)
    os.abort()


def test_hangs(note: Notes) -> None:
    print("process", os.getpid(), flush=True)
    noted(note)
    time.sleep(600)
