"""The training that the planted programs have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.utils.data import Dataset

if TYPE_CHECKING:
    from collections.abc import Iterable

SAMPLES = 64


class Numbers(Dataset[torch.Tensor]):
    """Reads samples as quickly as can be; a hang is planted in a subclass."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((8,), float(index))


def train(batches: Iterable[torch.Tensor]) -> None:
    """Make a step for each batch."""
    torch.set_num_threads(1)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for batch in batches:
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
