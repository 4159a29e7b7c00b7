"""How long a run log of a million batches takes to write and to read back.

    python tests/benchmarks/run_log_speed.py [BATCHES]

Rows in a block depend on the throughput of the run: a line is written each half second, or for each
1,024 batches. One row in a block is a run of two batches a second or slower.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from loadeval.runlog.columns import UNKNOWN
from loadeval.runlog.model import Block, EpochEnd, Header, LoaderInfo
from loadeval.runlog.reader import read_run
from loadeval.runlog.writer import RunLog

ROWS = (1024, 50, 5, 1)
EPOCHS = 10


def write(path: Path, batches: int, rows: int) -> None:
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
        log.write(EpochEnd(epoch, "broken off"))
    log.end(per_epoch * EPOCHS)


def main(batches: int) -> None:
    """Print the seconds for each size of block."""
    print(f"{batches:,} batches")
    print("rows in a block   file MB   write s   read s")
    for rows in ROWS:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "run.jsonl")
            began = time.perf_counter()
            write(path, batches, rows)
            written = time.perf_counter()
            assert len(read_run(path).steps) == batches
            read = time.perf_counter()
            size = path.stat().st_size / 1e6
            print(f"{rows:15,} {size:9.1f} {written - began:9.2f} {read - written:8.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
