"""A short part of `make fuzz`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

RUN = Path(__file__).with_name("run.py")


def test_what_was_mutated_is_read_or_refused_and_nothing_else() -> None:
    """It takes little time and memory, in every reader and command; errors name the line."""
    command = [sys.executable, str(RUN), "--inputs", "2000", "--commands", "150"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "drawn by hypothesis: 200 inputs" in done.stdout
    assert "given to commands: 150 inputs" in done.stdout
