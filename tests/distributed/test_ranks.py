"""Alternating runs on several ranks at once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.check

SCRIPT = Path(__file__).with_name("train.py")


def test_all_ranks_switch_at_the_same_batch(tmp_path: Path) -> None:
    """Two ranks under torchrun follow one schedule, do not hang, and learn the same."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*command, str(SCRIPT), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    first, second = (
        json.loads((tmp_path / f"rank{rank}.json").read_text(encoding="utf-8")) for rank in (0, 1)
    )
    assert first == second
    assert len(first["arms"]) == 120
    assert max(first["pairs"]) >= 2
