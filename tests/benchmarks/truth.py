"""Speed-up if loading were free: the truth, our alternating run, and our peers, case by case.

The truth is measured without any tool: a bare loop over the loader, and the same steps over
batches that were in memory beforehand, with no loader alive; three times, between the runs
under test. Exit status 1 when ours is wrong in a case.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.analysis.headroom import Headroom
    from tests.benchmarks.truth_cases import Case, cases
    from tests.benchmarks.truth_runs import OUR_BATCHES, Truth, alternating, dali, spdl
else:  # a script finds its siblings by their plain names
    from truth_cases import Case, cases
    from truth_runs import OUR_BATCHES, Truth, alternating, dali, spdl

CLOSE = 0.05
OFF = 0.10
CLASSES = ("not", "moderately", "highly")
BOUNDS = (0.05, 0.20)


@dataclass
class Result:
    """What was found in one case; None is a peer that could not run it."""

    case: Case
    truth: Truth
    ours: Headroom
    dali: float | None
    spdl: float | None

    def faults(self) -> list[str]:
        """What is wrong with ours."""
        speedup = self.ours.speedup
        if speedup is None or speedup.low is None or speedup.high is None:
            return ["no interval"]
        found = []
        truth = self.truth.value
        close = abs(speedup.value / truth - 1) <= CLOSE
        if not close and not speedup.low <= truth <= speedup.high:
            found.append("misses the truth")
        if not named(str(self.ours.verdict)) & true_classes(*self.truth.spread):
            found.append("wrong verdict")
        if self.case.steady and (speedup.high - speedup.low) / 2 >= CLOSE * speedup.value:
            found.append("wide")
        return found

    def row(self) -> list[str]:
        """As text; a * marks a peer that is off by a tenth and outside the truth's spread."""
        low, high = self.truth.spread
        speedup = self.ours.speedup
        ours = "-"
        if speedup is not None:
            bounds = (speedup.low, speedup.high)
            ours = f"{speedup.value:.2f} [{', '.join(map(plain, bounds))}]"
        return [
            self.case.name,
            self.case.what,
            f"{self.truth.value:.2f} [{low:.2f}, {high:.2f}]",
            ours,
            str(self.ours.verdict),
            *(self.peer(value) for value in (self.dali, self.spdl)),
            ", ".join(self.faults()) or "yes",
        ]

    def peer(self, value: float | None) -> str:
        if value is None:
            return "-"
        low, high = self.truth.spread
        off = abs(value / self.truth.value - 1) > OFF and not low <= value <= high
        return f"{value:.2f}{'*' if off else ''}"


def plain(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def named(verdict: str) -> set[str]:
    """The classes that a verdict leaves open."""
    found = [CLASSES.index(word) for word in verdict.split() if word in CLASSES]
    return set(CLASSES[min(found) : max(found) + 1]) if found else set(CLASSES)


def true_classes(low: float, high: float) -> set[str]:
    """The classes between two speed-ups."""
    first, last = (sum(1 - 1 / speedup >= bound for bound in BOUNDS) for speedup in (low, high))
    return set(CLASSES[first : last + 1])


def tried(peer: Callable[[Case], float], case: Case) -> float | None:
    """What the peer says; None when it, or the step that it serves, raises."""
    try:
        return peer(case)
    except Exception as error:  # noqa: BLE001 - a peer may fail in any way, and another run follows
        say(f"  {peer.__name__} fails in {case.name}: {error!r}")
        return None


def run(case: Case) -> Result:
    """The truth three times, and the runs under test in between."""
    truth = Truth()
    truth.again(case)
    ours = alternating(case)
    truth.again(case)
    of_dali = tried(dali, case)
    truth.again(case)
    return Result(case, truth, ours, of_dali, tried(spdl, case))


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def epoch_start(result: Result) -> str:
    """The whole epoch's speed-up, of a loader that opens slowly."""
    truth = result.truth.of_epoch(OUR_BATCHES)
    ours = plain(result.ours.epoch_speedup)
    return f"{result.case.name}: whole epoch of {OUR_BATCHES} batches {ours}, in truth {truth:.2f}"


def show(results: list[Result], markdown: bool) -> None:
    """The table, and what it has no column for."""
    heads = ["case", "what", "truth", "loadeval", "verdict", "DALI", "SPDL", "right"]
    rows = [result.row() for result in results]
    notes = [epoch_start(result) for result in results if result.case.slow_start]
    if markdown:
        for cells in (heads, ["---"] * len(heads), *rows):
            print(f"| {' | '.join(cells)} |")
        print("", *notes, sep="\n")
        return
    table = Table(*heads)
    for cells in rows:
        table.add_row(*(escape(cell) for cell in cells))
    console = Console(width=None if sys.stdout.isatty() else 150)
    console.print(table, *map(escape, notes), sep="\n")


def main() -> int:
    """Print the table; 1 when ours is wrong somewhere."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--markdown", action="store_true", help="print a table for documents")
    parser.add_argument("--case", help="run one case, by its name")
    options = parser.parse_args()
    torch.set_num_threads(1)
    known = cases()
    chosen = [case for case in known if options.case in (None, case.name)]
    if not chosen:
        parser.error(f"no case {options.case!r}; expected {', '.join(c.name for c in known)}")
    results = []
    for number, case in enumerate(chosen, 1):
        began = time.perf_counter()
        results.append(run(case))
        say(
            f"{number}/{len(chosen)} {case.name}: truth {results[-1].truth.value:.2f}, "
            f"{results[-1].ours} ({time.perf_counter() - began:.0f} s)"
        )
    show(results, options.markdown)
    return 1 if any(result.faults() for result in results) else 0


if __name__ == "__main__":
    raise SystemExit(main())
