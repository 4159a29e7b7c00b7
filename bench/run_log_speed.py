"""How long a run log of a million batches takes to write and to read back, and in how much memory.

    python bench/run_log_speed.py [BATCHES]

Rows in a block depend on the throughput of the run: a line is written each half second, or for each
1,024 batches. One row in a block is a run of two batches a second or slower; it is written a second
time with the readings of the host that it has by default, three lines every two seconds. The memory
is the peak of a process that reads the log and nothing else.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from loadeval.runlog.columns import UNKNOWN
from loadeval.runlog.log_file.writer import RunLog
from loadeval.runlog.model import Block, EpochEnd, Header, LoaderInfo, Readings

SORTS = ((1024, False), (50, False), (5, False), (1, False), (1, True))
EPOCHS = 10
READ_EVERY = 4
"""So many lines of one batch are written in two seconds."""
QUANTITIES = 6
READ = """
import resource, sys, time
from loadeval.runlog.log_file.reader import read_run
began = time.perf_counter()
batches = len(read_run(sys.argv[1]).steps)
read_s = time.perf_counter() - began
print(batches, read_s, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def write(path: Path, batches: int, rows: int, *, readings: bool = False) -> None:
    """A log of `batches` batches in blocks of `rows`, written as a recorder would."""
    header = Header("id", "speed", "log", "not recorded", "samples", 1, LoaderInfo("none"))
    log = RunLog(path, header)
    per_epoch = batches // EPOCHS
    rng = np.random.default_rng(0)
    wait_ns = rng.integers(1_000_000, 9_000_000, per_epoch)
    step_ns = rng.integers(10_000_000, 90_000_000, per_epoch)
    request_ns = np.cumsum(wait_ns + step_ns)
    samples, nbytes = np.full(rows, 256), np.full(rows, 154_141_696)
    unknown = np.full(rows, UNKNOWN)
    for epoch in range(EPOCHS):
        began = epoch * int(request_ns[-1] + 1_000_000_000)
        for start in range(0, per_epoch, rows):
            part = slice(start, start + rows)
            count = len(wait_ns[part])
            block = Block(
                epoch,
                "real",
                request_ns[part] + began,
                wait_ns[part],
                unknown[:count],
                samples[:count],
                nbytes[:count],
            )
            log.write(block.with_steps())
            if readings and start % READ_EVERY == 0:
                for subject in ("process", "workers", "machine"):
                    values = {f"{subject}_{n}": rng.random(1) for n in range(QUANTITIES)}
                    log.write(Readings("host", subject, block.request_ns[:1], values))
        log.write(EpochEnd(epoch, "broken off"))
    log.end(per_epoch * EPOCHS)


def main(batches: int) -> None:
    """Print the seconds and the memory for each sort of log."""
    print(f"{batches:,} batches\n")
    print("| batches in a block | file | write | read | memory |\n|---|---|---|---|---|")
    for rows, readings in SORTS:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "run.jsonl")
            began = time.perf_counter()
            write(path, batches, rows, readings=readings)
            written_s = time.perf_counter() - began
            done = subprocess.run(
                [sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True
            )
            count, read_s, peak_mb = map(float, done.stdout.split())
            assert count == batches
            name = f"{rows:,}, and readings" if readings else f"{rows:,}"
            print(
                f"| {name} | {path.stat().st_size / 1e6:.0f} MB | {written_s:.1f} s | "
                f"{read_s:.1f} s | {peak_mb:.0f} MB |",
                flush=True,
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
