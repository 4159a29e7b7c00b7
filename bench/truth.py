"""Speed-up if loading were free: the truth, our alternating run, and our peers, case by case.

The truth is measured without any tool: a bare loop over whole epochs of the loader, and the same
steps over batches that were in memory beforehand, with no loader alive; three times, between the
runs under test. Exit status 1 when ours is wrong in a case.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from bench.tables import in_words, show
from bench.truth_runs import Ours, Truth, alternating
from bench.zoo.truth import Case, cases

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Peer = Callable[[Case], float]

CLOSE = 0.05
OFF = 0.10
LONGEST = 1.5
"""Our run over a plain one of as many batches."""
FAULTS_SHARE = 0.10
FEW_FAULTS = 50
CLASSES = ("not", "moderately", "highly")
BOUNDS = (0.05, 0.20)
HEADS = (
    *("case", "what", "truth", "loadeval", "verdict", "two runs", "DALI", "SPDL"),
    *("time", "faults", "right"),
)


@dataclass
class Result:
    """What was found in one case; None is a peer that was not run, or could not run it."""

    case: Case
    truth: Truth
    ours: Ours
    dali: float | None
    spdl: float | None

    @property
    def time(self) -> float:
        """How many times as long as a plain run ours takes."""
        return self.ours.elapsed_s / self.truth.plain_s(self.case)

    def faults(self) -> list[str]:
        """What is wrong with ours."""
        speedup, verdict = self.ours.said.speedup, self.ours.said.verdict
        if speedup is None or speedup.low is None or speedup.high is None:
            return ["no interval"]
        truth, widest = self.truth.value, self.case.widest
        half_width = (speedup.high - speedup.low) / 2
        inside = speedup.low <= truth <= speedup.high
        checks = {
            "misses the truth": not is_near(speedup.value, truth, self.case.close)
            and (self.case.is_close or not inside),
            "interval misses the truth": self.case.is_close and not inside,
            "wrong verdict": not named(verdict) & true_classes(*self.truth.spread),
            "inconclusive": verdict == "inconclusive"
            and is_near(self.truth.of_two_runs, truth, CLOSE),
            "wide": widest is not None and half_width >= widest * speedup.value,
            "slow": self.time > LONGEST,
            "page faults": self.case.faults and not self.faults_alike(),
        }
        return [fault for fault, holds in checks.items() if holds]

    def faults_alike(self) -> bool:
        """Whether a batch meets about as many page faults in both arms, as far as is known."""
        if self.ours.page_faults is None:
            return False
        real, ideal = self.ours.page_faults
        return abs(real - ideal) <= max(FEW_FAULTS, FAULTS_SHARE * real)

    def row(self) -> list[str]:
        """The row as text, a * at what is off.

        That is two plain runs by a twentieth, a peer by a tenth and outside the truth's spread.
        """
        low, high = self.truth.spread
        speedup, by_hand = self.ours.said.speedup, self.truth.of_two_runs
        page_faults = self.ours.page_faults
        return [
            self.case.name,
            self.case.what,
            f"{self.truth.value:.2f} [{low:.2f}, {high:.2f}]",
            in_words(speedup),
            self.ours.said.verdict,
            starred(by_hand, not is_near(by_hand, self.truth.value, CLOSE)),
            *(self.peer(value) for value in (self.dali, self.spdl)),
            f"{self.time:.2f}",
            "-" if page_faults is None else " / ".join(f"{count:.0f}" for count in page_faults),
            ", ".join(self.faults()) or "yes",
        ]

    def peer(self, value: float | None) -> str:
        if value is None:
            return "-"
        low, high = self.truth.spread
        return starred(
            value, not is_near(value, self.truth.value, OFF) and not low <= value <= high
        )


def is_near(value: float, truth: float, share: float) -> bool:
    return abs(value / truth - 1) <= share


def starred(value: float, is_off: bool) -> str:
    return f"{value:.2f}{'*' if is_off else ''}"


def named(verdict: str) -> set[str]:
    """The classes that a verdict leaves open."""
    positions = [CLASSES.index(word) for word in verdict.split() if word in CLASSES]
    return set(CLASSES[min(positions) : max(positions) + 1]) if positions else set(CLASSES)


def true_classes(low: float, high: float) -> set[str]:
    """The classes between two speed-ups."""
    first, last = (sum(1 - 1 / speedup >= bound for bound in BOUNDS) for speedup in (low, high))
    return set(CLASSES[first : last + 1])


def tried(peer: Peer, case: Case) -> float | None:
    """What the peer says; None when it, or the step that it serves, raises."""
    try:
        return peer(case)
    except Exception as error:  # noqa: BLE001 - a peer may fail in any way, and another run follows
        say(f"  {peer.__name__} fails in {case.name}: {error!r}")
        return None


def run(case: Case, peers: Sequence[Peer]) -> Result:
    """The truth three times, and the runs under test in between; no peers, or DALI and SPDL."""
    truth = Truth()
    truth.again(case)
    ours = alternating(case)
    truth.again(case)
    of_dali = tried(peers[0], case) if peers else None
    truth.again(case)
    of_spdl = tried(peers[1], case) if peers else None
    return Result(case, truth, ours, of_dali, of_spdl)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def import_peers() -> list[Peer]:
    from bench.truth_peers import dali, spdl  # spawned workers import this file

    return [dali, spdl]


def main() -> int:
    """Print the table; 1 when ours is wrong somewhere."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--markdown", action="store_true", help="print a table for documents")
    parser.add_argument("--case", action="append", help="run this case; may be given again")
    parser.add_argument("--no-peers", action="store_true", help="run neither DALI nor SPDL")
    options = parser.parse_args()
    torch.set_num_threads(1)
    peers = [] if options.no_peers else import_peers()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        known = {case.name: case for case in cases(Path(folder))}
        wanted = options.case or list(known)
        if not known.keys() >= set(wanted):
            parser.error(f"expected cases among {', '.join(known)}; got {', '.join(wanted)}")
        for number, name in enumerate(wanted, 1):
            began = time.perf_counter()
            results.append(run(known[name], peers))
            say(
                f"{number}/{len(wanted)} {name}: truth {results[-1].truth.value:.2f}, "
                f"ours {in_words(results[-1].ours.said.speedup)} "
                f"({time.perf_counter() - began:.0f} s)"
            )
    show(HEADS, [result.row() for result in results], markdown=options.markdown)
    return 1 if any(result.faults() for result in results) else 0


if __name__ == "__main__":
    raise SystemExit(main())
