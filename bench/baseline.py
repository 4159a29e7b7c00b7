"""How often `compare BEFORE AFTER` calls a pair of equal runs equal, and finds a planted slow-down.

In each round come three runs, one right after the other: a baseline, one like it, and a slower one.
Each is of three epochs of a DataLoader with two workers, whose samples and steps sleep. Exit status
1 if an equal run is said to differ, or a slow-down is not found.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from torch.utils.data import DataLoader, Dataset

from bench.judge import pace
from loadeval import LoaderEvaluator

if TYPE_CHECKING:
    from bench.judge import Pace
    from loadeval import Estimate

EPOCHS, STEP_S = 3, 0.005


class Samples(Dataset[int]):
    """Samples that take a while."""

    def __init__(self, count: int, sample_s: float) -> None:
        self.count, self.sample_s = count, sample_s

    def __len__(self) -> int:
        """How many there are."""
        return self.count

    def __getitem__(self, index: int) -> int:
        """The sample's own number."""
        time.sleep(self.sample_s)
        return index


def run(log: Path, batches: int, sample_s: float, slower: float = 0.0) -> Path:
    """A run of batches of one sample, with a throughput that is `slower`, a share, than usual."""
    samples = Samples(batches // EPOCHS, sample_s / (1 - slower))
    loader = DataLoader(samples, batch_size=1, num_workers=2)
    with LoaderEvaluator(loader, log_file=log, probes=(), overwrite=True) as evaluator:
        for _ in range(EPOCHS):
            for _ in evaluator:
                time.sleep(STEP_S)
    return log


def shown(found: Pace) -> str:
    """What is said, and the ratios of throughput that it goes by."""
    whole, steady = map(in_words, (found.epochs, found.steady))
    return f"{found.said:10} whole epochs {whole}, steady {steady}"


def in_words(ratio: Estimate | None) -> str:
    if ratio is None:
        return "not measured"
    interval = "" if ratio.low is None else f" [{ratio.low:.2f}x, {ratio.high:.2f}x]"
    return f"{ratio.value:.2f}x{interval}"


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
    paces: dict[float, Counter[str]] = {0.0: Counter(), options.slower: Counter()}
    with TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(options.rounds):
            before = run(folder / "before.jsonl", options.batches, sample_s)
            for slower, counter in paces.items():
                after = run(folder / "after.jsonl", options.batches, sample_s, slower)
                found = pace(before, after)
                counter[found.said] += 1
                print(f"{number:3}  {slower:4.0%} slower: {shown(found)}", flush=True)
    for slower, counter in paces.items():
        said = ", ".join(f"{word} {count}" for word, count in counter.items())
        print(f"{options.rounds} runs, {slower:.0%} slower: {said}")
    differing = paces[0.0]["slower"] + paces[0.0]["faster"]
    return int(differing > 0 or paces[options.slower]["slower"] < options.rounds)


if __name__ == "__main__":
    sys.exit(main())
