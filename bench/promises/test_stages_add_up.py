"""The stages of a DataLoader add up to what the loader alone takes for a batch."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler

from bench.judge import compared
from loadeval import LoaderEvaluator

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),  # more workers than CPUs
]

BATCHES, SIZE = 96, 4
WITHIN = 0.1
BLOCK = bytes(16 * 1024)


def work(rounds: int = 60) -> None:
    """Half a millisecond of computing, on a fast core."""
    for _ in range(rounds):
        hashlib.sha256(BLOCK).digest()


class Samples(Dataset[Any]):
    """Work for each, and a small tensor."""

    def __len__(self) -> int:
        return BATCHES * SIZE

    def __getitem__(self, index: int) -> torch.Tensor:
        work()
        return torch.full((16,), float(index))


class Stream(IterableDataset[Any]):
    """The same as a stream, the same in each worker."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        samples = Samples()
        yield from (samples[index] for index in range(BATCHES * SIZE // 2))


class Uneven(Samples):
    """One in fifty takes twenty times as long."""

    def __getitem__(self, index: int) -> torch.Tensor:
        if index % 50 == 0:
            work(1200)
        return super().__getitem__(index)


class SlowSampler(Sampler[int]):
    """Works for each index."""

    def __iter__(self) -> Iterator[int]:
        for index in range(BATCHES * SIZE):
            work()
            yield index

    def __len__(self) -> int:
        return BATCHES * SIZE


def large_arrays(samples: list[torch.Tensor]) -> Any:
    return np.zeros((len(samples), 500_000), dtype=np.float32)


def many_tensors(samples: list[torch.Tensor]) -> Any:
    return {str(number): torch.stack(samples) for number in range(20)}


def slow_collate(samples: list[torch.Tensor]) -> Any:
    work(400)
    return torch.stack(samples)


CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "no workers": (Samples, {}),
    "a stream without workers": (Stream, {}),
    "one worker": (Samples, {"num_workers": 1}),
    "two workers": (Samples, {"num_workers": 2}),
    "three workers that stay": (Samples, {"num_workers": 3, "persistent_workers": True}),
    "a stream": (Stream, {"num_workers": 2}),
    "uneven samples": (Uneven, {"num_workers": 2}),
    "uneven samples out of order": (Uneven, {"num_workers": 2, "in_order": False}),
    "arrays through the pipe": (Samples, {"num_workers": 2, "collate_fn": large_arrays}),
    "many tensors": (Samples, {"num_workers": 2, "collate_fn": many_tensors}),
    "a slow collate": (Samples, {"num_workers": 2, "collate_fn": slow_collate}),
    "a slow sampler": (Samples, {"num_workers": 2, "sampler": SlowSampler()}),
}


@pytest.mark.parametrize("case", CASES)
def test_the_stages_add_up_to_the_loader_alone(case: str, tmp_path: Path) -> None:
    """Within a tenth; the rest is told as not attributed."""
    dataset, options = CASES[case]
    loader = DataLoader(dataset(), batch_size=SIZE, **options)
    log = tmp_path / "run.jsonl"
    with LoaderEvaluator(loader, mode="alternate", probes=(), log_file=log) as evaluator:
        for _ in range(3):
            for _ in evaluator:
                work(100)
    said = compared(log)
    stages = said.stages
    assert stages is not None
    assert stages.basis == "loader alone"
    assert stages.charged_ns + stages.not_attributed_ns == pytest.approx(stages.total_ns)
    assert stages.charged_ns == pytest.approx(said.loader_only_ns, rel=WITHIN)
