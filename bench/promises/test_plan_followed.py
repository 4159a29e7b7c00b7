"""The list of what to do, followed to the letter by a program that reads nothing but JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bench.judge import COMMAND, Action, compared

if TYPE_CHECKING:
    from collections.abc import Iterable

PROGRAM = Path(__file__).parents[1] / "zoo" / "three_mistakes.py"
ROUNDS = 3
"""After so many lists all that can be changed is changed."""
MENDED = {"num_workers": 2, "persistent_workers": True, "faster": 100}
"""The three planted mistakes undone; the training step is the limit then."""


def trained(changes: dict[str, Any]) -> float:
    """Seconds that a batch takes with these changes."""
    command = [sys.executable, str(PROGRAM), json.dumps(changes)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout)["batch_s"])


def to_do(changes: dict[str, Any], folder: Path) -> tuple[Action, ...]:
    """The actions that a run with these changes lists."""
    program = [sys.executable, str(PROGRAM), json.dumps(changes)]
    run = [*COMMAND, "run", "--mode", "alternate", "--output", str(folder), "--", *program]
    subprocess.run(run, check=True, capture_output=True)
    return compared(folder).actions


def followed(actions: Iterable[Action], changes: dict[str, Any]) -> dict[str, Any]:
    """`changes` with those of the list that this program can make."""
    changes = {**changes}
    for action in actions:
        if action.setting is not None:
            assert Path((action.where or "").rpartition(":")[0]).name == PROGRAM.name
            changes[action.setting] = action.proposed
        elif action.times is not None:
            changes["faster"] = changes.get("faster", 1) * action.times
    return changes


@pytest.mark.timeout(300)
def test_the_list_brings_a_training_near_its_best(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Of one with three planted mistakes, within 10% of the time that it takes without them."""
    changes: dict[str, Any] = {}
    for _ in range(ROUNDS):
        after = followed(to_do(changes, tmp_path_factory.mktemp("list") / "logs"), changes)
        if after == changes:
            break
        changes = after
    assert trained(changes) <= 1.1 * trained(MENDED)
