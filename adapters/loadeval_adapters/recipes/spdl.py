"""JPEGs by Pillow, in the threads of an SPDL DataLoader."""

import random
from functools import partial

import numpy as np
import torch
from PIL import Image
from spdl.dataloader import DataLoader
from torch.utils.data import default_collate


class Shuffled:
    """The samples, each epoch in another order."""

    def __init__(self, samples):
        self.samples = samples

    def __iter__(self):
        return iter(random.sample(self.samples, len(self.samples)))


def decode(sample, resized, cropped):
    """An image, 3 x `cropped` x `cropped` bytes, and its class."""
    path, label = sample
    with Image.open(path) as file:
        scale = resized / min(file.size)
        size = round(scale * file.width), round(scale * file.height)
        image = file.convert("RGB").resize(size, Image.Resampling.BILINEAR)
    left, top = ((side - cropped) // 2 for side in size)
    image = image.crop((left, top, left + cropped, top + cropped))
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous(), label


def make_loader(samples, batch_size, workers, resized=256, cropped=224):
    """Batches of images and their classes, in random order."""
    return DataLoader(
        Shuffled(samples),
        preprocessor=partial(decode, resized=resized, cropped=cropped),
        batch_size=batch_size,
        aggregator=default_collate,
        num_threads=max(workers, 1),
    )
