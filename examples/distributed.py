"""Training on several ranks: each measures its own loader, and rank 0 prints all results.

    torchrun --nproc-per-node 2 examples/distributed.py FOLDER
    python examples/distributed.py FOLDER

The second trains in one process. Every rank wraps its loader with the same seed, so that all
switch between real and ideal blocks at the same batch. Each writes its own run log to FOLDER,
rank0.jsonl and so on. Uses Gloo on CPUs, NCCL if each process has a GPU. Takes about ten seconds.
Needs torch.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from loadeval import LoaderEvaluator

RANK = int(os.environ.get("RANK", "0"))
RANKS = int(os.environ.get("WORLD_SIZE", "1"))


class Signals(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Generated signals; smoothing them several times is the costly transform."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        signal = torch.randn(1, 1, 4096, generator=torch.Generator().manual_seed(index))
        for _ in range(20):
            signal = nn.functional.avg_pool1d(signal, kernel_size=9, stride=1, padding=4)
        return signal.flatten(), signal.std().unsqueeze(0)


def train(loader: LoaderEvaluator, epochs: int, device: torch.device) -> None:
    """The same loop as on one process, plus `set_epoch`, which reaches the wrapped loader."""
    network = nn.Sequential(nn.Linear(4096, 256), nn.ReLU(), nn.Linear(256, 1)).to(device)
    model: nn.Module = DistributedDataParallel(network) if RANKS > 1 else network
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(epochs):
        loader.sampler.set_epoch(epoch)
        for batch in loader:
            signals, spreads = (tensor.to(device) for tensor in batch)
            loss = nn.functional.mse_loss(model(signals), spreads)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it so
            optimiser.step()


def gathered(line: str) -> list[str]:
    """The result of each rank."""
    everyone: list[Any] = [line] * RANKS
    if RANKS > 1:
        distributed.all_gather_object(everyone, line)
    return everyone


def main() -> None:
    """Train on each rank; rank 0 prints all results."""
    parser = argparse.ArgumentParser(description="Measure the loader of each rank.")
    parser.add_argument("folder", type=Path, help="folder for the run log of each rank")
    parser.add_argument("--samples", type=int, default=2560, help="samples over all ranks")
    parser.add_argument("--epochs", type=int, default=4)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)

    torch.set_num_threads(1)  # the ranks share the machine
    device = torch.device("cpu")
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if local_rank < torch.cuda.device_count():
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)
    if RANKS > 1:
        distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    dataset = Signals(options.samples)
    sampler: DistributedSampler[Any] = DistributedSampler(dataset, RANKS, RANK)
    with LoaderEvaluator(
        DataLoader(dataset, batch_size=16, sampler=sampler),
        mode="alternate",
        log_file=options.folder / f"rank{RANK}.jsonl",
        overwrite=True,
    ) as loader:
        train(loader, options.epochs, device)
    results = gathered(f"rank {RANK}: {loader.headroom()}")
    if RANK == 0:
        print("\n".join(results))
    if RANKS > 1:
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
