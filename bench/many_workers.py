"""What 64 workers cost an alternating run and the readings of the host, beside two.

All of them sleep, so that the machine has time. Prints by how much an alternating run is longer
than plain loops, and how much of a CPU reading the host takes while a loader is at work; the last
column may be 2.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import time
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import torch
from torch.utils.data import DataLoader, Dataset

from bench.judge import prefetched_s
from bench.zoo.costs import Sleep
from bench.zoo.truth import Items, numbered
from loadeval import LoaderEvaluator

if TYPE_CHECKING:
    from collections.abc import Iterable
    from multiprocessing.synchronize import Event

FEW, MANY = 2, 64
BATCHES, EPOCHS = 1_200, 2
LOAD_MS, STEP_MS = 2.0, 5.0
READ_FOR_S = 120.0
SERVED = 50
"""Batches that come at once, after which the workers are at work for as long as it takes."""
MOST = 2.0


class Quick(Dataset[int]):
    """Samples of which the first ones take no time, and others until all is `over`."""

    def __init__(self, over: Event) -> None:
        self.over = over

    def __len__(self) -> int:
        return 10**6

    def __getitem__(self, index: int) -> int:
        if index >= SERVED:
            self.over.wait()
        return index


def elapsed_s(loader: Iterable[object]) -> float:
    """Seconds of EPOCHS."""
    step = Sleep(STEP_MS)
    began_s = time.perf_counter()
    for _ in range(EPOCHS):
        for _ in loader:
            step(0)
    return time.perf_counter() - began_s


def pauses_s(workers: int, batches: int) -> dict[str, float]:
    """By how much an alternating run is longer than plain loops, and for how long it prefetched."""
    items = Items(batches, numbered, Sleep(LOAD_MS))
    loader = DataLoader(items, batch_size=None, num_workers=workers, persistent_workers=True)
    next(iter(loader))  # the workers start once
    plain_s = elapsed_s(loader)
    with TemporaryDirectory() as folder:
        log = Path(folder) / "run.jsonl"
        with LoaderEvaluator(loader, "alternate", pairs=10_000, log_file=log) as evaluator:
            alternating_s = elapsed_s(evaluator)
        return {
            "prefetching": prefetched_s(log),
            "all that it is longer by": alternating_s - plain_s,
        }


def cpu_ms_per_s(workers: int, probes: tuple[str, ...], seconds: float) -> float:
    """CPU time of this process for each second of a step that sleeps, while workers load."""
    over = multiprocessing.Event()
    loader = DataLoader(Quick(over), batch_size=None, num_workers=workers)
    with LoaderEvaluator(loader, probes=probes) as evaluator:
        batches = iter(evaluator)
        for _ in range(SERVED // 2):
            next(batches)
            time.sleep(0.1)  # the first reading, which is of all that later ones take in turns
        began_s, cpu_s = time.perf_counter(), time.process_time()
        time.sleep(seconds)
        taken_s = time.process_time() - cpu_s
        rate = taken_s / (time.perf_counter() - began_s) * 1e3
        over.set()
    return rate


def reading_ms_per_s(workers: int, seconds: float) -> float:
    """CPU time for each second of reading the host as often as by default."""
    return cpu_ms_per_s(workers, ("host",), seconds) - cpu_ms_per_s(workers, (), seconds)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=BATCHES, help="of an epoch")
    parser.add_argument("--seconds", type=float, default=READ_FOR_S, help="of reading")
    options = parser.parse_args()
    logging.getLogger("loadeval").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")  # of more workers than there are CPUs
    torch.set_num_threads(1)
    print(f"| | {FEW} workers | {MANY} workers | ratio |\n|---|---|---|---|")
    few, many = (pauses_s(workers, options.batches) for workers in (FEW, MANY))
    for name in few:
        ratio = many[name] / few[name]
        missed = " **missed**" * (ratio > MOST and name.startswith("all"))
        print(
            f"| alternating, {name} | {few[name]:.2f} s | {many[name]:.2f} s | "
            f"{ratio:.1f}{missed} |"
        )
    few_ms, many_ms = (reading_ms_per_s(workers, options.seconds) for workers in (FEW, MANY))
    ratio = many_ms / few_ms
    missed = " **missed**" * (ratio > MOST)
    print(
        f"| reading the host, CPU time a second | {few_ms:.2f} ms | {many_ms:.2f} ms | "
        f"{ratio:.1f}{missed} |"
    )


if __name__ == "__main__":
    main()
