"""How often `compare BEFORE AFTER` calls a pair of equal runs equal, and finds a planted slow-down.

In each round come three runs, one right after the other: a baseline, one like it, and a slower one.
Each is of three epochs of a DataLoader with two workers, whose samples and steps sleep. Exit status
1 if an equal run is said to differ, or a slow-down is not found.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from bench.zoo.outside import slow
from loadeval import LoaderEvaluator
from loadeval.analysis.baseline import BaselineReport, Pace
from loadeval.analysis.report import Report
from loadeval.report.formatting import estimated, speedup

EPOCHS, STEP_MS = 3, 5


def run(batches: int, sample_s: float, slower: float = 0.0) -> Report:
    """A run of batches of one sample, with a throughput that is `slower`, a share, than usual."""
    sample_ms = 1000 * sample_s / (1 - slower)
    training = slow(batches // EPOCHS, sample_ms, STEP_MS, EPOCHS, batch_size=1, num_workers=2)
    with LoaderEvaluator(training.loader, mode="log", probes=()) as evaluator:
        training.run(evaluator)
        return Report.of([evaluator.recorded()])


def shown(baseline: BaselineReport) -> str:
    """What is said, and the ratios of throughput that it goes by."""
    whole, steady = (
        estimated(quantity.ratio, speedup) for quantity in (baseline.epochs, baseline.steady)
    )
    return f"{baseline.pace.value:10} whole epochs {whole}, steady {steady}"


def main() -> int:
    """Print a line for each pair, and how often what was said."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--batches", type=int, default=300)
    parser.add_argument("--slower", type=float, default=0.1, help="a share of the throughput")
    parser.add_argument(
        "--sample-ms", type=float, default=40.0, help="longer on a machine that others use"
    )
    options = parser.parse_args()
    sample_s = options.sample_ms / 1000
    paces: dict[float, Counter[Pace]] = {0.0: Counter(), options.slower: Counter()}
    for number in range(options.rounds):
        before = run(options.batches, sample_s)
        for slower, counter in paces.items():
            baseline = run(options.batches, sample_s, slower).against(before).baseline
            assert baseline is not None
            counter[baseline.pace] += 1
            print(f"{number:3}  {slower:4.0%} slower: {shown(baseline)}", flush=True)
    for slower, counter in paces.items():
        said = ", ".join(f"{pace.value} {count}" for pace, count in counter.items())
        print(f"{options.rounds} runs, {slower:.0%} slower: {said}")
    differing = paces[0.0][Pace.SLOWER] + paces[0.0][Pace.FASTER]
    return int(differing > 0 or paces[options.slower][Pace.SLOWER] < options.rounds)


if __name__ == "__main__":
    sys.exit(main())
