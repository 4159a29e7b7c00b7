"""A training that resumes behind its 80th batch: it loads and skips those before.

With `--by-indices` it skips what its sampler says of them, and loads none.
"""

from __future__ import annotations

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader

from bench.zoo.costs import Pause
from bench.zoo.outside import sleeping

FIRST, BATCHES = 80, 160


def main() -> None:
    torch.set_num_threads(1)
    begin = FIRST if "--by-indices" in sys.argv else 0
    model, step = nn.Linear(1, 1), Pause(12)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    loader = DataLoader(sleeping(BATCHES, 20), sampler=range(begin, BATCHES), num_workers=2)
    for number, batch in enumerate(loader, begin):
        if number < FIRST:
            continue
        optimizer.zero_grad()
        model(batch.float()).sum().backward()
        optimizer.step()
        step(batch)


if __name__ == "__main__":
    main()
