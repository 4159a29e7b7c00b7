"""Trains a small network with Accelerate, in bfloat16, with gradients of two batches."""

from __future__ import annotations

import argparse

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from bench.gpu.programs.reproducible import seeded, show, show_parameters


def main() -> None:
    """Train and validate."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    seeded()
    accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2)
    training = TensorDataset(torch.randn(640, 64), torch.randint(4, (640,)))
    held = TensorDataset(torch.randn(64, 64), torch.randint(4, (64,)))
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Dropout(0.1), nn.Linear(128, 4))
    model, optimizer, loader, validation = accelerator.prepare(
        model,
        torch.optim.AdamW(model.parameters(), lr=1e-3),
        DataLoader(training, 16, shuffle=True, num_workers=1, pin_memory=True),
        DataLoader(held, 32),
    )
    loss_of = nn.CrossEntropyLoss()
    for _ in range(options.epochs):
        model.train()
        for inputs, targets in loader:
            with accelerator.accumulate(model):
                loss = loss_of(model(inputs), targets)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            show("loss", loss)
        model.eval()
        with torch.no_grad():
            for inputs, targets in validation:
                show("validation", loss_of(model(inputs), targets))
    show_parameters(model)


if __name__ == "__main__":
    main()
