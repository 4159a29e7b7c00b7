"""How often `compare BEFORE AFTER` calls a pair of equal runs equal, and finds a planted slow-down.

In each round come three runs, one right after the other: a baseline, one like it, and a slower one.
Each is of three epochs of a DataLoader with two workers, whose samples and steps sleep. Exit status
1 if an equal run is said to differ, or a slow-down is not found.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.judge import pace
from bench.tables import in_words
from bench.zoo.outside import slow
from loadeval import LoaderEvaluator

EPOCHS, STEP_MS = 3, 5


def run(log: Path, batches: int, sample_ms: float) -> Path:
    """The log of a run of batches of one sample."""
    training = slow(batches, sample_ms, STEP_MS, EPOCHS, num_workers=2)
    with LoaderEvaluator(training.loader, log_file=log, overwrite=True) as loader:
        training.run(loader)
    return log


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
    paces: dict[float, Counter[str]] = {0.0: Counter(), options.slower: Counter()}
    with TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(options.rounds):
            before = run(folder / "before.jsonl", options.batches, options.sample_ms)
            for slower, counter in paces.items():
                sample_ms = options.sample_ms / (1 - slower)
                found = pace(before, run(folder / "after.jsonl", options.batches, sample_ms))
                counter[found.said] += 1
                ratios = f"epochs {in_words(found.epochs)}, steady {in_words(found.steady)}"
                print(f"{number:3}  {slower:4.0%} slower: {found.said:10} {ratios}", flush=True)
    for slower, counter in paces.items():
        said = ", ".join(f"{word} {count}" for word, count in counter.items())
        print(f"{options.rounds} runs, {slower:.0%} slower: {said}")
    differing = paces[0.0]["slower"] + paces[0.0]["faster"]
    return int(differing > 0 or paces[options.slower]["slower"] < options.rounds)


if __name__ == "__main__":
    sys.exit(main())
