"""Trains on two workers of Ray Train, with validation: `ray_train.py LOSSES`. Knows no loadeval."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import ray
import ray.train.torch
import torch
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SAMPLES, BATCH_SIZE, EPOCHS = 960, 8, 2


def train(config: dict[str, Any]) -> None:
    """Train and validate on a worker, and write the loss of each step."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dataset = TensorDataset(torch.randn(SAMPLES, 4), torch.randn(SAMPLES, 1))
    loader, held = (
        ray.train.torch.prepare_data_loader(DataLoader(dataset, size, shuffle=size == BATCH_SIZE))
        for size in (BATCH_SIZE, 4 * BATCH_SIZE)
    )
    model = ray.train.torch.prepare_model(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for epoch in range(EPOCHS):
        loader.sampler.set_epoch(epoch)  # type: ignore[attr-defined]  # Ray's is distributed
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), targets)
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it so
            optimizer.step()
            losses.append(loss.item())
        with torch.no_grad():
            for inputs, targets in held:
                losses.append(nn.functional.mse_loss(model(inputs), targets).item())
    rank = ray.train.get_context().get_world_rank()
    path = Path(config["losses"]) / f"rank{rank}.txt"
    path.write_text("\n".join(map(repr, losses)), encoding="utf-8")


def main() -> None:
    """Start Ray here, and train."""
    (folder,) = sys.argv[1:]
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    TorchTrainer(
        train,
        train_loop_config={"losses": folder},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=str(Path(folder).with_name("ray"))),
    ).fit()


if __name__ == "__main__":
    main()
