"""Trainings whose loader keeps up, of ten kinds: there is nothing to do.

They sleep, for far longer than a slow machine could blur.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from bench.judge import compared
from bench.zoo.costs import MS, Pause
from bench.zoo.programs import Samples, Stream, Training
from loadeval import LoaderEvaluator

COUNT = 240
STEP_MS = 15.0
OF_OTHERS = {"shared machine", "oversubscription"}
"""What other programs do on this machine is true of it."""


def taking(ms: float, sample: Any = None) -> Callable[[int], Any]:
    """A sample that takes so long, and is its number unless one is given."""

    def read(index: int) -> Any:
        time.sleep(ms * MS)
        return torch.tensor([index]) if sample is None else sample

    return read


def rows() -> Samples:
    """Rows of a file that is mapped."""
    with tempfile.NamedTemporaryFile() as file:
        np.save(file, np.ones((COUNT, 1000), np.float32))
        table = np.load(file.name, mmap_mode="r")
    return Samples(lambda index: torch.from_numpy(table[index].copy()), COUNT)


def generated() -> Iterator[Any]:
    for _ in range(COUNT):
        yield np.ones(10)


def padded(samples: list[Any]) -> dict[str, Any]:
    tokens = torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)
    return {"input_ids": tokens, "attention_mask": (tokens > 0).long()}


def texts() -> Samples:
    return Samples(lambda index: torch.ones(100 + index % 7, dtype=torch.long), 8 * COUNT)


def uneven(index: int) -> torch.Tensor:
    time.sleep((2 + index % 9) * MS)
    return torch.tensor([index])


HEALTHY: dict[str, Callable[[], Training]] = {
    "two workers that keep up": lambda: served(Samples(taking(8), COUNT), num_workers=2),
    "tensors in memory, without workers": lambda: served(TensorDataset(torch.ones(COUNT, 8))),
    "a stream": lambda: served(Stream(taking(5), COUNT), num_workers=2),
    "short epochs and workers that stay": lambda: served(
        Samples(taking(2), COUNT // 4), epochs=4, num_workers=1, persistent_workers=True
    ),
    "a dictionary of tensors": lambda: served(
        Samples(taking(3, {"x": torch.ones(64, 64), "y": torch.ones(1)}), COUNT), num_workers=1
    ),
    "arrays": lambda: served(
        Samples(taking(3, np.ones((3, 32, 32))), COUNT), num_workers=1, batch_size=None
    ),
    "texts that are padded": lambda: served(
        texts(), num_workers=1, batch_size=8, collate_fn=padded
    ),
    "a generator": lambda: Training(list(generated()), Pause(STEP_MS)),
    "rows of a mapped file": lambda: served(rows(), num_workers=1, shuffle=True),
    "samples that differ": lambda: served(Samples(uneven, COUNT), num_workers=3, prefetch_factor=4),
}


def served(dataset: Any, epochs: int = 1, **options: Any) -> Training:
    return Training(DataLoader(dataset, **options), Pause(STEP_MS), epochs)


@pytest.mark.parametrize("kind", HEALTHY)
@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
def test_there_is_nothing_to_do(kind: str, tmp_path: Path) -> None:
    training, log = HEALTHY[kind](), tmp_path / "run.jsonl"
    with LoaderEvaluator(training.loader, mode="alternate", log_file=log) as loader:
        training.run(loader)
    actions = compared(log).actions
    assert [each.says for each in actions if not OF_OTHERS.issuperset(each.findings)] == []
