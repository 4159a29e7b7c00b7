"""Three minutes of `make soak`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.by_the_clock(runs=1, at_least=1), pytest.mark.timeout(1_800)]

RUN = Path(__file__).with_name("run.py")


def test_nothing_grows() -> None:
    """Memory, file descriptors, threads, processes and the cost of a batch are as at first."""
    options = ("--minutes", "3", "--batches", "500000", "--alternate", "5000")
    command = [sys.executable, str(RUN), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing grew" in done.stdout
    assert not done.stderr
