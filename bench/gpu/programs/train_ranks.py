"""Trains on each rank that torchrun starts, all of them on one device."""

from __future__ import annotations

import argparse
import atexit
import os
from typing import Any

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from bench.gpu.programs.reproducible import seeded, show


def train(epochs: int) -> None:
    """Train on this rank's part of the data."""
    seeded()
    data = TensorDataset(torch.randn(640, 64), torch.randint(4, (640,)))
    sampler: DistributedSampler[Any] = DistributedSampler(data)
    loader: DataLoader[Any] = DataLoader(data, 8, sampler=sampler, num_workers=1, pin_memory=True)
    network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 4)).to("cuda")
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loss_of = nn.CrossEntropyLoss()
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            inputs, targets = inputs.to("cuda"), targets.to("cuda")
            optimizer.zero_grad()
            loss = loss_of(model(inputs), targets)
            loss.backward()
            optimizer.step()
            show(f"loss of rank {distributed.get_rank()}", loss)


def main() -> None:
    """Train with the backend given."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="nccl")
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    torch.cuda.set_device(0)
    distributed.init_process_group(options.backend)
    code = [1]
    # Gloo's threads sometimes abort a process that ends (torch 2.13): it ends before they see.
    atexit.register(lambda: os._exit(code[0]))
    train(options.epochs)
    code[0] = 0


if __name__ == "__main__":
    main()
