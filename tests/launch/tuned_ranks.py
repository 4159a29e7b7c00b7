"""Trains on each rank that torchrun starts: `tuned_ranks.py FOLDER`; knows no loadeval.

Each rank writes the samples of each batch, and how many workers the loader had that loaded it.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, get_worker_info

SAMPLES, EPOCHS = 2 * 4 * 200, 3


class Slow(Dataset[torch.Tensor]):
    """A sample takes 5 ms; it is its number, and how many workers its loader has."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.005)
        worker: Any = get_worker_info()
        return torch.tensor([float(index), 0.0 if worker is None else worker.num_workers])


def main() -> None:
    """Train, and write what this rank saw."""
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = DistributedDataParallel(torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    sampler: DistributedSampler[Any] = DistributedSampler(Slow())
    loader = DataLoader(Slow(), batch_size=4, sampler=sampler, num_workers=1)
    seen = []
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for batch in loader:
            model(batch).mean().backward()
            optimizer.step()
            time.sleep(0.003)
            samples, (workers, *_) = batch.int().T.tolist()
            seen.append({"samples": samples, "workers": workers})
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    (folder / f"rank{rank}.json").write_text(json.dumps(seen), encoding="utf-8")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
