"""Photographs: decoded, changed by transforms, passed on."""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageFilter

from bench.zoo.programs import SAMPLES, Program, Samples, Training, train
from tests.images import crops

Transform = Callable[[Any], Any]

SIDE = 208
KEPT = 16
"""Different photographs; they come again and again."""


def decoded(file: bytes) -> Image.Image:
    with Image.open(io.BytesIO(file)) as image:
        return image.convert("RGB")


class Photographs(Samples):
    def __init__(self, transform: Transform, count: int = SAMPLES) -> None:
        boxes = ((8 * left, 100, 8 * left + SIDE, 100 + SIDE) for left in range(KEPT))
        self.images = list(map(decoded, crops(*boxes)))
        self.transform, self.count = transform, count

    def read(self, index: int) -> Any:
        return self.transform(self.images[index % KEPT])


@dataclass
class Compose:
    transforms: Sequence[Transform]

    def __call__(self, sample: Any) -> Any:
        for transform in self.transforms:
            sample = transform(sample)
        return sample


class Resize:
    def __call__(self, image: Image.Image) -> Image.Image:
        return image.resize((24, 24), Image.Resampling.BILINEAR)


class Flip:
    def __call__(self, image: Image.Image) -> Image.Image:
        return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)


class GaussianBlur:
    def __call__(self, image: Image.Image) -> Image.Image:
        return image.filter(ImageFilter.GaussianBlur(4))


class ToTensor:
    def __call__(self, image: Image.Image) -> torch.Tensor:
        return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def listed(*transforms: Transform) -> Transform:
    return Compose([*transforms, Resize(), ToTensor()])


def transformed(_: Path, transform: Transform, count: int = SAMPLES, **options: Any) -> Training:
    return train(Photographs(transform, count), **options)


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
