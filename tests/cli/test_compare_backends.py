"""`loadeval compare` of several backends."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from loadeval.backends import compare_backends
from loadeval.testing import FakeClock, ScriptedLoader
from tests.cli.commands import runner
from tests.runs.measured import record

if TYPE_CHECKING:
    from pathlib import Path

    from loadeval.report.backends import BackendComparison

MS = 1_000_000
LOADS_MS = {"torch": 30, "dali": 10, "spdl": 20}
run = runner("compare")


def loader(name: str, clock: FakeClock) -> ScriptedLoader:
    return ScriptedLoader([np.zeros((4, 2))] * 60, [LOADS_MS[name] * MS] * 60, clock)


def logged(folder: Path, name: str, mode: str) -> Path:
    """The log of a separate run."""
    return record(folder / f"{name}.jsonl", mode, batches=60, epochs=2, wait_ms=LOADS_MS[name])


@pytest.fixture(name="compared")
def _compared(tmp_path: Path) -> tuple[BackendComparison, list[Path]]:
    """Three backends that took turns, and their logs."""
    clock = FakeClock()
    result = compare_backends(
        {name: loader(name, clock) for name in LOADS_MS},
        lambda _: clock.advance(10 * MS),
        batches=24,
        rounds=3,
        unit="images",
        log_dir=tmp_path,
        clock=clock,
    )
    return result, [tmp_path / f"{name}.jsonl" for name in LOADS_MS]


def test_logs_in_turns_make_the_same_report(
    compared: tuple[BackendComparison, list[Path]],
) -> None:
    """It is that of compare_backends; one screen of it unless everything is asked for."""
    result, logs = compared
    assert run(*logs, "--full") == (0, f"{result}\n", "")
    lines = run(*logs)[1].splitlines()
    assert lines[0].startswith("dali trains fastest: 1.50x [1.50x, 1.50x] as fast as the next")
    assert len(lines) <= 25
    assert lines[-2].startswith("everything  loadeval compare ")


def test_json_and_figure(compared: tuple[BackendComparison, list[Path]]) -> None:
    """All fields of the comparison, and where the figure is."""
    result, logs = compared
    figure = logs[0].with_name("backends.png")
    code, out, err = run(*logs, "--json", "--output", figure)
    assert (code, err) == (0, "")
    assert json.loads(out) == json.loads(json.dumps(result.as_dict()))
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert run(*logs, "--output", figure)[1].endswith(f"Figure written to {figure}\n")


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
    """The same file twice is a mistake, and told as one."""
    path = logged(tmp_path, "torch", "log")
    code, out, err = run(path, path)
    assert (code, out) == (1, "")
    assert "the same file was given twice" in err
