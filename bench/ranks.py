"""How long the report of a job with many ranks takes to make, and in how much memory.

Writes the logs of a simulated training, whose slowest rank and its cost are known, as the recorder
would: a line each half second. Prints what each command took, the most CPU time and memory that one
took with its processes, and the size of the page.
"""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from bench.judge import COMMAND
from bench.tables import parser_of, show

MS = 1_000_000
STEP_NS = 100 * MS
ROWS = 5
"""In half a second."""
EPOCHS = 4
STRAGGLER_NS = 20 * MS
SIZES = ((8, 1_000), (64, 10_000), (1_024, 1_000), (1_024, 10_000))
"""Ranks and batches of each; the last one may take 60 s and 2 GiB, and its page 8 MB."""
HEADS = ("ranks", "batches each", "logs", "compare", "report", "CPU time", "memory at most", "page")


def lines_of(rank: int, ranks: int, batches: int) -> Iterator[dict[str, Any]]:
    """The log of one rank; its clock is 50 ppm off, and began at another time.

    Waits are short, and on one rank there is a longer one for every fourth batch.
    """
    wait_ns = np.random.default_rng(rank).lognormal(np.log(0.2 * MS), 0.5, batches)
    if rank == ranks // 3:
        wait_ns[::4] += STRAGGLER_NS
    longest_ns = np.where(np.arange(batches) % 4, 1.0, 1.0 + STRAGGLER_NS / MS) * MS
    end_ns = np.cumsum(longest_ns + STEP_NS)
    end_ns += np.random.default_rng(10**6 + rank).integers(0, MS // 10, batches)
    end_ns = (end_ns * (1 + 5e-5 * (rank % 3 - 1))).astype(np.int64)
    wait_ns = wait_ns.astype(np.int64)
    request_ns = np.concatenate([[0], end_ns[:-1]])
    columns = {
        "request_ns": request_ns,
        "wait_ns": wait_ns,
        "step_ns": end_ns - request_ns - wait_ns,
        "samples": np.full(batches, 256),
        "nbytes": np.full(batches, 154_141_696),
    }
    yield {
        "type": "header",
        "format": "loadeval-run",
        "version": 1,
        "mode": "log",
        "run_id": f"rank{rank}",
        "name": f"rank{rank}",
        "unit": "images",
        "warmup": 1,
        "created": f"2026-01-01T00:00:{rank % 60:02}+00:00",
        "environment": {"host": f"node{rank // 8}", "rank": rank, "world_size": ranks},
        "loader": {"backend": "torch.utils.data.dataloader.DataLoader", "workers": 8},
    }
    each = batches // EPOCHS
    for epoch in range(EPOCHS):
        ends = (epoch + 1) * each
        for start in range(epoch * each, ends, ROWS):
            rows = slice(start, min(start + ROWS, ends))
            block = {name: column[rows].tolist() for name, column in columns.items()}
            yield {"type": "block", "epoch": epoch, "arm": "real", **block}
        times = {"request_ns": int(end_ns[ends - 1]), "wait_ns": MS}
        yield {"type": "epoch", "epoch": epoch, "cause": "exhausted", **times}
    yield {"type": "end", "batches": EPOCHS * each}


def write(folder: Path, rank: int, ranks: int, batches: int) -> None:
    with (folder / f"rank{rank}.jsonl").open("w", encoding="ascii") as file:
        for line in lines_of(rank, ranks, batches):
            file.write(json.dumps(line, separators=(",", ":")) + "\n")


def measure(*command: str) -> tuple[float, float, float]:
    """The seconds, those of all CPUs, and the peak of memory, in GiB, of a command of loadeval."""
    began, before, most_bytes = time.perf_counter(), os.times(), 0
    with psutil.Popen([*COMMAND, *command], stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            total = 0
            for member in [process, *process.children(recursive=True)]:
                with suppress(psutil.Error):
                    total += member.memory_full_info().pss
            most_bytes = max(most_bytes, total)
            time.sleep(0.02)
    if process.returncode:
        raise SystemExit(f"loadeval {' '.join(command)} failed")
    after = os.times()
    used_s = after.children_user + after.children_system
    used_s -= before.children_user + before.children_system
    return time.perf_counter() - began, used_s, most_bytes / 2**30


def row(folder: Path, ranks: int, batches: int) -> list[str]:
    """The sizes of a job, its logs and its page; what each command took; the most memory."""
    folder.mkdir()
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for job in [pool.submit(write, folder, rank, ranks, batches) for rank in range(ranks)]:
            job.result()
    nbytes = sum(path.stat().st_size for path in folder.glob("*.jsonl"))
    page = folder / "page.html"
    commands = (("compare", "--json"), ("report", "-o", str(page)))
    measured = [measure(name, str(folder), *more) for name, *more in commands]
    return [
        f"{ranks:,}",
        f"{batches:,}",
        f"{nbytes / 1e6:,.0f} MB",
        *(f"{took_s:.1f} s" for took_s, _, _ in measured),
        f"{max(used_s for _, used_s, _ in measured):.1f} s",
        f"{max(peak for *_, peak in measured):.2f} GiB",
        f"{page.stat().st_size / 1e6:.1f} MB",
    ]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--ranks", type=int)
    parser.add_argument("--batches", type=int, default=10_000)
    options = parser.parse_args()
    sizes = SIZES if options.ranks is None else ((options.ranks, options.batches),)
    with tempfile.TemporaryDirectory() as folder:
        show(HEADS, (row(Path(folder, f"{size}"), *size) for size in sizes))


if __name__ == "__main__":
    main()
