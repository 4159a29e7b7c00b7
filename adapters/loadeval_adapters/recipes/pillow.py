"""JPEGs by Pillow, in DataLoader workers; with draft=True it decodes no larger than needed."""

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset


class JPEGs(Dataset):
    """Images, 3 x `cropped` x `cropped` bytes, and their classes."""

    def __init__(self, samples, resized, cropped, draft):
        self.samples, self.resized, self.cropped, self.draft = samples, resized, cropped, draft

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path, label = self.samples[index]
        with Image.open(path) as file:
            scale = self.resized / min(file.size)
            size = round(scale * file.width), round(scale * file.height)
            if self.draft:  # at 1/2, 1/4 or 1/8 where that is large enough
                file.draft("RGB", size)
            image = file.convert("RGB").resize(size, Image.Resampling.BILINEAR)
        left, top = ((side - self.cropped) // 2 for side in size)
        image = image.crop((left, top, left + self.cropped, top + self.cropped))
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous(), label


def make_loader(samples, batch_size, workers, resized=256, cropped=224, draft=False):
    """Batches of images and their classes, in random order."""
    images = JPEGs(samples, resized, cropped, draft)
    return DataLoader(images, batch_size, shuffle=True, num_workers=workers)
