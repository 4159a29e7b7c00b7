"""What the programs share: samples that take a while, and what they print."""

from __future__ import annotations

import hashlib
import time
from typing import Any

import torch
from torch.utils.data import Dataset

SAMPLE_S = 0.002
"""How long loading takes for each sample: so long that the verdict is clear beside other work."""


def begin() -> None:
    """Make what follows the same each time."""
    torch.manual_seed(0)
    torch.set_num_threads(1)


class Slow(Dataset[Any]):
    """The samples of another dataset, each after a while."""

    def __init__(self, samples: Any) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        time.sleep(SAMPLE_S)
        return self.samples[index]


def show(name: str, *values: Any) -> None:
    """Print these numbers with all their digits."""
    print(name, *(repr(float(value)) for value in values))


def show_parameters(model: torch.nn.Module) -> None:
    """Print what tells whether the parameters of a trained model are the same, to the bit."""
    digest = hashlib.sha256()
    for name, value in model.state_dict().items():
        digest.update(name.encode() + value.detach().contiguous().numpy().tobytes())
    print("parameters", digest.hexdigest())
