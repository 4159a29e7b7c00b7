"""How busy devices are that share a machine: predicted from one run on one CPU, and then measured.

A device is a process whose step sleeps, as in MLPerf Storage's emulation. Loading hashes, or reads
from a local server that is slow to answer or limited in bandwidth. Exit status 1 where the median
error is 10% or more, or fewer than nine of ten lie in their range.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, Dataset

from loadeval import LoaderEvaluator, Machine, plan, read_run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.served import Server, fetch, started
else:  # a script finds its siblings by their plain names
    from served import Server, fetch, started

STEP_S = 0.02
BATCHES, WARM_UP, RECORDED = 150, 30, 400
HASHED = bytes(16 * 1024)
HASHES_MS = 100
"""Hashes that take about a millisecond."""
READ = 400_000
"""Bytes of a batch that is read."""
MEDIAN_ERROR, IN_RANGE = 0.1, 0.9
HEAD = (
    "| loading | devices | CPUs | workers, each | utilisation, predicted | measured | in range |\n"
    "|---|---|---|---|---|---|---|"
)


@dataclass(frozen=True)
class Work:
    """What loading a batch does: so many milliseconds of hashing, and a read from a port."""

    name: str
    cpu_ms: float
    port: int = 0


class Batches(Dataset[Any]):
    """A batch for each index."""

    def __init__(self, work: Work, count: int) -> None:
        self.work = work
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        for _ in range(round(self.work.cpu_ms * HASHES_MS)):
            hashlib.sha256(HASHED).digest()
        if self.work.port:
            fetch(self.work.port, READ)
        return torch.zeros(16)


def loader_of(work: Work, workers: int, count: int) -> DataLoader[Any]:
    warnings.simplefilter("ignore")
    return DataLoader(Batches(work, count), batch_size=1, num_workers=workers)


def train(work: Work, workers: int) -> None:
    """One device: prints the share of the time that its steps take."""
    torch.set_num_threads(1)
    began = time.perf_counter()
    for number, _ in enumerate(loader_of(work, workers, BATCHES)):
        if number == WARM_UP:
            began = time.perf_counter()
        time.sleep(STEP_S)
    busy = (BATCHES - WARM_UP) * STEP_S / (time.perf_counter() - began)
    sys.stdout.write(f"{busy}\n")


def record(work: Work, path: str) -> None:
    """The run that plans are made from: one worker."""
    torch.set_num_threads(1)
    with LoaderEvaluator(loader_of(work, 1, RECORDED), mode="alternate", log_file=path) as loader:
        for _ in loader:
            time.sleep(STEP_S)


def child(kind: str, work: Work, *more: str, cpus: int) -> subprocess.Popen[str]:
    words = [sys.executable, __file__, kind, work.name, str(work.cpu_ms), str(work.port), *more]
    allowed = sorted(os.sched_getaffinity(0))[:cpus]
    return subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, allowed),  # noqa: PLW1509 - no thread runs here
    )


def measured(work: Work, devices: int, workers: int, cpus: int) -> float:
    """The mean share of the time in which so many devices at once are busy."""
    running = [child("train", work, str(workers), cpus=cpus) for _ in range(devices)]
    return statistics.mean(float(process.communicate()[0]) for process in running)


def cases() -> Iterator[tuple[str, Work, Server | None, float | None, list[tuple[int, int]]]]:
    """Each recorded work, the server that it reads from then and later, and devices and CPUs."""
    several = [(devices, cpus) for devices in (1, 2, 4) for cpus in (1, 2)]
    yield "hashing 8 ms", Work("light", 8), None, None, several
    yield "hashing 25 ms", Work("heavy", 25), None, None, several
    of_two = [(1, 2), (2, 2), (4, 2)]
    yield "answers after 60 ms", Work("latency", 2), Server(latency_s=0.06), None, of_two
    yield "reads of 30 MB/s", Work("bandwidth", 2), Server(), 30e6, of_two


def main() -> int:
    errors, in_range = [], []
    sys.stdout.write(f"{HEAD}\n")
    for name, work, server, read, settings in cases():
        process, port = (None, 0) if server is None else started(server)
        work = Work(work.name, work.cpu_ms, port)
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "run.jsonl")
            child("record", work, path, cpus=1).communicate()
            run = read_run(path)
        if process is not None and read is not None:
            process.terminate()
            process, port = started(Server(bytes_per_s=read))
            work = Work(work.name, work.cpu_ms, port)
        for devices, cpus in settings:
            machine = Machine(devices, cpus, read_bytes_per_s=read)
            planned = plan(run, machine=machine)
            busy = planned.utilisation
            real = measured(work, devices, planned.num_workers, cpus)
            errors.append(abs(busy.value / real - 1))
            in_range.append(busy.low <= real <= busy.high)
            sys.stdout.write(
                f"| {name} | {devices} | {cpus} | {planned.num_workers} | {busy.value:.0%} "
                f"[{busy.low:.0%}, {busy.high:.0%}] | {real:.0%} | "
                f"{'yes' if in_range[-1] else 'no'} |\n"
            )
            sys.stdout.flush()
        if process is not None:
            process.terminate()
    median, share = statistics.median(errors), sum(in_range) / len(in_range)
    sys.stdout.write(f"median error {median:.1%}; {sum(in_range)} of {len(in_range)} in range\n")
    return 0 if median < MEDIAN_ERROR and share >= IN_RANGE else 1


if __name__ == "__main__":
    if sys.argv[1:]:
        kind, name, cpu_ms, port, more = sys.argv[1:]
        given = Work(name, float(cpu_ms), int(port))
        if kind == "train":
            train(given, int(more))
        else:
            record(given, more)
    else:
        argparse.ArgumentParser(description=__doc__).parse_args()
        raise SystemExit(main())
