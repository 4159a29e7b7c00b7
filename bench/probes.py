"""What all probes together cost the demo's training, as a share of throughput with its interval.

One training run with real loading, in pairs of blocks, one with probes and one without, in random
order, so that drift of the machine hits both equally. What is to be shown is less than the noise of
an hour of training, so everything is read DOSE times as often as by default, and the loss divided
by DOSE. The CPU time of the readings is told too: if all of it were taken from the training, the
loss would be no more than that.
"""

from __future__ import annotations

import argparse
import inspect
import random
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from scipy.stats import t as student  # type: ignore[import-untyped]  # it ships no types

from bench.judge import column
from loadeval import LoaderEvaluator
from loadeval.demo.photographs import make_photographs
from loadeval.demo.run import DemoTraining

# No public setting lets a probe read more often than it thinks right.
from loadeval.probes import host
from loadeval.probes.gpu import GPUProbe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy.typing as npt

PHOTOGRAPHS = 1024
BLOCK = 16
"""Batches: half an epoch. A pair is an epoch."""
WARMUP = 6
PAIRS = 100
DOSE = 10
INTERVAL_S: float = inspect.signature(LoaderEvaluator).parameters["probe_interval_s"].default


class Timed:
    """A probe that reads while it `is_on`, and the CPU time that its readings take."""

    def __init__(self, probe: Any) -> None:
        self.name, self.every = probe.name, probe.every
        self.open, self.close = probe.open, probe.close
        self.probe = probe
        self.cpu_ns = 0
        self.is_on = True

    def read(self) -> Mapping[str, Mapping[str, float | None] | str]:
        """What the probe reads."""
        if not self.is_on:
            return {}
        began_ns = time.thread_time_ns()
        reading: Mapping[str, Mapping[str, float | None] | str] = self.probe.read()
        self.cpu_ns += time.thread_time_ns() - began_ns
        return reading


def often() -> list[Timed]:
    """All probes; what the host's reads now and then is read DOSE times as often too."""
    host.MOST_SHARE *= DOSE
    return [Timed(GPUProbe()), Timed(host.HostProbe(host.MEMORY_EVERY_S / DOSE))]


def switch_of(probes: list[Timed], on: list[bool]) -> Callable[[], None]:
    """What to call after each step: it turns the probes on or off when a block begins."""
    done = 0

    def after_step() -> None:
        nonlocal done
        if done % BLOCK == 0:
            for probe in probes:
                probe.is_on = on[done // BLOCK]
        done += 1

    return after_step


def trained(probes: list[Timed], on: list[bool]) -> npt.NDArray[np.float64]:
    """The iterations of the demo's training over as many blocks as there are in `on`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = folder / "run.jsonl"
        training = DemoTraining(make_photographs(folder, PHOTOGRAPHS), num_workers=2)
        with LoaderEvaluator(
            training.dataloader, probes=probes, probe_interval_s=INTERVAL_S / DOSE, log_file=log
        ) as evaluator:
            after_step = switch_of(probes, on)
            for _ in track(range(len(on) // 2), "DemoTraining", transient=True):
                training.train_one_epoch(evaluator, after_step)
        return column(log, "wait_ns") + column(log, "step_ns")


def ratio_of(iteration_ns: npt.NDArray[np.float64], on: list[bool]) -> tuple[float, float, float]:
    """Throughput with probes over that without: the mean of the pairs, and its 95% interval."""
    blocks = np.nanmean(iteration_ns.reshape(-1, BLOCK)[:, WARMUP:], axis=1).reshape(-1, 2)
    first_on = np.array(on)[::2]
    ratios = np.where(first_on, blocks[:, 1] / blocks[:, 0], blocks[:, 0] / blocks[:, 1])
    mean, count = float(ratios.mean()), len(ratios)
    half = float(student.ppf(0.975, count - 1) * ratios.std(ddof=1) / np.sqrt(count))
    return mean, mean - half, mean + half


def main() -> None:
    """Train, and print what the probes cost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    pairs = parser.parse_args().pairs
    torch.set_num_threads(1)
    order = random.Random(0)
    on = [first for _ in range(pairs) for first in order.sample([True, False], 2)]
    probes = often()
    iteration_ns = trained(probes, on)
    value, low, high = ratio_of(iteration_ns, on)
    elapsed_ns = np.nansum(iteration_ns[np.repeat(on, BLOCK)])
    console = Console()
    console.print(
        f"Throughput with all probes, {DOSE} times as often as by default, over that without: "
        f"{value:.4f} [{low:.4f}, {high:.4f}] (95% interval over {pairs} pairs)"
    )
    loss, least, most = ((1 - paces) / DOSE for paces in (value, high, low))
    console.print(f"As often as by default they cost {loss:.2%} [{least:.2%}, {most:.2%}]")
    for probe in probes:
        share = probe.cpu_ns / elapsed_ns / DOSE
        console.print(f"and for reading the {probe.name} {share:.3%} of the time of one CPU")


if __name__ == "__main__":
    main()
