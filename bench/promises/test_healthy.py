"""Trainings whose loader keeps up, of ten kinds: there is nothing to do.

They sleep, for far longer than a slow machine could blur.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from bench.judge import compared
from bench.zoo.costs import MS, Pause
from bench.zoo.outside import sleeping
from bench.zoo.programs import Samples, Stream, Training

COUNT = 240
STEP_MS = 15.0
OF_OTHERS = {"shared machine", "oversubscription"}
"""What other programs do on this machine is true of it."""


def made(ms: float, sample: Any) -> Samples:
    """The same sample again and again, which takes so long."""
    return Samples(lambda _: time.sleep(ms * MS) or sample, COUNT)


def rows() -> Samples:
    """Rows of a file that is mapped."""
    with tempfile.NamedTemporaryFile() as file:
        np.save(file, np.ones((COUNT, 1000), np.float32))
        table = np.load(file.name, mmap_mode="r")
    return Samples(lambda index: torch.from_numpy(table[index].copy()), COUNT)


def padded(samples: list[Any]) -> dict[str, Any]:
    tokens = torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)
    return {"input_ids": tokens, "attention_mask": (tokens > 0).long()}


HEALTHY: dict[str, Callable[[], Training]] = {
    "two workers that keep up": lambda: served(sleeping(COUNT, 8), num_workers=2),
    "tensors in memory, without workers": lambda: served(TensorDataset(torch.ones(COUNT, 8))),
    "a stream": lambda: served(Stream(sleeping(COUNT, 5).read, COUNT), num_workers=2),
    "short epochs and workers that stay": lambda: served(
        sleeping(COUNT // 4, 2), epochs=4, num_workers=1, persistent_workers=True
    ),
    "a dictionary of tensors": lambda: served(
        made(3, {"x": torch.ones(64, 64), "y": torch.ones(1)}), num_workers=1
    ),
    "arrays": lambda: served(made(3, np.ones((3, 32, 32))), num_workers=1, batch_size=None),
    "texts that are padded": lambda: served(
        Samples(lambda index: torch.ones(100 + index % 7, dtype=torch.long), 8 * COUNT),
        num_workers=1,
        batch_size=8,
        collate_fn=padded,
    ),
    "a list": lambda: Training([np.ones(10)] * COUNT, Pause(STEP_MS)),
    "rows of a mapped file": lambda: served(rows(), num_workers=1, shuffle=True),
    "samples that differ": lambda: served(
        sleeping(COUNT, lambda index: 2 + index % 9), num_workers=3, prefetch_factor=4
    ),
}


def served(dataset: Any, epochs: int = 1, **options: Any) -> Training:
    return Training(DataLoader(dataset, **options), Pause(STEP_MS), epochs)


@pytest.mark.parametrize("kind", HEALTHY)
@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
def test_there_is_nothing_to_do(kind: str, tmp_path: Path) -> None:
    actions = compared(HEALTHY[kind]().logged(tmp_path / "run.jsonl")).actions
    assert [each.says for each in actions if not OF_OTHERS.issuperset(each.findings)] == []
