"""JPEGs by Pillow, in the workers of a DataLoader."""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset


class JPEGs(Dataset[tuple[torch.Tensor, int]]):
    """Images, 3 x `cropped` x `cropped` bytes, and their classes."""

    def __init__(self, samples: list[tuple[str, int]], resized: int, cropped: int) -> None:
        self.samples, self.resized, self.cropped = samples, resized, cropped

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path, label = self.samples[index]
        with Image.open(path) as file:
            image = file.convert("RGB")
        scale = self.resized / min(image.size)
        width, height = round(scale * image.width), round(scale * image.height)
        image = image.resize((width, height), Image.Resampling.BILINEAR)
        left, top = (width - self.cropped) // 2, (height - self.cropped) // 2
        image = image.crop((left, top, left + self.cropped, top + self.cropped))
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous(), label


def make_loader(
    samples: list[tuple[str, int]],
    batch_size: int,
    workers: int,
    resized: int = 256,  # the shorter side
    cropped: int = 224,  # a square in the middle
) -> DataLoader[tuple[torch.Tensor, int]]:
    """Batches of images and their classes, in random order."""
    images = JPEGs(samples, resized, cropped)
    return DataLoader(images, batch_size, shuffle=True, num_workers=workers)
