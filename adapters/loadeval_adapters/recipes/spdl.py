"""JPEGs by Pillow, in the threads of an SPDL DataLoader."""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image
from spdl.dataloader import DataLoader
from torch.utils.data import default_collate

if TYPE_CHECKING:
    from collections.abc import Iterator


class Shuffled:
    """The samples, each epoch in another order."""

    def __init__(self, samples: list[tuple[str, int]]) -> None:
        self.samples = samples

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return iter(random.sample(self.samples, len(self.samples)))


def decode(sample: tuple[str, int], resized: int, cropped: int) -> tuple[torch.Tensor, int]:
    """An image, 3 x `cropped` x `cropped` bytes, and its class."""
    path, label = sample
    with Image.open(path) as file:
        image = file.convert("RGB")
    scale = resized / min(image.size)
    width, height = round(scale * image.width), round(scale * image.height)
    image = image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = (width - cropped) // 2, (height - cropped) // 2
    image = image.crop((left, top, left + cropped, top + cropped))
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous(), label


def make_loader(
    samples: list[tuple[str, int]],
    batch_size: int,
    workers: int,
    resized: int = 256,  # the shorter side
    cropped: int = 224,  # a square in the middle
) -> DataLoader:
    """Batches of images and their classes, in random order."""
    return DataLoader(
        Shuffled(samples),
        preprocessor=partial(decode, resized=resized, cropped=cropped),
        batch_size=batch_size,
        aggregator=default_collate,
        num_threads=max(workers, 1),
    )
