"""Trains for an hour with everything on, and objects to what grows.

    python -m bench.soak.run [--minutes 60] [--batches 10000000] [--alternate 100000]

A loader in the training process and one with two workers in mode log, and one with two workers in
mode alternate, each with a log, stages, system metrics and ranges for a profiler; and one with two
workers without loadeval, whose memory shows what PyTorch and the allocator do. Each takes its share
of the time, in which the loop sleeps where it is faster, and longer where it is slower. At so many
moments the memory, file descriptors, threads and child processes are counted, and the CPU time for
each batch since the last one. Prints a table; exit status 1 where one of them grew.

Memory is told twice: what the process has of the system (RSS), which creeps up while allocators
find no room among what is in use, and what is in use of the C heap, once the log is written and
garbage is collected, and with it Python's free lists are empty. A leak shows in the second, however
small it is.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import logging
import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import psutil
import torch
from scipy.stats import theilslopes  # type: ignore[import-untyped]  # it ships no types
from torch.utils.data import DataLoader, Dataset

from bench.judge import batches_in
from loadeval import Estimate, LoaderEvaluator

if TYPE_CHECKING:
    from collections.abc import Sequence

MINUTES, LOGGED, ALTERNATED = 60.0, 10_000_000, 100_000
WORKERS_SHARE = 0.01
"""Batches of the loader with workers in mode log, of those of the one without."""
SAMPLES = 120
SETTLED = 0.2
"""This share of a phase is over before memory is looked at: allocators keep what they once had."""
TENTH = SAMPLES // 10
GROUPS, T_975 = 8, 2.447
"""Of readings of memory; the 97.5% quantile of Student's t for the differences between these."""
MOST_GROWTH_MB = 8.0
"""What memory may grow by over a phase, where it surely does."""
MOST_HEAP_GROWTH_MB = 0.5
"""The same of what is in use: an allocator explains none of it."""
MOST_COST = 1.5
"""What a batch may cost at the end, times that at the beginning; the machine may be busy."""
PACED = 200
"""After so many batches the loop sleeps, if it is early."""
WRITTEN_S = 0.6
"""Before memory is read the loop sleeps so long: by then what was measured is in the log."""


class Items(Dataset[dict[str, torch.Tensor]]):
    """Small batches, each of which takes `load_s` asleep."""

    def __init__(self, length: int, load_s: float = 0.0) -> None:
        self.length = length
        self.load_s = load_s
        self.batch = {"x": torch.zeros(4, 8), "y": torch.zeros(4, dtype=torch.long)}

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, _: int) -> dict[str, torch.Tensor]:
        if self.load_s:
            time.sleep(self.load_s)
        return self.batch


@dataclass(frozen=True)
class Phase:
    """One loader in one mode, or without loadeval (None), for `share` of the time."""

    name: str
    mode: str | None
    share: float
    batches: int
    epoch: int
    workers: int = 0
    load_s: float = 0.0
    options: dict[str, Any] = field(default_factory=dict)


class Sample(NamedTuple):
    """What the process has after `batches`; CPU times are of all of it, and of this thread."""

    batches: int
    memory_mb: float
    heap_mb: float
    files: int
    threads: int
    children: int
    cpu_s: float
    own_cpu_s: float


@dataclass(frozen=True)
class Soaked:
    """What became of a phase."""

    phase: Phase
    took_s: float
    samples: tuple[Sample, ...]
    log_mb: float
    logged: int

    def growth_mb(self, name: str) -> Estimate:
        """By how much `name` grew over the phase, if it did so all the time as after SETTLED.

        Readings that follow each other are alike, as memory goes in steps. So the interval is
        Student's t over the differences between the means of GROUPS of readings: these are as good
        as independent whether memory is steady, goes up and down in steps, or grows.
        """
        settled = [getattr(sample, name) for sample in self.samples]
        groups = np.array_split(settled[int(SETTLED * len(settled)) :], GROUPS)
        grew = np.diff([group.mean() for group in groups])
        scale = GROUPS / (1 - SETTLED)
        half = T_975 * grew.std(ddof=1) / np.sqrt(len(grew))
        mean = float(grew.mean())
        return Estimate(scale * mean, scale * (mean - half), scale * (mean + half))

    def costs_us(self, name: str) -> tuple[float, float]:
        """CPU time for a batch in the first tenth of the phase and in the last, the medians."""
        before = np.diff([getattr(sample, name) for sample in self.samples])
        costs = before / np.diff([sample.batches for sample in self.samples]) * 1e6
        return median(costs[:TENTH].tolist()), median(costs[-TENTH:].tolist())

    @property
    def grown(self) -> list[str]:
        """What grew that should not have."""
        settled = self.samples[int(SETTLED * len(self.samples)) :]
        grew = []
        batches = np.array([sample.batches for sample in settled]) / self.phase.batches
        slope = theilslopes([sample.memory_mb for sample in settled], batches)
        memory = Estimate(slope.slope, slope.low_slope, slope.high_slope)
        heap = self.growth_mb("heap_mb")
        for name, growth, most_mb in (
            ("memory", memory, MOST_GROWTH_MB),
            ("heap in use", heap, MOST_HEAP_GROWTH_MB),
        ):
            if (growth.low or 0.0) > 0 and (growth.high or 0.0) > most_mb:
                grew.append(name)
        for name in ("files", "threads", "children"):
            counts = [getattr(sample, name) for sample in settled]
            # Those of an epoch, and of batches that are on their way, come and go.
            if min(counts[-TENTH:]) > max(counts[:TENTH]):
                grew.append(name)
        for name in ("cpu_s", "own_cpu_s"):
            first, last = self.costs_us(name)
            if last > MOST_COST * first:
                grew.append(name)
        if self.phase.mode is not None and self.logged != self.phase.batches:
            grew.append(f"log of {self.logged:,} batches")
        return grew


def phases(logged: int, alternated: int) -> list[Phase]:
    """Their epochs are so short that each has some hundred at full length."""
    workers = max(int(logged * WORKERS_SHARE), SAMPLES)
    return [
        Phase("log", "log", 0.4, logged, max(logged // 100, 1)),
        Phase("plain, 2 workers", None, 0.1, workers, max(workers // 200, 30), 2),
        Phase("log, 2 workers", "log", 0.2, workers, max(workers // 200, 30), 2),
        Phase(
            "alternate, 2 workers", "alternate", 0.3, alternated, max(alternated // 50, 200), 2,
            0.0005, {"pairs": 10**6},
        ),
    ]  # fmt: skip


class HeapInfo(ctypes.Structure):
    """What glibc's `mallinfo2` returns."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
            "fordblks", "keepcost",
        )
    ]  # fmt: skip


LIBC = ctypes.CDLL(None)
LIBC.mallinfo2.restype = HeapInfo


def fill_cache_of_numpy() -> None:
    """Let NumPy keep all the memory that it ever will.

    Of freed arrays of each size up to a kilobyte it keeps seven blocks to use again, which are in
    use for the C heap: 3.6 MB in the end (NBUCKETS and NCACHE in its multiarray/alloc.c). Until
    then that looks like a leak.
    """
    for size in range(1025):
        arrays = [np.empty(size, np.uint8) for _ in range(8)]
        arrays.clear()


def heap_mb() -> float:
    """What is in use of the C heap, garbage apart."""
    gc.collect()
    heap = LIBC.mallinfo2()
    return float(heap.uordblks + heap.hblkhd) / 1e6


def sample(process: psutil.Process, batches: int) -> Sample:
    return Sample(
        batches,
        process.memory_info().rss / 1e6,
        heap_mb(),
        process.num_fds(),
        process.num_threads(),
        len(process.children(recursive=True)),
        time.process_time(),
        time.thread_time(),
    )


def soaked(phase: Phase, seconds: float, folder: Path) -> Soaked:
    """Train through `phase`, for `seconds` at least."""
    loader = DataLoader(
        Items(phase.epoch, phase.load_s), batch_size=None, num_workers=phase.workers
    )
    path = folder / "run.jsonl"
    measured: Any = nullcontext(loader)
    if phase.mode is not None:
        measured = LoaderEvaluator(
            loader, phase.mode, log_file=path, overwrite=True, stages=True, annotate="torch",
            **phase.options,
        )  # fmt: skip
    process, samples, served = psutil.Process(), [], 0
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
                    samples.append(sample(process, served))
                    if not due:
                        break
                if not served % PACED:
                    early_s = began_s + seconds * served / phase.batches - time.perf_counter()
                    time.sleep(max(early_s, 0.0))
    took_s = time.perf_counter() - began_s
    if phase.mode is None:
        return Soaked(phase, took_s, tuple(samples), 0.0, 0)
    return Soaked(phase, took_s, tuple(samples), path.stat().st_size / 1e6, batches_in(path))


def soak(minutes: float, logged: int, alternated: int) -> list[Soaked]:
    """All phases, one after the other; prints a row for each."""
    print(
        "| | batches | minutes | log | memory | grew by | in use | grew by | files | threads "
        f"| CPU of training, us | of the process, us |\n{'|---' * 12}|"
    )
    results = []
    for phase in phases(logged, alternated):
        with TemporaryDirectory() as folder:
            results.append(soaked(phase, 60 * minutes * phase.share, Path(folder)))
        print(row(results[-1]), flush=True)
    return results


def row(result: Soaked) -> str:
    last = result.samples[-1]
    own, whole = (result.costs_us(name) for name in ("own_cpu_s", "cpu_s"))
    cells = (
        result.phase.name,
        f"{last.batches:,}",
        f"{result.took_s / 60:.1f}",
        f"{result.log_mb:,.0f} MB",
        f"{last.memory_mb:.0f} MB",
        _growth(result.growth_mb("memory_mb")),
        f"{last.heap_mb:.0f} MB",
        _growth(result.growth_mb("heap_mb")),
        _range(result.samples, "files"),
        _range(result.samples, "threads"),
        f"{own[0]:.1f}, {own[1]:.1f}",
        f"{whole[0]:.1f}, {whole[1]:.1f}",
    )
    return f"| {' | '.join(cells)} |"


def _growth(growth: Estimate) -> str:
    interval = "" if growth.low is None else f" [{growth.low:.2f}, {growth.high:.2f}]"
    return f"{growth.value:.2f}{interval} MB"


def _range(samples: Sequence[Sample], name: str) -> str:
    counts = [getattr(sample, name) for sample in samples]
    return f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"


def main() -> int:
    """Do it, and tell what grew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--batches", type=int, default=LOGGED)
    parser.add_argument("--alternate", type=int, default=ALTERNATED)
    options = parser.parse_args()
    logging.getLogger("loadeval").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    grown = [
        f"{result.phase.name}: {what}"
        for result in soak(options.minutes, options.batches, options.alternate)
        for what in result.grown
    ]
    print("\n".join(["", "grown: ", *grown]) if grown else "\nnothing grew")
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
