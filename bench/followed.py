"""What loadeval says to change, changed: its figures beside what the program gains by it.

The list of what to do, about a program with three planted mistakes: the speed-up predicted by each
action and those before it. Each is applied, and measured by whole programs in turns, without
loadeval.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.promises.test_plan_followed import ROUNDS, followed, to_do, trained
from bench.tables import in_words, show
from loadeval import Estimate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Times = Sequence[Sequence[float]]

TURNS = 3
PLAN_HEADS = ("list", "what to do", "predicted", "measured", "in range")


def in_turns(programs: Sequence[Callable[[], float]]) -> Times:
    """What each program takes for a batch, in each turn."""
    turns = [[program() for program in programs] for _ in range(TURNS)]
    return list(zip(*turns, strict=True))


def speedup(before: Sequence[float], after: Sequence[float]) -> Estimate:
    """The median of the turns' ratios, and from where to where they go."""
    ratios = [first / second for first, second in zip(before, after, strict=True)]
    return Estimate(statistics.median(ratios), min(ratios), max(ratios))


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
            is_in_range = "-"
            if action.speedup is not None:
                low, high = action.speedup.bounds
                is_in_range = "yes" if low <= measured.value <= high else "no"
            shown = (in_words(action.speedup), in_words(measured))
            rows.append([str(number), action.says, *shown, is_in_range])
        changes = steps[-1]
    return rows


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--markdown", action="store_true", help="print a table for documents")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        show(PLAN_HEADS, plan_rows(Path(name)), markdown=options.markdown)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
