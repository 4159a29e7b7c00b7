"""Trains for an hour with everything on, and objects to what grows.

Loaders with and without workers in modes log and alternate, each with a log, stages, system metrics
and ranges for a profiler, and one without loadeval, whose memory shows what PyTorch and the
allocator do. Memory, file descriptors, threads and child processes are counted again and again, and
the CPU time for each batch. Prints a table; exit status 1 where one of them grew.

Memory is told twice: what the process has of the system (RSS), which creeps up while allocators
find no room among what is in use, and what is in use of the C heap, once the log is written and
garbage is collected. A leak shows in the second, however small it is.
"""

import ctypes
import gc
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil
import torch
from torch.utils.data import DataLoader

from bench.judge import batches_in
from bench.tables import parser_of, show
from bench.zoo.costs import Sleep
from bench.zoo.programs import Samples
from loadeval import LoaderEvaluator

SAMPLES = 120
TENTH = SAMPLES // 10
SETTLED = SAMPLES // 5
"""So many are over before memory is looked at: allocators keep what they once had."""
GROUPS, T_975 = 8, 2.447
"""Of readings of memory; the 97.5% quantile of Student's t for the differences between these."""
MOST_GROWTH_MB = {"memory_mb": 8.0, "heap_mb": 0.5}
"""What may grow by so much over a phase, where it surely does: an allocator explains no more."""
MOST_COST = 1.5
"""What a batch may cost at the end, times that at the beginning; the machine may be busy."""
PACED = 200
"""After so many batches the loop sleeps, if it is early."""
WRITTEN_S = 0.6
"""Before memory is read the loop sleeps so long: by then what was measured is in the log."""
READ = ("batches", "memory_mb", "heap_mb", "files", "threads", "children", "cpu_s", "own_cpu_s")
HEADS = (
    *("", "batches", "minutes", "memory", "grew by", "in use", "grew by", "files", "threads"),
    *("CPU of training, us", "of the process, us"),
)

Readings = dict[str, npt.NDArray[np.float64]]


@dataclass(frozen=True)
class Phase:
    """One loader in one mode, or without loadeval (None), for `share` of the time."""

    name: str
    mode: str | None
    share: float
    batches: int
    epoch: int
    workers: int = 0
    load_ms: float = 0.0


def phases(logged: int, alternated: int) -> list[Phase]:
    """Their epochs are so short that each has some hundred at full length."""
    few = max(logged // 100, SAMPLES)
    epoch, long = max(few // 200, 30), max(alternated // 50, 200)
    return [
        Phase("log", "log", 0.4, logged, max(logged // 100, 1)),
        Phase("plain, 2 workers", None, 0.1, few, epoch, 2),
        Phase("log, 2 workers", "log", 0.2, few, epoch, 2),
        Phase("alternate, 2 workers", "alternate", 0.3, alternated, long, 2, 0.5),
    ]


class HeapInfo(ctypes.Structure):
    """What glibc's `mallinfo2` returns, ten sizes."""

    _fields_ = [(f"size {at}", ctypes.c_size_t) for at in range(10)]


MAPPED, IN_USE = "size 4", "size 7"
LIBC = ctypes.CDLL(None)
LIBC.mallinfo2.restype = HeapInfo


def heap_mb() -> float:
    """What is in use of the C heap, garbage apart."""
    gc.collect()
    heap = LIBC.mallinfo2()
    return float(getattr(heap, MAPPED) + getattr(heap, IN_USE)) / 1e6


def fill_cache_of_numpy() -> None:
    """Of freed arrays of each size up to a kilobyte NumPy keeps seven blocks to use again.

    They are in use for the C heap, and look like a leak until all are kept, at 3.6 MB.
    """
    for size in range(1025):
        arrays = [np.empty(size, np.uint8) for _ in range(8)]
        arrays.clear()


def soaked(phase: Phase, seconds: float, folder: Path) -> tuple[Readings, int]:
    """Train through `phase`, for `seconds` at least: what was read, and how many were logged."""
    made = {"x": torch.zeros(4, 8), "y": torch.zeros(4, dtype=torch.long)}
    load = Sleep(phase.load_ms)
    items = Samples(lambda index: load(index) or made, phase.epoch)
    loader = DataLoader(items, batch_size=None, num_workers=phase.workers)
    path = folder / "run.jsonl"
    measured: Any = nullcontext(loader)
    if phase.mode is not None:
        options = {"pairs": 10**6} if phase.mode == "alternate" else {}
        options |= {"log_file": path, "stages": True, "annotate": "torch"}
        measured = LoaderEvaluator(loader, phase.mode, **options)
    process, rows, served = psutil.Process(), list[tuple[float, ...]](), 0
    fill_cache_of_numpy()
    gc.freeze()  # to collect garbage then costs next to nothing beside the batches
    due = [round(phase.batches * part / SAMPLES) for part in range(SAMPLES, 0, -1)]
    began_s = time.perf_counter()
    with measured as batches:
        while due:
            for _ in batches:
                served += 1
                if served == due[-1]:
                    due.pop()
                    time.sleep(min(WRITTEN_S, seconds / SAMPLES / 2))
                    memory_mb = process.memory_info().rss / 1e6
                    counts = process.num_fds(), process.num_threads(), len(process.children())
                    cpu = time.process_time(), time.thread_time()
                    rows.append((served, memory_mb, heap_mb(), *counts, *cpu))
                    if not due:
                        break
                if not served % PACED:
                    early_s = began_s + seconds * served / phase.batches - time.perf_counter()
                    time.sleep(max(early_s, 0.0))
    logged = phase.batches if phase.mode is None else batches_in(path)
    return dict(zip(READ, np.array(rows).T, strict=True)), logged


def growth_mb(values: npt.NDArray[np.float64]) -> tuple[float, float, float]:
    """By how much a memory grew over the phase, if it did so all the time, with its interval.

    Readings that follow each other are alike. So the interval is Student's t over the differences
    between the means of GROUPS of readings, which are as good as independent.
    """
    grew = np.diff([group.mean() for group in np.array_split(values[SETTLED:], GROUPS)])
    mean, half = grew.mean(), T_975 * grew.std(ddof=1) / np.sqrt(len(grew))
    scale = GROUPS * SAMPLES / (SAMPLES - SETTLED)
    return scale * mean, scale * (mean - half), scale * (mean + half)


def costs_us(read: Readings, name: str) -> tuple[float, float]:
    """CPU time for a batch in the first tenth of the phase and in the last, the medians."""
    costs = np.diff(read[name]) / np.diff(read["batches"]) * 1e6
    return float(np.median(costs[:TENTH])), float(np.median(costs[-TENTH:]))


def grown(read: Readings) -> list[str]:
    """What grew that should not have."""
    found = []
    for name, most_mb in MOST_GROWTH_MB.items():
        _, low, high = growth_mb(read[name])
        if low > 0 and high > most_mb:
            found.append(name)
    for name in ("files", "threads", "children"):
        counts = read[name][SETTLED:]
        # Those of an epoch, and of batches that are on their way, come and go.
        if counts[-TENTH:].min() > counts[:TENTH].max():
            found.append(name)
    for name in ("cpu_s", "own_cpu_s"):
        first, last = costs_us(read, name)
        if last > MOST_COST * first:
            found.append(name)
    return found


def row(phase: Phase, took_s: float, read: Readings) -> Sequence[str]:
    cells = [phase.name, f"{read['batches'][-1]:,.0f}", f"{took_s / 60:.1f}"]
    for name in MOST_GROWTH_MB:
        value, low, high = growth_mb(read[name])
        cells += [f"{read[name][-1]:.0f} MB", f"{value:.2f} [{low:.2f}, {high:.2f}] MB"]
    cells += [f"{read[name].min():.0f} to {read[name].max():.0f}" for name in ("files", "threads")]
    for name in ("own_cpu_s", "cpu_s"):
        first, last = costs_us(read, name)
        cells.append(f"{first:.1f}, {last:.1f}")
    return cells


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--batches", type=int, default=10_000_000)
    parser.add_argument("--alternate", type=int, default=100_000)
    options = parser.parse_args()
    logging.getLogger("loadeval").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    wrong: list[str] = []

    def rows() -> Iterator[Sequence[str]]:
        for phase in phases(options.batches, options.alternate):
            began_s = time.perf_counter()
            with TemporaryDirectory() as folder:
                read, logged = soaked(phase, 60 * options.minutes * phase.share, Path(folder))
            yield row(phase, time.perf_counter() - began_s, read)
            wrong.extend(f"{phase.name}: {name} grew" for name in grown(read))
            if logged != phase.batches:
                wrong.append(f"{phase.name}: the log has {logged:,} batches")

    show(HEADS, rows())
    print("\n" + ("\n".join(wrong) or "nothing grew"))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
