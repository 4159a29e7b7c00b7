"""What loadeval says to change, changed: its figures beside what the program gains by it.

First the list of what to do, about a program with three planted mistakes: the speed-up predicted
by each action and those before it. Then the diffs of `loadeval tune -- COMMAND`: the speed-up
measured while it tuned. Each is applied, and measured by whole programs in turns, without loadeval.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.test_plan_followed import LOADEVAL, ROUNDS, followed, to_do, trained

from loadeval.demo.photographs import make_photographs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.prediction import show
    from bench.tuned_program import BATCHES

    Times = Sequence[Sequence[float]]
else:  # a script finds its siblings by their plain names
    from prediction import show
    from tuned_program import BATCHES

HERE = Path(__file__).parent
PROGRAM = HERE / "tuned_program.py"
TURNS = 3
EPOCHS_TUNED, EPOCHS = 200, 3
"""Epochs in which a program can be tuned, and those of a program that is timed."""
FILES = 64
PLAN_HEADS = ("list", "what to do", "predicted", "measured", "in range")
DIFF_HEADS = ("program", "change", "measured in turns", "the diff applied", "within")


def in_turns(programs: Sequence[Callable[[], float]]) -> Times:
    """What each program takes for a batch, in each turn."""
    turns = [[program() for program in programs] for _ in range(TURNS)]
    return list(zip(*turns, strict=True))


def speedup(before: Sequence[float], after: Sequence[float]) -> tuple[float, float, float]:
    """The median of the turns' ratios, and from where to where they go."""
    ratios = [first / second for first, second in zip(before, after, strict=True)]
    return statistics.median(ratios), min(ratios), max(ratios)


def interval(value: float, low: float, high: float) -> str:
    return f"{value:.2f}x [{low:.2f}x, {high:.2f}x]"


def spread(value: float, low: float, high: float) -> str:
    return f"{value:.2f}x ({low:.2f}x to {high:.2f}x)"


def plan_rows(folder: Path) -> list[list[str]]:
    """A row for each action of each list that can be followed."""
    rows: list[list[str]] = []
    changes: dict[str, Any] = {}
    for number in range(1, ROUNDS + 1):
        actions = to_do(changes, folder / f"list{number}")
        steps: list[dict[str, Any]] = [changes]
        made = []
        for action in actions:
            after = followed([action], steps[-1])
            if after != steps[-1]:
                steps.append(after)
                made.append(action)
        if not made:
            break
        times = in_turns([partial(trained, step) for step in steps])
        for action, taken in zip(made, times[1:], strict=True):
            measured = speedup(times[0], taken)
            predicted, is_in_range = f"at most {action['at_most']}", "-"
            if action["speedup"] is not None:
                value, low, high = (action["speedup"][name] for name in ("value", "low", "high"))
                predicted = interval(value, low, high)
                is_in_range = "yes" if low <= measured[0] <= high else "no"
            rows.append([str(number), action["words"], predicted, spread(*measured), is_in_range])
        changes = steps[-1]
    return rows


def ran(command: Sequence[str], folder: Path, given: str | None = None) -> str:
    """What a command in `folder` prints; it has to succeed."""
    path = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        check=True,
        text=True,
        stdout=subprocess.PIPE,
        input=given,
    )
    return done.stdout


def batch_s(kind: str, folder: Path, photographs: Path) -> float:
    words = [sys.executable, PROGRAM.name, kind, str(photographs), str(EPOCHS)]
    return float(json.loads(ran(words, folder))["batch_s"])


def diff_row(kind: str, folder: Path, photographs: Path) -> list[str]:
    """The program tuned, and then its copy with the diff beside it."""
    before, after = folder / "before", folder / "after"
    for copy in (before, after):
        copy.mkdir(parents=True)
        shutil.copy(PROGRAM, copy)
    program = [sys.executable, PROGRAM.name, kind, str(photographs), str(EPOCHS_TUNED)]
    tune = [*LOADEVAL, "tune", "--json", "--stop-after", "tuned", "--", *program]
    said = ran(tune, after)  # after what the program prints, if it ends before all is tried
    found = json.loads(said[said.index("{\n") :])
    if not found.get("diff") or found["gain"] is None:
        return [kind, found.get("why_not", "none"), "-", "-", "-"]
    change = ", ".join(
        f"{name}={value}"
        for name, value in found["settings"].items()
        if value != found["trials"][0]["settings"].get(name)
    )
    ran(["git", "init", "--quiet"], after)
    ran(["git", "apply"], after, found["diff"])
    times = in_turns([partial(batch_s, kind, copy, photographs) for copy in (before, after)])
    measured = speedup(*times)
    gain = found["gain"]
    is_within = "yes" if gain["low"] <= measured[0] <= gain["high"] else "no"
    tuned = interval(gain["value"], gain["low"], gain["high"])
    return [kind, change, tuned, spread(*measured), is_within]


def main() -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--markdown", action="store_true", help="print tables for documents")
    parser.add_argument("--only", choices=["plan", *BATCHES], action="append")
    options = parser.parse_args()
    chosen = options.only or ["plan", *BATCHES]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "plan" in chosen:
            show(PLAN_HEADS, plan_rows(folder), options.markdown)
        kinds = [kind for kind in BATCHES if kind in chosen]
        if kinds:
            photographs = folder / "photographs"
            make_photographs(photographs, FILES)
            rows = [diff_row(kind, folder / kind, photographs) for kind in kinds]
            show(DIFF_HEADS, rows, options.markdown)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
