"""`loadeval compare` of several backends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from loadeval import compare_backends
from loadeval.testing import FakeClock, ScriptedLoader
from tests.cli.commands import runner
from tests.runs.measured import record

if TYPE_CHECKING:
    from pathlib import Path

MS = 1_000_000
LOADS_MS = {"torch": 30, "dali": 10, "spdl": 20}
run = runner("compare")


def logged(folder: Path, name: str, mode: str) -> Path:
    """The log of a separate run."""
    return record(folder / f"{name}.jsonl", mode, batches=60, epochs=2, wait_ms=LOADS_MS[name])


def test_logs_of_one_comparison_are_compared_again(tmp_path: Path) -> None:
    clock = FakeClock()
    batches = [np.zeros((4, 2))] * 60
    compare_backends(
        {name: ScriptedLoader(batches, [ms * MS] * 60, clock) for name, ms in LOADS_MS.items()},
        lambda _: clock.advance(10 * MS),
        batches=24,
        rounds=3,
        unit="images",
        log_dir=tmp_path,
        clock=clock,
    )
    code, out, err = run(*(tmp_path / f"{name}.jsonl" for name in LOADS_MS))
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "dali trains fastest: 1.50x [1.50x, 1.50x] as fast as the next, spdl"
    assert len(lines) <= 25


def test_two_logs_that_did_not_replay_are_backends(tmp_path: Path) -> None:
    """The runs are separate, alternating or not; a caution says so."""
    logs = [logged(tmp_path, "torch", "alternate"), logged(tmp_path, "dali", "log")]
    code, out, err = run(*logs)
    assert (code, err) == (0, "")
    assert out.startswith("dali trains fastest: 2.00x")
    assert "in separate runs" in out
    assert "The runs are separate: machine drift" in out


def test_a_run_that_replayed_is_no_backend(tmp_path: Path) -> None:
    """Beside two others it is refused, in one line."""
    modes = {"torch": "log", "dali": "replay", "spdl": "log"}
    code, out, err = run(*(logged(tmp_path, name, mode) for name, mode in modes.items()))
    assert (code, out) == (1, "")
    assert "dali.jsonl was recorded with mode='replay'" in err
    assert err.count("\n") == 1


def test_a_run_is_not_compared_with_itself(tmp_path: Path) -> None:
    path = logged(tmp_path, "torch", "log")
    code, out, err = run(path, path)
    assert (code, out) == (1, "")
    assert "the same file was given twice" in err
