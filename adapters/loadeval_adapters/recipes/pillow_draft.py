"""JPEGs by Pillow, decoded at 1/2, 1/4 or 1/8 where that is large enough, in DataLoader workers."""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

RESIZED, CROPPED = 256, 224  # the shorter side, and a square in the middle


class JPEGs(Dataset[tuple[torch.Tensor, int]]):
    """Images, 3 x 224 x 224 bytes, and their classes."""

    def __init__(self, samples: list[tuple[str, int]]) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path, label = self.samples[index]
        with Image.open(path) as file:
            scale = RESIZED / min(file.size)
            width, height = round(scale * file.width), round(scale * file.height)
            file.draft("RGB", (width, height))
            image = file.convert("RGB")
        image = image.resize((width, height), Image.Resampling.BILINEAR)
        left, top = (width - CROPPED) // 2, (height - CROPPED) // 2
        image = image.crop((left, top, left + CROPPED, top + CROPPED))
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous(), label


def make_loader(
    samples: list[tuple[str, int]], batch_size: int, workers: int
) -> DataLoader[tuple[torch.Tensor, int]]:
    """Batches of images and their classes, in random order."""
    return DataLoader(JPEGs(samples), batch_size, shuffle=True, num_workers=workers)
