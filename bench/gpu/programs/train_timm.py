"""Trains a small vision transformer of timm's from timm's loader, which copies to the device."""

from __future__ import annotations

import argparse
from pathlib import Path

import timm
import timm.data
import timm.optim
import torch
from torch import nn

from bench.gpu.programs.reproducible import seeded, show, show_parameters

SIZE, CLASSES = 32, 4


def main() -> None:
    """Train and validate."""
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    seeded()
    device = torch.device("cuda")
    timm.layers.set_fused_attn(False)  # the fused one is not the same each time
    model = timm.create_model("test_vit", num_classes=CLASSES, img_size=SIZE).to(device)
    training, held = (
        timm.data.create_loader(
            timm.data.create_dataset("", str(options.data / part)),
            input_size=(3, SIZE, SIZE),
            batch_size=8,
            is_training=part == "train",
            num_workers=2,
            pin_memory=True,
            device=device,
        )
        for part in ("train", "val")
    )
    optimizer = timm.optim.create_optimizer_v2(model, "sgd", lr=0.01, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()
    for _ in range(options.epochs):
        model.train()
        for images, labels in training:
            loss = loss_of(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            show("loss", loss)
        model.eval()
        with torch.no_grad():
            for images, labels in held:
                show("validation", loss_of(model(images), labels))
    show_parameters(model)


if __name__ == "__main__":
    main()
