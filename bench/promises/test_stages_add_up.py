"""The stages of a DataLoader add up to what the loader alone takes for a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Sampler

from bench.judge import compared
from bench.zoo.costs import hashes
from bench.zoo.programs import Samples, Stream
from loadeval import LoaderEvaluator

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),  # more workers than CPUs
]

BATCHES, SIZE = 96, 4
WITHIN = 0.1
WORK = 60
"""Hashes, half a millisecond on a fast core."""


def worked(index: int) -> torch.Tensor:
    """Work for each, and a small tensor."""
    hashes(WORK)
    return torch.full((16,), float(index))


def uneven(index: int) -> torch.Tensor:
    """One in fifty takes twenty times as long."""
    hashes(0 if index % 50 else 20 * WORK)
    return worked(index)


class SlowSampler(Sampler[int]):
    """Works for each index."""

    def __iter__(self) -> Iterator[int]:
        for index in range(BATCHES * SIZE):
            hashes(WORK)
            yield index

    def __len__(self) -> int:
        return BATCHES * SIZE


def large_arrays(samples: list[torch.Tensor]) -> Any:
    return np.zeros((len(samples), 500_000), dtype=np.float32)


def many_tensors(samples: list[torch.Tensor]) -> Any:
    return {str(number): torch.stack(samples) for number in range(20)}


def slow_collate(samples: list[torch.Tensor]) -> Any:
    hashes(400)
    return torch.stack(samples)


SAMPLES = Samples(worked, BATCHES * SIZE)
STREAM = Stream(worked, BATCHES * SIZE)
UNEVEN = Samples(uneven, BATCHES * SIZE)
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "no workers": (SAMPLES, {}),
    "a stream without workers": (STREAM, {}),
    "one worker": (SAMPLES, {"num_workers": 1}),
    "two workers": (SAMPLES, {"num_workers": 2}),
    "three workers that stay": (SAMPLES, {"num_workers": 3, "persistent_workers": True}),
    "a stream": (STREAM, {"num_workers": 2}),
    "uneven samples": (UNEVEN, {"num_workers": 2}),
    "uneven samples out of order": (UNEVEN, {"num_workers": 2, "in_order": False}),
    "arrays through the pipe": (SAMPLES, {"num_workers": 2, "collate_fn": large_arrays}),
    "many tensors": (SAMPLES, {"num_workers": 2, "collate_fn": many_tensors}),
    "a slow collate": (SAMPLES, {"num_workers": 2, "collate_fn": slow_collate}),
    "a slow sampler": (SAMPLES, {"num_workers": 2, "sampler": SlowSampler()}),
}


@pytest.mark.parametrize("case", CASES)
def test_the_stages_add_up_to_the_loader_alone(case: str, tmp_path: Path) -> None:
    """Within a tenth; the rest is told as not attributed."""
    dataset, options = CASES[case]
    loader = DataLoader(dataset, batch_size=SIZE, **options)
    log = tmp_path / "run.jsonl"
    with LoaderEvaluator(loader, mode="alternate", probes=(), log_file=log) as evaluator:
        for _ in range(3):
            for _ in evaluator:
                hashes(100)
    said = compared(log)
    stages = said.stages
    assert stages is not None
    assert stages.basis == "loader alone"
    assert stages.charged_ns + stages.not_attributed_ns == pytest.approx(stages.total_ns)
    assert stages.charged_ns == pytest.approx(said.loader_only_ns, rel=WITHIN)
