"""What many sleeping workers cost: predicted from a run with two, and then measured.

Loading a batch sleeps, so that two CPUs do for 64 workers: what they cost is memory, and the
training process, which receives all batches. Predicted are the time of a batch and the memory of
workers and queue; measured is a plain loop without loadeval, in a process of its own, in which the
workers' private memory (USS) is read. Exit status 1 where a time is not in its range, or memory is
off by more than MOST_OFF.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import psutil
import torch
from torch.utils.data import DataLoader, Dataset

from loadeval import LoaderEvaluator, read_run, whatif

WORKERS = (8, 32, 64)
RECORDED_WORKERS, RECORDED = 2, 120
LOAD_S, STEP_S = 0.25, 0.001
BATCHES = 400
"""Of a plain loop, besides those that its workers load ahead."""
NUMBERS = 64 * 1024
MOST_OFF = 0.2
"""Of what was measured. What a worker copies of its parent's pages depends on how these lie."""


class Batches(Dataset[Any]):
    """A batch of 256 kB for each index."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(LOAD_S)
        return torch.full((NUMBERS,), float(index))


def loader_of(workers: int, count: int) -> DataLoader[Any]:
    return DataLoader(Batches(count), batch_size=None, num_workers=workers)


def record(path: Path) -> None:
    """The run that is predicted from."""
    loader = loader_of(RECORDED_WORKERS, RECORDED)
    with LoaderEvaluator(loader, mode="alternate", log_file=path) as evaluated:
        for _ in evaluated:
            time.sleep(STEP_S)


def measured(workers: int) -> tuple[float, float]:
    """Seconds of a batch once the queue has filled, and bytes of the workers and the queue."""
    ahead = 2 * workers
    began_s, nbytes = 0.0, 0.0
    for number, batch in enumerate(loader_of(workers, ahead + BATCHES)):
        if number == ahead:
            children = psutil.Process().children()
            nbytes = sum(child.memory_full_info().uss for child in children)
            nbytes += (ahead + 1) * batch.nbytes
            began_s = time.perf_counter()
        time.sleep(STEP_S)
    return (time.perf_counter() - began_s) / BATCHES, nbytes


def measured_elsewhere(workers: int) -> tuple[float, float]:
    """The same, in a process of its own: what a fork shares depends on what was done before it."""
    command = [sys.executable, __file__, "--plain", str(workers)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    batch_s, nbytes = json.loads(done.stdout)
    return batch_s, nbytes


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plain", type=int, metavar="WORKERS", help="measure a plain loop alone")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if options.plain is not None:
        print(json.dumps(measured(options.plain)))
        return 0
    missed = False
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.jsonl"
        record(path)
        run = read_run(path)
        print("| workers | a batch, predicted | measured | memory, predicted | measured |")
        print("|---|---|---|---|---|")
        for workers in WORKERS:
            prediction = whatif(run, num_workers=workers)
            low, value, high = (
                1e-6 * getattr(prediction.iteration_ns, name) for name in ("low", "value", "high")
            )
            batch_s, nbytes = measured_elsewhere(workers)
            memory = prediction.memory_bytes
            is_off = memory is None or abs(memory / nbytes - 1) > MOST_OFF
            missed |= is_off or not low <= 1e3 * batch_s <= high
            of_memory = "not measured" if memory is None else f"{1e-6 * memory:,.0f} MB"
            print(
                f"| {workers} | {value:.1f} ms [{low:.1f}, {high:.1f}] | {1e3 * batch_s:.1f} ms "
                f"| {of_memory} | {1e-6 * nbytes:,.0f} MB |",
                flush=True,
            )
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
