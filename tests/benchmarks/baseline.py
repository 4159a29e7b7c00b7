"""How often `compare --baseline` calls a pair of equal runs equal, and finds a planted slow-down.

Each run is a program of its own under `loadeval run`, of three epochs of a DataLoader with two
workers, whose samples and steps sleep. Of each pair the runs come one right after the other. Exit
status 1 if a pair of equal runs differs, or a slow-down is not found.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from loadeval.analysis.baseline import Pace
from loadeval.cli.console import report_of
from loadeval.report.formatting import estimated, speedup

EPOCHS, BATCH_SIZE, SAMPLE_MS, STEP_MS = 3, 8, 4.0, 5.0
PROGRAM = """
import sys
import time
from torch.utils.data import DataLoader, Dataset

class Samples(Dataset):
    def __len__(self):
        return int(sys.argv[1])
    def __getitem__(self, index):
        time.sleep(float(sys.argv[2]))
        return index

if __name__ == "__main__":
    loader = DataLoader(Samples(), batch_size={batch_size}, num_workers=2)
    for epoch in range({epochs}):
        for batch in loader:
            time.sleep({step_s})
"""


def run(folder: Path, batches: int, slower: float) -> Path:
    """The folder of a run whose throughput is `slower`, a share, under the usual one."""
    program = folder.parent / "train.py"
    program.write_text(
        PROGRAM.format(batch_size=BATCH_SIZE, epochs=EPOCHS, step_s=STEP_MS / 1000)
    )
    samples, sample_s = batches // EPOCHS * BATCH_SIZE, SAMPLE_MS / 1000 / (1 - slower)
    command = [sys.executable, "-m", "loadeval", "run", "--output", str(folder), "--"]
    command += [sys.executable, str(program), str(samples), str(sample_s)]
    subprocess.run(command, check=True, capture_output=True)
    return folder


def main() -> int:
    """Print a line for each pair, and how often what was said."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--batches", type=int, default=300)
    parser.add_argument("--slower", type=float, default=0.1, help="a share of the throughput")
    options = parser.parse_args()
    paces: dict[float, Counter[Pace]] = {0.0: Counter(), options.slower: Counter()}
    with tempfile.TemporaryDirectory() as temporary:
        for pair in range(options.pairs):
            for slower, counter in paces.items():
                before, now = (
                    run(Path(temporary, f"{pair}-{slower}-{name}"), options.batches, share)
                    for name, share in (("before", 0.0), ("now", slower))
                )
                baseline = report_of([now]).against(report_of([before])).baseline
                assert baseline is not None
                counter[baseline.pace] += 1
                whole, steady = (
                    estimated(each.ratio, speedup) for each in (baseline.epochs, baseline.steady)
                )
                planted = f"{slower:.0%} slower" if slower else "equal"
                print(f"{pair:3} {planted:12} {baseline.pace.value:10} {whole}, steady {steady}",
                      flush=True)
    for slower, counter in paces.items():
        said = ", ".join(f"{pace.value} {count}" for pace, count in counter.items())
        print(f"{options.pairs} pairs, {slower:.0%} slower: {said}")
    right = (paces[0.0][Pace.EQUAL], paces[options.slower][Pace.SLOWER])
    return int(right != (options.pairs, options.pairs))


if __name__ == "__main__":
    sys.exit(main())
