"""What all probes together cost the demo's training, as a share of throughput with its interval.

One training run with real loading, in pairs of blocks, one with probes and one without, in random
order, so that drift of the machine hits both equally. What is to be shown is less than the noise of
an hour of training, so everything is read DOSE times as often as by default, and the loss divided
by DOSE. The CPU time of the readings is told too: if all of it were taken from the training, the
loss would be no more than that.
"""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track

from loadeval import LoaderEvaluator
from loadeval.analysis.estimate.intervals import MeanTime, ratio
from loadeval.data.columns import UNKNOWN
from loadeval.demo.photographs import make_photographs
from loadeval.demo.run import DemoTraining
from loadeval.probes import host
from loadeval.probes.gpu import GPUProbe
from loadeval.runtime.settings import DEFAULT_PROBE_INTERVAL_S

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


PHOTOGRAPHS = 1024
BLOCK = 16
"""Batches: half an epoch. A pair is an epoch."""
WARMUP = 6
PAIRS = 100
DOSE = 10


class Timed:
    """A probe, and the CPU time that its readings take."""

    def __init__(self, probe: Any) -> None:
        self.name, self.every = probe.name, probe.every
        self.open, self.close = probe.open, probe.close
        self.probe = probe
        self.cpu_ns = 0

    def read(self) -> Mapping[str, Mapping[str, float | None] | str]:
        """What the probe reads."""
        began_ns = time.thread_time_ns()
        reading: Mapping[str, Mapping[str, float | None] | str] = self.probe.read()
        self.cpu_ns += time.thread_time_ns() - began_ns
        return reading


def often() -> list[Timed]:
    """All probes; what the host's reads now and then is read DOSE times as often too."""
    host.MOST_SHARE *= DOSE
    return [Timed(GPUProbe()), Timed(host.HostProbe(host.MEMORY_EVERY_S / DOSE))]


def switch_of(evaluator: LoaderEvaluator, on: list[bool]) -> Callable[[], None]:
    """What to call after each step: it starts or stops the readings when a block begins."""
    sampler: Any = evaluator._measurement.recorder._metrics
    start = sampler.start_when_due
    done = 0

    def after_step() -> None:
        nonlocal done
        if done % BLOCK == 0:
            wanted = on[done // BLOCK]
            sampler.start_when_due = start if wanted else sampler.stop
            sampler.start_when_due()
        done += 1

    return after_step


def trained(probes: list[Timed], on: list[bool]) -> Steps:
    """The demo's training over as many blocks as there are in `on`."""
    with tempfile.TemporaryDirectory() as folder:
        training = DemoTraining(make_photographs(Path(folder), PHOTOGRAPHS))
        with LoaderEvaluator(
            training.dataloader, probes=probes, probe_interval_s=DEFAULT_PROBE_INTERVAL_S / DOSE
        ) as evaluator:
            after_step = switch_of(evaluator, on)
            for _ in track(range(len(on) // 2), "DemoTraining", transient=True):
                training.train_one_epoch(evaluator, after_step)
            return evaluator.recorded().steps


def pace(steps: Steps, on: list[bool], wanted: bool) -> MeanTime:
    """The iterations of the blocks with probes, or without."""
    row = np.arange(len(steps))
    counts = (row % BLOCK >= WARMUP) & (steps.step_ns != UNKNOWN)
    counts &= np.array(on)[row // BLOCK] == wanted
    iteration_ns = (steps.wait_ns + steps.step_ns)[counts].astype(np.float64)
    return MeanTime(iteration_ns, np.ones(len(iteration_ns)), row[counts] // (2 * BLOCK))


def main() -> None:
    """Train, and print what the probes cost."""
    torch.set_num_threads(1)
    order = random.Random(0)
    on = [first for _ in range(PAIRS) for first in order.sample([True, False], 2)]
    probes = often()
    steps = trained(probes, on)
    without, with_probes = pace(steps, on, wanted=False), pace(steps, on, wanted=True)
    overhead = ratio(without, with_probes)
    elapsed_ns = (steps.wait_ns + steps.step_ns)[np.repeat(on, BLOCK)[: len(steps)]].sum()
    console = Console()
    low, high = overhead.low or 0, overhead.high or 0
    console.print(
        f"Throughput with all probes, {DOSE} times as often as by default, over that without: "
        f"{overhead.value:.4f} [{low:.4f}, {high:.4f}] (95% interval over {PAIRS} pairs)"
    )
    loss, least, most = ((1 - paces) / DOSE for paces in (overhead.value, high, low))
    console.print(f"As often as by default they cost {loss:.2%} [{least:.2%}, {most:.2%}]")
    for probe in probes:
        share = probe.cpu_ns / elapsed_ns / DOSE
        console.print(f"and for reading the {probe.name} {share:.3%} of the time of one CPU")


if __name__ == "__main__":
    main()
