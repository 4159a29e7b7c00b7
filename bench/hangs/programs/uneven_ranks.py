"""Two ranks of a job: rank 1 has fewer batches, and rank 0 waits for it in a collective."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Subset

from bench.hangs.programs.training import Numbers

SHORTER = 20


def main() -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    numbers = Numbers()
    samples = range(len(numbers) if dist.get_rank() == 0 else SHORTER)
    for batch in DataLoader(Subset(numbers, samples), batch_size=2, num_workers=1):
        optimizer.zero_grad()
        model(batch).mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
    dist.monitored_barrier()


if __name__ == "__main__":
    main()
