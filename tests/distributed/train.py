"""Two ranks train together with an alternating loader; each writes what it saw."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
from torch import nn
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from loadeval import LoaderEvaluator

EPOCHS = 2


def main() -> None:
    """Train, and leave schedule and parameters in the folder given."""
    init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rank = os.environ["RANK"]
    data = TensorDataset(torch.randn(480, 4), torch.randn(480, 1))
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(data)
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = LoaderEvaluator(
        DataLoader(data, batch_size=4, sampler=sampler, num_workers=1),
        mode="alternate",
    )
    for epoch in range(EPOCHS):
        loader.sampler.set_epoch(epoch)
        for inputs, targets in loader:
            optimiser.zero_grad()
            nn.functional.mse_loss(model(inputs), targets).backward()  # type: ignore[no-untyped-call]  # torch leaves it so
            optimiser.step()
    run = loader.recorded()
    seen = {
        "arms": run.steps.arm.tolist(),
        "pairs": run.steps.pair.tolist(),
        "parameters": [parameter.tolist() for parameter in model.parameters()],
    }
    (Path(sys.argv[1]) / f"rank{rank}.json").write_text(json.dumps(seen), encoding="utf-8")
    destroy_process_group()


if __name__ == "__main__":
    main()
