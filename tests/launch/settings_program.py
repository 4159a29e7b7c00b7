"""A training whose loaders get arguments from the command line: an author's edit of them.

`settings_program.py KIND TRAINING VALIDATION`: the arguments as JSON. It prints each batch, with
random numbers of the samples' own, the warnings, and what the loop draws beside it.
"""

from __future__ import annotations

import json
import random
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

SAMPLES = 24


class Drawn(Dataset[Any]):
    """Samples with random numbers of three generators; the last may fail."""

    def __init__(self, samples: int = SAMPLES, *, fails: bool = False) -> None:
        self.samples, self.fails = samples, fails

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.fails and index == self.samples - 1:
            raise RuntimeError("a sample that cannot be read")
        return torch.tensor([index, random.random(), np.random.rand(), torch.rand(1).item()])  # noqa: NPY002 - what programs draw from


class Stream(IterableDataset[Any]):
    """Divides its samples among its workers."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        worker = get_worker_info()
        first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        for index in range(first, SAMPLES, step):
            yield torch.tensor([index, torch.rand(1).item()])


def show(message: Any, category: type[Warning], *_: Any, **__: Any) -> None:
    """Print a warning, whatever the line that it comes from."""
    print(category.__name__, message)


def main() -> None:
    """Train for two epochs, with validation after each."""
    kind, training, validation = sys.argv[1:]
    warnings.simplefilter("always")
    warnings.showwarning = show
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(3)
    dataset: Any = Stream() if kind == "stream" else Drawn(fails=kind == "failing")
    loader_class: Any = DataLoader
    if kind == "stateful":
        from torchdata.stateful_dataloader import StatefulDataLoader

        loader_class = StatefulDataLoader
    arguments = {"batch_size": 5, "shuffle": None if kind == "stream" else True}
    loader = loader_class(dataset, **{**arguments, **json.loads(training)})
    held = DataLoader(Drawn(8), 4, **json.loads(validation))
    for _ in range(2):
        for batch in loader:
            print(batch.tolist(), torch.rand(1).item(), random.random())
        with torch.no_grad():
            for batch in held:
                print("held", batch.tolist(), torch.rand(1).item())


if __name__ == "__main__":
    main()
