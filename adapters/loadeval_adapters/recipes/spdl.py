"""JPEGs by Pillow, in the threads of an SPDL DataLoader."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image
from spdl.dataloader import DataLoader
from torch.utils.data import default_collate

if TYPE_CHECKING:
    from collections.abc import Iterator

RESIZED, CROPPED = 256, 224  # the shorter side, and a square in the middle


class Shuffled:
    """The samples, each epoch in another order."""

    def __init__(self, samples: list[tuple[str, int]]) -> None:
        self.samples = samples

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return iter(random.sample(self.samples, len(self.samples)))


def decode(sample: tuple[str, int]) -> tuple[torch.Tensor, int]:
    """An image, 3 x 224 x 224 bytes, and its class."""
    path, label = sample
    with Image.open(path) as file:
        image = file.convert("RGB")
    scale = RESIZED / min(image.size)
    width, height = round(scale * image.width), round(scale * image.height)
    image = image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = (width - CROPPED) // 2, (height - CROPPED) // 2
    image = image.crop((left, top, left + CROPPED, top + CROPPED))
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous(), label


def make_loader(samples: list[tuple[str, int]], batch_size: int, workers: int) -> DataLoader:
    """Batches of images and their classes, in random order."""
    return DataLoader(
        Shuffled(samples),
        preprocessor=decode,
        batch_size=batch_size,
        aggregator=default_collate,
        num_threads=max(workers, 1),
    )
