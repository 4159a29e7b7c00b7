"""Three ranks of a job, of which rank 1 loads more slowly, under torchrun."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader

from bench.zoo.outside import sleeping

LOAD_MS, SLOWER_MS = 6.0, 16.0
BATCHES, EPOCHS = 100, 2


def main() -> None:
    """Train, each step with the mean of all gradients."""
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    ms = SLOWER_MS if dist.get_rank() == 1 else LOAD_MS
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    loader = DataLoader(sleeping(BATCHES, ms), batch_size=1, num_workers=1)
    for _ in range(EPOCHS):
        for batch in loader:
            optimizer.zero_grad()
            model(batch.float()).sum().backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
            optimizer.step()
    dist.barrier()


if __name__ == "__main__":
    main()
