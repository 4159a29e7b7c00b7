"""Photographs: decoded, changed by transforms, passed on."""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageFilter
from torch import nn
from torch.utils.data import default_collate

from bench.zoo.programs import BATCHES, SAMPLES, Program, Samples, Stream, Training, as_it_is, train
from tests.images import crops

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import numpy.typing as npt

    Transform = Callable[[Any], Any]
    Pixels = npt.NDArray[np.uint8]

SIDE = 208
"""The side of a photograph, in pixels."""
KEPT = 16
"""Different ones; they come again and again."""
FILES = 20
"""Those of a batch that are read from files."""


@cache
def photographs(side: int = SIDE, count: int = KEPT) -> list[Image.Image]:
    """Decoded ones."""
    boxes = ((8 * left, 100, 8 * left + side, 100 + side) for left in range(count))
    return [decoded(file) for file in crops(*boxes)]


def decoded(file: bytes) -> Image.Image:
    with Image.open(io.BytesIO(file)) as image:
        return image.convert("RGB")


class Changed:
    """The photographs again and again, each changed by a transform."""

    def __init__(self, transform: Transform, count: int = SAMPLES) -> None:
        self.images = photographs()
        self.transform = transform
        self.count = count

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


class CenterCrop:
    def __call__(self, image: Image.Image) -> Image.Image:
        return image.crop((72, 72, 136, 136))


class Filter:
    """What PIL's filters do."""

    by: Any

    def __call__(self, image: Image.Image) -> Image.Image:
        return image.filter(self.by)


class GaussianBlur(Filter):
    by = ImageFilter.GaussianBlur(4)


class BoxBlur(Filter):
    by = ImageFilter.BoxBlur(4)


class Sharpen(Filter):
    by = ImageFilter.UnsharpMask(3)


class Engrave(Filter):
    by = ImageFilter.Kernel((5, 5), [-1] * 12 + [25] + [-1] * 12)


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
    modules = nn.Sequential(*modules, Halve())
    return Compose([Resize(64), ToTensor(), torch.Tensor.float, modules, torch.Tensor.byte])


def transformed(transform: Transform) -> Training:
    return train(Photographs(transform))


def spawned(transform: Transform) -> Training:
    images = Photographs(transform, SAMPLES // 5)
    return train(images, epochs=3, multiprocessing_context="spawn")


class Files(Samples):
    """Files of a folder, JPEGs of about so many pixels a side."""

    def __init__(self, folder: Path, side: int, decode: Callable[[bytes], Any]) -> None:
        self.paths, self.decode_file, self.count = [], decode, BATCHES * FILES
        (whole,) = crops((0, 40, 512, 552))
        photograph = decoded(whole)
        for number in range(KEPT):
            self.paths.append(folder / f"{number}.jpg")
            photograph.resize((side + number, side)).save(self.paths[-1], quality=30)

    def read(self, index: int) -> Any:
        return self.decode_file(self.paths[index % KEPT].read_bytes())


def decode_photograph(file: bytes) -> torch.Tensor:
    with Image.open(io.BytesIO(file)) as image:
        pixels = np.asarray(image.convert("RGB").resize((24, 24), Image.Resampling.NEAREST))
    return torch.from_numpy(pixels.copy())


def decode_reduced(file: bytes) -> torch.Tensor:
    """An eighth of the size, which JPEG can decode directly."""
    with Image.open(io.BytesIO(file)) as image:
        image.draft("RGB", (80, 80))
        pixels = np.asarray(image.convert("RGB").resize((24, 24), Image.Resampling.NEAREST))
    return torch.from_numpy(pixels.copy())


def from_files(folder: Path, side: int, decode: Callable[[bytes], Any]) -> Training:
    return train(Files(folder, side, decode), batch_size=FILES)


def pictures(side: int, *, packed: bool, **options: Any) -> Training:
    """Images as PIL has them, or as tensors."""
    images = [image.resize((side, side)) for image in photographs()]
    tensors = [torch.from_numpy(np.array(image)) for image in images]
    kept: Sequence[Any] = tensors if packed else images
    return train(Samples(lambda index: kept[index % KEPT]), **options)


PROGRAMS = (
    Program(
        "a blur in a list of transforms",
        "slow transform",
        "GaussianBlur",
        faulty=lambda _: transformed(listed(Flip(), GaussianBlur())),
        healthy=lambda _: transformed(listed(Flip())),
        # This comes after the image has become small.
        fixed=lambda _: transformed(Compose([Flip(), Resize(), GaussianBlur(), ToTensor()])),
    ),
    Program(
        "a function in the transform attribute",
        "slow transform",
        "equalised_patches",
        faulty=lambda _: transformed(equalised_patches),
        healthy=lambda _: transformed(small_pixels),
    ),
    Program(
        "an nn.Module among the transforms",
        "slow transform",
        "Elastic",
        faulty=lambda _: transformed(as_modules(Elastic())),
        healthy=lambda _: transformed(as_modules()),
    ),
    Program(
        "a sharpening in a nested list",
        "slow transform",
        "Sharpen",
        faulty=lambda _: transformed(nested(Sharpen())),
        healthy=lambda _: transformed(nested()),
    ),
    Program(
        "a jitter among others in a Compose of one's own",
        "slow transform",
        "ColorJitter takes",
        faulty=lambda _: transformed(Recipe(Flip(), ColorJitter(), BoxBlur())),
        healthy=lambda _: transformed(Recipe(CenterCrop(), Flip(), ColorJitter())),
    ),
    Program(
        "a change of hue ahead of a crop",
        "slow transform",
        "HueJitter takes",
        faulty=lambda _: transformed(Recipe(HueJitter(), CenterCrop())),
        healthy=lambda _: transformed(Recipe(CenterCrop())),
        fixed=lambda _: transformed(Recipe(CenterCrop(), HueJitter())),
    ),
    Program(
        "a transform of a stream",
        "slow transform",
        "Engrave",
        faulty=lambda _: train(PhotographStream(listed(Engrave()))),
        healthy=lambda _: train(PhotographStream(listed())),
    ),
    Program(
        "a blur in spawned workers",
        "slow transform",
        "GaussianBlur",
        faulty=lambda _: spawned(listed(GaussianBlur())),
        healthy=lambda _: spawned(listed()),
    ),
    Program(
        "big JPEGs",
        "slow fetch",
        "decode_photograph",
        faulty=partial(from_files, side=640, decode=decode_photograph),
        healthy=partial(from_files, side=64, decode=decode_photograph),
        fixed=partial(from_files, side=640, decode=decode_reduced),
    ),
    Program(
        "a list of PIL images",
        "transfer",
        "",
        faulty=lambda _: pictures(256, packed=False, collate_fn=as_it_is),
        healthy=lambda _: pictures(32, packed=True),
        fixed=lambda _: pictures(256, packed=True, collate_fn=default_collate),
    ),
)
