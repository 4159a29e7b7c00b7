"""JPEGs by simplejpeg, decoded no larger than needed, in the workers of a DataLoader."""

from pathlib import Path

import numpy as np
import simplejpeg
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset


class JPEGs(Dataset):
    """Images, 3 x `cropped` x `cropped` bytes, and their classes."""

    def __init__(self, samples, resized, cropped):
        self.samples, self.resized, self.cropped = samples, resized, cropped

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path, label = self.samples[index]
        data = Path(path).read_bytes()
        height, width, _, _ = simplejpeg.decode_jpeg_header(data)
        scale = self.resized / min(height, width)
        size = width, height = round(scale * width), round(scale * height)
        decoded = simplejpeg.decode_jpeg(data, "RGB", min_height=height, min_width=width)
        image = Image.fromarray(decoded).resize(size, Image.Resampling.BILINEAR)
        left, top = ((side - self.cropped) // 2 for side in size)
        image = image.crop((left, top, left + self.cropped, top + self.cropped))
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous(), label


def make_loader(samples, batch_size, workers, resized=256, cropped=224):
    """Batches of images and their classes, in random order."""
    images = JPEGs(samples, resized, cropped)
    return DataLoader(images, batch_size, shuffle=True, num_workers=workers)
