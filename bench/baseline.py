"""How often `compare BEFORE AFTER` calls a pair of equal runs equal, and finds a planted slow-down.

In each round come three runs, one right after the other: a baseline, one like it, and a slower one.
Each is of three epochs of a DataLoader with two workers, whose samples and steps sleep. Exit status
1 if an equal run is said to differ, or a slow-down is not found.
"""

import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.judge import pace
from bench.tables import in_words, parser_of
from bench.zoo.outside import slow

SAMPLE_MS = 40.0


def run(log: Path, sample_ms: float) -> Path:
    return slow(300, sample_ms, 5, 3, num_workers=2).logged(log, "log", overwrite=True)


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--slower", type=float, default=0.1, help="a share of the throughput")
    options = parser.parse_args()
    said: Counter[tuple[float, str]] = Counter()
    with TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(options.rounds):
            before = run(folder / "before.jsonl", SAMPLE_MS)
            for slower in (0.0, options.slower):
                after = run(folder / "after.jsonl", SAMPLE_MS / (1 - slower))
                word, ratio = pace(before, after)
                said[slower, word] += 1
                print(f"{number:3}  {slower:4.0%} slower: {word:10} {in_words(ratio)}", flush=True)
    for (slower, word), count in said.items():
        print(f"{slower:.0%} slower: {word} {count} times of {options.rounds}")
    differing = said[0.0, "slower"] + said[0.0, "faster"]
    return int(differing > 0 or said[options.slower, "slower"] < options.rounds)


if __name__ == "__main__":
    sys.exit(main())
