"""What loadeval says to change, changed: its figures beside what the program gains by it.

The list of what to do, about a program with three planted mistakes: the speed-up predicted by each
action and those before it. Each is applied, and measured by whole programs in turns, without
loadeval. Exit status 1 where following the lists does not bring it within 10% of its best.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.judge import COMMAND, compared
from bench.tables import in_words, ratio_of, show

PROGRAM = Path(__file__).parent / "zoo" / "three_mistakes.py"
LISTS = 3
"""After so many lists all that can be changed is changed."""
TURNS = 3
NEAR = 1.1
MENDED = {"num_workers": 2, "persistent_workers": True, "faster": 100}
"""The three planted mistakes undone; the training step is the limit then."""
HEADS = ("list", "what to do", "predicted", "measured", "in range")


def trained(changes: dict[str, Any]) -> float:
    """Seconds that a batch takes with these changes."""
    command = [sys.executable, str(PROGRAM), json.dumps(changes)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout)["batch_s"])


def main() -> int:
    """Print a row for each action of each list that the program can follow."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--markdown", action="store_true", help="print a table for documents")
    options = parser.parse_args()
    rows: list[list[str]] = []
    changes: dict[str, Any] = {}
    for number in range(1, LISTS + 1):
        steps, made = [changes], []
        with tempfile.TemporaryDirectory() as folder:
            program = [sys.executable, str(PROGRAM), json.dumps(changes)]
            logs = Path(folder) / "logs"
            run = [*COMMAND, "run", "--mode", "alternate", "--output", str(logs), "--", *program]
            subprocess.run(run, check=True, capture_output=True)
            actions = compared(logs).actions
        for action in actions:
            after = dict(steps[-1])
            if action.setting is not None:
                after[action.setting] = action.proposed
            elif action.times is not None:
                after["faster"] = after.get("faster", 1) * action.times
            if after != steps[-1]:
                steps.append(after)
                made.append(action)
        if not made:
            break
        turns = [[trained(step) for step in steps] for _ in range(TURNS)]
        before, *times = zip(*turns, strict=True)
        for action, taken in zip(made, times, strict=True):
            measured, is_in_range = ratio_of(before, taken), "-"
            if action.speedup is not None:
                low, high = action.speedup.bounds
                is_in_range = "yes" if low <= measured.value <= high else "no"
            shown = (in_words(action.speedup), in_words(measured))
            rows.append([str(number), action.says, *shown, is_in_range])
        changes = steps[-1]
    show(HEADS, rows, markdown=options.markdown)
    over = trained(changes) / trained(MENDED)
    print(f"\n{over:.2f} times as long as without the mistakes")
    return int(over > NEAR)


if __name__ == "__main__":
    raise SystemExit(main())
