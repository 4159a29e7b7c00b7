"""First workers bring what is promised, and none are promised where they harm: by the clock.

Graphs of many small tensors, in epochs so short that starting workers shows; samples and steps
sleep.
"""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.data import DataLoader

from bench.judge import compared
from bench.zoo.programs import Samples
from loadeval import LoaderEvaluator

if TYPE_CHECKING:
    from pathlib import Path

    from bench.judge import Said

pytestmark = [
    # Workers that sleep may be more than the CPUs.
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
]

EPOCHS, ROUNDS = 8, 3
STEP_S = 0.004
BLUR = 1.15
"""What plain loops may be off by, beside the range of the prediction."""


def graphs_of(tensors: int, reads_s: float) -> Samples:
    """Samples of some small tensors each, which take a while to read."""

    def read(index: int) -> list[torch.Tensor]:
        time.sleep(reads_s)
        return [torch.full((8,), float(index)) for _ in range(tensors)]

    return Samples(read, 96)


def said_of(graphs: Samples, log: Path) -> Said:
    """What is said of some epochs without workers."""
    plain = DataLoader(graphs, batch_size=4)
    with LoaderEvaluator(plain, mode="alternate", log_file=log) as loader:
        for _ in range(EPOCHS):
            for _ in loader:
                time.sleep(STEP_S)
    return compared(log)


def seconds(graphs: Samples, **settings: Any) -> float:
    """The time of plain epochs, the start and the end of the workers included."""
    began_s = time.perf_counter()
    loader = DataLoader(graphs, batch_size=4, **settings)
    for _ in range(EPOCHS):
        for _ in loader:
            time.sleep(STEP_S)
    del loader
    return time.perf_counter() - began_s


def speedup_with(graphs: Samples, **settings: Any) -> float:
    """The speed-up of plain epochs over those without workers."""
    return median(seconds(graphs) / seconds(graphs, **settings) for _ in range(ROUNDS))


def test_many_small_tensors_are_not_promised_to_gain(tmp_path: Path) -> None:
    """With a worker each epoch takes longer, whether it lives on or not."""
    graphs = graphs_of(tensors=64, reads_s=0.0005)
    findings = said_of(graphs, tmp_path / "run.jsonl").findings
    assert not any(finding.proposed("num_workers") for finding in findings)
    assert speedup_with(graphs, num_workers=1) < 1
    assert speedup_with(graphs, num_workers=1, persistent_workers=True) < 1


def test_samples_that_take_long_gain_what_is_promised(tmp_path: Path) -> None:
    """With the workers that are advised, which live on: over whole epochs."""
    graphs = graphs_of(tensors=2, reads_s=0.004)
    said = said_of(graphs, tmp_path / "run.jsonl")
    settings = {
        str(each.setting): each.proposed for each in said.finding("zero workers").do if each.setting
    }
    assert settings.keys() == {"num_workers", "persistent_workers"}
    speedup = speedup_with(graphs, **settings)
    first = said.actions[0]
    assert first.setting == "num_workers"
    assert first.speedup is not None
    low, high = first.speedup.bounds
    assert low / BLUR <= speedup <= high * BLUR, (first, speedup)
