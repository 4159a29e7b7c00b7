"""A training of three epochs, with validation after each; `--slow` makes that wait long.

Validation has no workers, and in the slow one its samples take as long as those of training. With
`--slow-with-worker` it has one, as training has, and is as slow.
"""

from __future__ import annotations

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader

from bench.zoo.costs import Pause
from bench.zoo.outside import sleeping


def main() -> None:
    torch.set_num_threads(1)
    model = nn.Linear(1, 1)
    step = Pause(8)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    training = DataLoader(sleeping(120, 14), batch_size=1, num_workers=1)
    samples = (40, 14) if "--slow" in sys.argv else (20, 3)
    has_worker = "--slow-with-worker" in sys.argv
    samples = (40, 14) if has_worker else samples
    validation = DataLoader(sleeping(*samples), batch_size=1, num_workers=int(has_worker))
    for _ in range(3):
        for batch in training:
            optimizer.zero_grad()
            model(batch.float()).sum().backward()
            optimizer.step()
            step(batch)
        model.eval()
        with torch.no_grad():
            for batch in validation:
                model(batch.float())
        model.train()


if __name__ == "__main__":
    main()
