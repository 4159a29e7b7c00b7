"""What `loadeval attach` costs the training that it looks at: throughput with it and without.

One training goes on; in turns it is looked at for 20 s, and left alone for as long. Its workers
sleep, or compute so that every CPU is busy, which is where it costs most. Each pair gives a ratio.
The command's start, mostly imports, comes before a turn: its CPU time is in a column of its own.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
import torch
from scipy.stats import t as student  # type: ignore[import-untyped]  # it ships no types
from torch.utils.data import DataLoader, Dataset

PAIRS, SECONDS = 6, 20
STEP_S, LOAD_S = 0.004, 0.008
COMMAND = """
from importlib.metadata import entry_points

(command,) = entry_points(group="console_scripts", name="loadeval")
run = command.load()
print("ready", flush=True)
input()
run()
"""
"""The command, which looks once it is told to: what it imports until then does not count."""
MOST = 0.01
"""Of the throughput so much may be lost; it is missed where the whole interval says so."""


class Work(Dataset[torch.Tensor]):
    """Samples that take a worker `LOAD_S`, on a CPU or asleep."""

    def __init__(self, *, computes: bool) -> None:
        self.computes = computes

    def __len__(self) -> int:
        return 10**9

    def __getitem__(self, index: int) -> torch.Tensor:
        work(LOAD_S, computes=self.computes)
        return torch.zeros(16)


def work(seconds: float, *, computes: bool) -> None:
    """As much CPU time as `seconds`, or sleep."""
    if not computes:
        time.sleep(seconds)
        return
    until_s = time.thread_time() + seconds
    while time.thread_time() < until_s:
        np.sort(np.arange(500)[::-1])


def train(path: Path, *, computes: bool) -> None:
    """Train until killed, and count batches in a file."""
    torch.set_num_threads(1)
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    loader: DataLoader[Any] = DataLoader(
        Work(computes=computes), batch_size=None, num_workers=os.cpu_count() or 1
    )
    for count, _ in enumerate(loader, 1):
        work(STEP_S, computes=computes)
        os.pwrite(file, f"{count:20d}".encode(), 0)


class Turn(NamedTuple):
    """The batches of a second in one turn; the CPUs that looking took, and the start before it."""

    rate: float
    cpus: float = 0.0
    start_s: float = 0.0


def alone(counts: Path, seconds: float) -> Turn:
    """Leave it alone for some seconds."""
    before, began_s = int(counts.read_text()), time.monotonic()
    time.sleep(seconds)
    return Turn((int(counts.read_text()) - before) / (time.monotonic() - began_s))


def looked_at(pid: int, counts: Path, seconds: float) -> Turn:
    """Look at it for as long."""
    arguments = ["attach", str(pid), "--seconds", str(seconds), "--json"]
    command = [sys.executable, "-c", COMMAND, *arguments]
    used_s = _children_s()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        times = psutil.Process(process.pid).cpu_times()
        start_s = times.user + times.system
        before, began_s = int(counts.read_text()), time.monotonic()
        process.communicate(b"\n")
        took_s = time.monotonic() - began_s
        after = int(counts.read_text())
    cpus = (_children_s() - used_s - start_s) / took_s
    return Turn((after - before) / took_s, cpus, start_s)


def _children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--train", nargs=2)
    given = parser.parse_args()
    if given.train:
        train(Path(given.train[0]), computes=given.train[1] == "compute")
        return
    print("| workers and step | alone | looked at | ratio [95% CI] | CPUs of looking | start |")
    print("|---|---|---|---|---|---|")
    for kind in ("sleep", "compute"):
        with tempfile.TemporaryDirectory() as folder:
            counts = Path(folder) / "counts"
            command = [sys.executable, __file__, "--train", str(counts), kind]
            with subprocess.Popen(command) as training:
                while not (counts.exists() and counts.read_text().strip()):
                    time.sleep(0.1)
                time.sleep(5)
                print(row(kind, measured(training.pid, counts, given)), flush=True)
                training.send_signal(signal.SIGKILL)


def measured(pid: int, counts: Path, given: argparse.Namespace) -> list[tuple[Turn, Turn]]:
    """Pairs of turns, alone and looked at, each the other way round than the one before."""
    turns = []
    for number in range(given.pairs):
        first = alone(counts, given.seconds) if number % 2 else None
        look = looked_at(pid, counts, given.seconds)
        turns.append((first or alone(counts, given.seconds), look))
    return turns


def row(kind: str, turns: list[tuple[Turn, Turn]]) -> str:
    """A line of the table."""
    rates = np.array([[turn.rate for turn in pair] for pair in turns])
    ratios = rates[:, 1] / rates[:, 0]
    mean = float(ratios.mean())
    half = float(student.ppf(0.975, len(turns) - 1)) * float(ratios.std(ddof=1)) / len(turns) ** 0.5
    cpus, start_s = (
        float(np.mean([getattr(look, name) for _, look in turns])) for name in ("cpus", "start_s")
    )
    missed = " **missed**" * (mean + half < 1 - MOST)
    return (
        f"| {kind} | {rates[:, 0].mean():.1f}/s | {rates[:, 1].mean():.1f}/s | "
        f"{mean:.3f} [{mean - half:.3f}, {mean + half:.3f}]{missed} | "
        f"{cpus:.3f} | {start_s:.1f} s |"
    )


if __name__ == "__main__":
    main()
