"""Transforms that cost too much: in a list, in an attribute, as a module, in a stream."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageFilter
from torch import nn
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from bench.faults.programs import BATCHES, SIZE, Program, train
from tests.images import crops

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    Transform = Callable[[Any], Any]
    Pixels = npt.NDArray[np.uint8]

SIDE = 208
"""The side of a photograph, in pixels."""
SAMPLES = BATCHES * SIZE


@cache
def photographs(side: int = SIDE, count: int = 16) -> list[Image.Image]:
    """Decoded ones."""
    boxes = ((8 * left, 100, 8 * left + side, 100 + side) for left in range(count))
    return [decoded(file) for file in crops(*boxes)]


def decoded(file: bytes) -> Image.Image:
    import io

    with Image.open(io.BytesIO(file)) as image:
        return image.convert("RGB")


class Photographs(Dataset[Any]):
    def __init__(self, transform: Transform, samples: int = SAMPLES) -> None:
        self.images = photographs()
        self.transform = transform
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> Any:
        return self.transform(self.images[index % len(self.images)])


class Stream(IterableDataset[Any]):
    """The photographs again and again, each worker every other one."""

    def __init__(self, transform: Transform, samples: int = SAMPLES) -> None:
        self.images = photographs()
        self.transform = transform
        self.samples = samples

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        first, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        for index in range(first, self.samples, workers):
            yield self.transform(self.images[index % len(self.images)])


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
        self.todo: dict[str, list[Transform]] = {
            "first": list(transforms),
            "last": [Resize(), ToTensor()],
        }

    def __call__(self, sample: Any) -> Any:
        for transform in (*self.todo["first"], *self.todo["last"]):
            sample = transform(sample)
        return sample


@dataclass
class Resize:
    side: int = 24

    def __call__(self, image: Image.Image) -> Image.Image:
        return image.resize((self.side, self.side), Image.Resampling.BILINEAR)


class Flip:
    def __call__(self, image: Image.Image) -> Image.Image:
        return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)


class GaussianBlur:
    def __call__(self, image: Image.Image) -> Image.Image:
        return image.filter(ImageFilter.GaussianBlur(4))


class BoxBlur:
    def __call__(self, image: Image.Image) -> Image.Image:
        return image.filter(ImageFilter.BoxBlur(4))


class ColorJitter:
    KINDS = (
        ImageEnhance.Brightness,
        ImageEnhance.Color,
        ImageEnhance.Contrast,
        ImageEnhance.Sharpness,
    )

    def __call__(self, image: Image.Image) -> Image.Image:
        for kind in self.KINDS:
            image = kind(image).enhance(1.2)
        return image


class HueJitter(ColorJitter):
    """That, and a change of hue."""

    def __call__(self, image: Image.Image) -> Image.Image:
        hue, *others = super().__call__(image).convert("HSV").split()
        hue = hue.point(lambda value: value + 8)
        return Image.merge("HSV", (hue, *others)).convert("RGB")


class CenterCrop:
    def __call__(self, image: Image.Image) -> Image.Image:
        return image.crop((72, 72, 136, 136))


class Sharpen:
    def __call__(self, image: Image.Image) -> Image.Image:
        return image.filter(ImageFilter.UnsharpMask(3))


class Engrave:
    def __init__(self) -> None:
        self.kernel = ImageFilter.Kernel((5, 5), [-1] * 12 + [25] + [-1] * 12)

    def __call__(self, image: Image.Image) -> Image.Image:
        return image.filter(self.kernel)


class ToTensor:
    def __call__(self, image: Image.Image) -> torch.Tensor:
        return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def small_pixels(image: Image.Image) -> Pixels:
    return np.array(image.resize((30, 30), Image.Resampling.BILINEAR))


def equalised_patches(image: Image.Image) -> Pixels:
    """Each patch of 3 x 3 with the same mean and variance, one after the other."""
    pixels = small_pixels(image)
    for top in range(0, 30, 3):
        for left in range(0, 30, 3):
            patch = pixels[top : top + 3, left : left + 3]
            patch[:] = 127 + 40 * (patch - patch.mean()) / (patch.std() + 1)
    return pixels


class Elastic(nn.Module):
    """Pulls the picture about like rubber."""

    def __init__(self) -> None:
        super().__init__()
        self.smooth = nn.AvgPool2d(9, stride=1, padding=4)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        noise = torch.randn(1, 2, 64, 64)
        field = self.smooth(self.smooth(self.smooth(self.smooth(noise)))).permute(0, 2, 3, 1)
        return nn.functional.grid_sample(pixels[None], field, align_corners=False)[0]


class Halve(nn.Module):
    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return nn.functional.avg_pool2d(pixels, 2)


def listed(*transforms: Transform) -> Transform:
    return Compose([*transforms, Resize(), ToTensor()])


def nested(*transforms: Transform) -> Transform:
    return Compose([Compose([Flip(), *transforms]), Compose([Resize(), Compose([ToTensor()])])])


def as_modules(*modules: nn.Module) -> Transform:
    return Compose(
        [
            Resize(64),
            ToTensor(),
            torch.Tensor.float,
            nn.Sequential(*modules, Halve()),
            torch.Tensor.byte,
        ]
    )


PROGRAMS = (
    Program(
        "a blur in a list of transforms",
        "slow transform",
        "GaussianBlur",
        faulty=lambda _: train(Photographs(listed(Flip(), GaussianBlur()))),
        healthy=lambda _: train(Photographs(listed(Flip()))),
        # This comes after the image has become small.
        fixed=lambda _: train(Photographs(Compose([Flip(), Resize(), GaussianBlur(), ToTensor()]))),
    ),
    Program(
        "a function in the transform attribute",
        "slow transform",
        "equalised_patches",
        faulty=lambda _: train(Photographs(equalised_patches)),
        healthy=lambda _: train(Photographs(small_pixels)),
    ),
    Program(
        "an nn.Module among the transforms",
        "slow transform",
        "Elastic",
        faulty=lambda _: train(Photographs(as_modules(Elastic()))),
        healthy=lambda _: train(Photographs(as_modules())),
    ),
    Program(
        "a sharpening in a nested list",
        "slow transform",
        "Sharpen",
        faulty=lambda _: train(Photographs(nested(Sharpen()))),
        healthy=lambda _: train(Photographs(nested())),
    ),
    Program(
        "a jitter among others in a Compose of one's own",
        "slow transform",
        "ColorJitter takes",
        faulty=lambda _: train(Photographs(Recipe(Flip(), ColorJitter(), BoxBlur()))),
        healthy=lambda _: train(Photographs(Recipe(CenterCrop(), Flip(), ColorJitter()))),
    ),
    Program(
        "a change of hue ahead of a crop",
        "slow transform",
        "HueJitter takes",
        faulty=lambda _: train(Photographs(Recipe(HueJitter(), CenterCrop()))),
        healthy=lambda _: train(Photographs(Recipe(CenterCrop()))),
        fixed=lambda _: train(Photographs(Recipe(CenterCrop(), HueJitter()))),
    ),
    Program(
        "a transform of a stream",
        "slow transform",
        "Engrave",
        faulty=lambda _: train(Stream(listed(Engrave()))),
        healthy=lambda _: train(Stream(listed())),
    ),
    Program(
        "a blur in spawned workers",
        "slow transform",
        "GaussianBlur",
        faulty=lambda _: train(
            Photographs(listed(GaussianBlur()), SAMPLES // 5),
            epochs=3,
            multiprocessing_context="spawn",
        ),
        healthy=lambda _: train(
            Photographs(listed(), SAMPLES // 5), epochs=3, multiprocessing_context="spawn"
        ),
    ),
)
