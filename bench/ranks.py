"""How long the report of a job with many ranks takes to make, and in how much memory.

    python -m bench.ranks [--ranks N] [--batches N] [--folder FOLDER]

Writes the logs of a simulated training, whose slowest rank and its cost are known, as the recorder
would: a line each half second. With --folder and --ranks they stay there, to be used again. Prints
what each command took, the most CPU time and memory that one took with its processes, and the size
of the page.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import psutil

from bench.judge import COMMAND
from bench.made_logs import block, epoch_end, header, write_log
from bench.tables import show

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.made_logs import Line

MS = 1_000_000
STEP_NS = 100 * MS
ROWS = 5
"""In half a second."""
EPOCHS = 4
ON_NODE = 8
STRAGGLER_NS = 20 * MS
READ_S = 0.02
SIZES = ((8, 1_000), (64, 10_000), (1_024, 1_000), (1_024, 10_000))
"""Ranks and batches of each; the last one may take 60 s and 2 GiB, and its page 8 MB."""
HEADS = (
    *("ranks", "batches each", "logs", "compare", "report", "CPU time at most"),
    *("memory at most", "page"),
)


def waits_of(rank: int, ranks: int, batches: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Short waits, and on one rank a longer one for every fourth batch."""
    random = np.random.default_rng(rank)
    waits = random.lognormal(np.log(0.2 * MS), 0.5, batches)
    if rank == ranks // 3:
        waits[::4] += STRAGGLER_NS
    return waits.astype(np.int64)


def write(folder: Path, rank: int, ranks: int, batches: int) -> None:
    """The log of one rank; its clock is 50 ppm off, and began at another time."""
    longest = np.where(np.arange(batches) % 4, 1.0, 1.0 + STRAGGLER_NS / MS) * MS
    wait_ns = waits_of(rank, ranks, batches)
    end_ns = np.cumsum(longest + STEP_NS).astype(np.int64)
    end_ns += np.random.default_rng(10**6 + rank).integers(0, MS // 10, batches)
    end_ns = (end_ns * (1 + 5e-5 * (rank % 3 - 1))).astype(np.int64)
    request_ns = np.concatenate([[0], end_ns[:-1]])
    step_ns = end_ns - request_ns - wait_ns
    columns = {
        "request_ns": request_ns,
        "wait_ns": wait_ns,
        "step_ns": step_ns,
        "samples": np.full(batches, 256),
        "nbytes": np.full(batches, 154_141_696),
    }

    def lines() -> Iterator[Line]:
        yield header(
            f"rank{rank}",
            backend="torch.utils.data.dataloader.DataLoader",
            created=f"2026-01-01T00:00:{rank % 60:02}+00:00",
            environment={"host": f"node{rank // ON_NODE}", "rank": rank, "world_size": ranks},
        )
        each = batches // EPOCHS
        for epoch in range(EPOCHS):
            ends = (epoch + 1) * each
            for start in range(epoch * each, ends, ROWS):
                rows = slice(start, min(start + ROWS, ends))
                yield block({name: column[rows] for name, column in columns.items()}, epoch)
            yield epoch_end(epoch, int(end_ns[ends - 1]), MS)

    write_log(folder / f"rank{rank}.jsonl", lines())


def peak_bytes(process: psutil.Popen, most_bytes: list[int]) -> None:
    """Keep the most memory of `process` and its children in `most_bytes`, while it goes on."""
    while process.poll() is None:
        total = 0
        for member in [process, *process.children(recursive=True)]:
            with suppress(psutil.Error):
                total += member.memory_full_info().pss
        most_bytes[0] = max(most_bytes[0], total)
        time.sleep(READ_S)


def cpu_s() -> float:
    """The CPU time of the processes that have ended."""
    used = os.times()
    return used.children_user + used.children_system


def measure(*command: str) -> tuple[float, float, float]:
    """The seconds, those of all CPUs, and the peak of memory, in GiB, of a command of loadeval."""
    began, before_s, most = time.perf_counter(), cpu_s(), [0]
    with psutil.Popen([*COMMAND, *command], stdout=subprocess.DEVNULL) as process:
        watcher = threading.Thread(target=peak_bytes, args=(process, most))
        watcher.start()
        watcher.join()
        if process.wait():
            raise SystemExit(f"loadeval {' '.join(command)} failed")
    return time.perf_counter() - began, cpu_s() - before_s, most[0] / 2**30


def write_all(folder: Path, ranks: int, batches: int) -> None:
    """The logs of a job, unless the folder has some."""
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.glob("*.jsonl")):
        return
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for job in [pool.submit(write, folder, rank, ranks, batches) for rank in range(ranks)]:
            job.result()


def row(folder: Path, ranks: int, batches: int) -> list[str]:
    """The sizes of a job, its logs and its page; what each command took; the most memory."""
    write_all(folder, ranks, batches)
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
    """Print a table, with a row for each job."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int)
    parser.add_argument("--batches", type=int, default=10_000)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    sizes = SIZES if options.ranks is None else ((options.ranks, options.batches),)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        places = [folder if len(sizes) == 1 else folder / f"{size}" for size in sizes]
        rows = (row(place, *size) for place, size in zip(places, sizes, strict=True))
        show(HEADS, rows, markdown=True)


if __name__ == "__main__":
    main()
