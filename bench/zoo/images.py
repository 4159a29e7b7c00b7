"""Photographs: decoded, changed by transforms, passed on."""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageFilter

from bench.zoo.programs import SAMPLES, Program, Samples, Stream, Training, train
from tests.images import crops

Transform = Callable[[Any], Any]

SIDE = 208
KEPT = 16
"""Different photographs; they come again and again."""


def decoded(file: bytes) -> Image.Image:
    with Image.open(io.BytesIO(file)) as image:
        return image.convert("RGB")


class Changed:
    """Photographs, each changed by a transform."""

    def __init__(self, transform: Transform, count: int = SAMPLES) -> None:
        boxes = ((8 * left, 100, 8 * left + SIDE, 100 + SIDE) for left in range(KEPT))
        self.images = list(map(decoded, crops(*boxes)))
        self.transform, self.count = transform, count

    def read(self, index: int) -> Any:
        return self.transform(self.images[index % KEPT])


class Photographs(Changed, Samples):
    pass


class PhotographStream(Changed, Stream):
    pass


@dataclass
class Compose:
    transforms: Sequence[Transform]

    def __call__(self, sample: Any) -> Any:
        for transform in self.transforms:
            sample = transform(sample)
        return sample


class Recipe:
    """A Compose of one's own: no name says that it holds transforms."""

    def __init__(self, *transforms: Transform) -> None:
        self.todo = {"first": transforms, "last": (Resize(), ToTensor())}

    def __call__(self, sample: Any) -> Any:
        for transform in (*self.todo["first"], *self.todo["last"]):
            sample = transform(sample)
        return sample


class Resize:
    def __call__(self, image: Image.Image) -> Image.Image:
        return image.resize((24, 24), Image.Resampling.BILINEAR)


class Flip:
    def __call__(self, image: Image.Image) -> Image.Image:
        return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)


class CenterCrop:
    def __call__(self, image: Image.Image) -> Image.Image:
        return image.crop((72, 72, 136, 136))


class GaussianBlur:
    by: Any = ImageFilter.GaussianBlur(4)

    def __call__(self, image: Image.Image) -> Image.Image:
        return image.filter(self.by)


class BoxBlur(GaussianBlur):
    by = ImageFilter.BoxBlur(4)


class Engrave(GaussianBlur):
    by = ImageFilter.Kernel((5, 5), [-1] * 12 + [25] + [-1] * 12)


class ColorJitter:
    def __call__(self, image: Image.Image) -> Image.Image:
        for kind in ("Brightness", "Color", "Contrast", "Sharpness"):
            image = getattr(ImageEnhance, kind)(image).enhance(1.2)
        return image


class ToTensor:
    def __call__(self, image: Image.Image) -> torch.Tensor:
        return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def small_pixels(image: Image.Image) -> Any:
    return np.array(image.resize((30, 30), Image.Resampling.BILINEAR))


def equalised_patches(image: Image.Image) -> Any:
    """Each patch of 3 x 3 with the same mean and variance, one after the other."""
    pixels = small_pixels(image)
    for top in range(0, 30, 3):
        for left in range(0, 30, 3):
            patch = pixels[top : top + 3, left : left + 3]
            patch[:] = 127 + 40 * (patch - patch.mean()) / (patch.std() + 1)
    return pixels


def listed(*transforms: Transform) -> Transform:
    return Compose([*transforms, Resize(), ToTensor()])


def transformed(
    _: Path, transform: Transform, count: int = SAMPLES, kind: Any = Photographs, **options: Any
) -> Training:
    return train(kind(transform, count), **options)


def from_files(folder: Path, side: int, *, reduced: bool = False) -> Training:
    """JPEGs of a folder, which may be decoded at an eighth of their size."""
    (whole,) = crops((0, 40, 512, 552))
    for number in range(KEPT):
        decoded(whole).resize((side + number, side)).save(folder / f"{number}.jpg", quality=30)

    def decode_photograph(index: int) -> torch.Tensor:
        with Image.open(folder / f"{index % KEPT}.jpg") as image:
            if reduced:
                image.draft("RGB", (80, 80))
            pixels = np.asarray(image.convert("RGB").resize((24, 24), Image.Resampling.NEAREST))
        return torch.from_numpy(pixels.copy())

    return train(Samples(decode_photograph))


SPAWNED = {"count": SAMPLES // 5, "epochs": 3, "multiprocessing_context": "spawn"}
PROGRAMS = {
    "a blur in a list of transforms": Program(
        "slow transform",
        "GaussianBlur",
        transformed,
        {"transform": listed(Flip(), GaussianBlur())},
        {"transform": listed(Flip())},
        # This comes after the image has become small.
        fixed={"transform": Compose([Flip(), Resize(), GaussianBlur(), ToTensor()])},
    ),
    "a function in the transform attribute": Program(
        "slow transform",
        "equalised_patches",
        transformed,
        {"transform": equalised_patches},
        {"transform": small_pixels},
    ),
    "a jitter among others in a Compose of one's own": Program(
        "slow transform",
        "ColorJitter takes",
        transformed,
        {"transform": Recipe(Flip(), ColorJitter(), BoxBlur())},
        {"transform": Recipe(CenterCrop(), Flip(), ColorJitter())},
    ),
    "a transform of a stream": Program(
        "slow transform",
        "Engrave",
        partial(transformed, kind=PhotographStream),
        {"transform": listed(Engrave())},
        {"transform": listed()},
    ),
    "a blur in spawned workers": Program(
        "slow transform",
        "GaussianBlur",
        partial(transformed, **SPAWNED),
        {"transform": listed(GaussianBlur())},
        {"transform": listed()},
    ),
    "big JPEGs": Program(
        "slow fetch",
        "decode_photograph",
        from_files,
        {"side": 640},
        {"side": 64},
        {"reduced": True},
    ),
}
