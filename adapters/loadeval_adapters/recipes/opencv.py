"""JPEGs by OpenCV, in the workers of a DataLoader."""

import cv2
import torch
from torch.utils.data import DataLoader, Dataset

AS_STORED = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION  # not turned as EXIF says
cv2.setNumThreads(0)  # a worker uses one thread


class JPEGs(Dataset):
    """Images, 3 x `cropped` x `cropped` bytes, and their classes."""

    def __init__(self, samples, resized, cropped):
        self.samples, self.resized, self.cropped = samples, resized, cropped

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path, label = self.samples[index]
        image = cv2.imread(path, AS_STORED)
        if image is None:
            raise OSError(f"OpenCV cannot read {path}")
        scale = self.resized / min(image.shape[:2])
        height, width = (round(scale * side) for side in image.shape[:2])
        how = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
        image = cv2.resize(image, (width, height), interpolation=how)
        left, top = (width - self.cropped) // 2, (height - self.cropped) // 2
        image = image[top : top + self.cropped, left : left + self.cropped]
        return torch.from_numpy(image).permute(2, 0, 1).contiguous(), label


def make_loader(samples, batch_size, workers, resized=256, cropped=224):
    """Batches of images and their classes, in random order."""
    images = JPEGs(samples, resized, cropped)
    return DataLoader(images, batch_size, shuffle=True, num_workers=workers)
