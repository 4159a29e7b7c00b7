"""What is to be done with each sample, read from a line such as "resize 256, crop 224, flip"."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from loadeval.analysis.choice import DataDifference
from loadeval.backends.transforms import parse
from loadeval.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Means and standard deviations of ImageNet's channels, as torchvision's models expect them."""
EXAMPLE = '"resize 256, crop 224, flip, normalize imagenet"'
KNOWN = (
    "resize 256 (the shorter side), resize 256x320 (height x width), crop 224 or crop 224x256 "
    "(from the middle), flip (every other image), normalize imagenet, or normalize 0.5 0.25 (mean "
    "and standard deviation, from 0 to 1)"
)
SIZE = re.compile(r"(\d{1,5})(?:x(\d{1,5}))?")
CHANNELS = 3
LEVELS = 255
"""The largest value of a pixel's byte."""


@dataclass(frozen=True, slots=True)
class Transforms:
    """What is done with an image, in this order; None is not done.

    `shorter` is what the shorter side becomes, `resized` and `cropped` are height and width,
    `flipped` turns every other image around, left to right. With `mean` and `std` pixels, from 0 to
    1, become floats around 0; without, they remain bytes. Of a video there are `frames`, of `every`
    so many one.
    """

    shorter: int | None = None
    resized: tuple[int, int] | None = None
    cropped: tuple[int, int] | None = None
    flipped: bool = False
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = field(default=())
    frames: int = 0
    every: int = 1

    @property
    def height_and_width(self) -> tuple[int, int]:
        """Of what is loaded."""
        return self.cropped or self.resized or (0, 0)

    def values(self) -> dict[str, Any]:
        """What templates need of them."""
        height, width = self.resized or (0, 0)
        crop_height, crop_width = self.cropped or (0, 0)

        def size_of(arguments: str) -> str:
            return f"resized_size({arguments})" if self.shorter else f"({width}, {height})"

        return {
            "shorter": self.shorter,
            "resize_height": height,
            "resize_width": width,
            "size_of": size_of,
            "crop": self.cropped is not None,
            "crop_height": crop_height,
            "crop_width": crop_width,
            "flip": self.flipped,
            "normalize": bool(self.mean),
            "mean": list(self.mean),
            "std": list(self.std),
            "mean_255": [round(LEVELS * value, 4) for value in self.mean],
            "std_255": [round(LEVELS * value, 4) for value in self.std],
            "frames": self.frames,
            "every": self.every,
        }

    def difference(self, samples: npt.NDArray[Any], reference: npt.NDArray[Any]) -> DataDifference:
        """How far images are from those of the reference, of the same shape, in levels of 255."""
        levels = np.abs(self._in_levels(samples) - self._in_levels(reference))
        each = levels.mean(axis=tuple(range(1, levels.ndim)))
        return DataDifference(
            float(levels.mean()), float(levels.max()), float(each.max()), len(samples)
        )

    def _in_levels(self, samples: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Without normalisation; what is added to each level does not change a difference."""
        levels = samples.astype(np.float32)
        if self.std:
            levels *= LEVELS * np.asarray(self.std, dtype=np.float32)[:, None, None]
        return levels


def parse_transforms(text: str) -> Transforms:
    """The transforms that `text` names, with commas between them.

    Raises UsageError for one that is not known, stands twice or in another order, and where images
    would be of different sizes.
    """
    return of_one_size(parse(text, Transforms(), PARSERS, KNOWN, EXAMPLE), text, EXAMPLE)


def of_one_size(transforms: Transforms, text: str, example: str) -> Transforms:
    """The same `transforms`, which `text` named. Raises UsageError where sizes would differ."""
    if transforms.shorter is None and transforms.resized is None:
        raise UsageError(
            f"the transforms {text!r} do not resize, and images of different sizes make no batch; "
            f"expected such as {example}"
        )
    if transforms.cropped is None and transforms.shorter is not None:
        raise UsageError(
            f"resize {transforms.shorter} leaves the longer side as it comes, and images of "
            "different sizes make no batch; add crop, or give both sides: resize "
            f"{transforms.shorter}x{transforms.shorter}"
        )
    height, width = transforms.cropped or (1, 1)
    highest, widest = transforms.resized or (transforms.shorter or 1,) * 2
    if height > highest or width > widest:
        raise UsageError(
            f"crop {height}x{width} is larger than what resize leaves, at least "
            f"{highest}x{widest}; expected a crop no larger"
        )
    return transforms


def _resize(transforms: Transforms, words: list[str], part: str) -> Transforms:
    height, width = _size(words, part)
    if width is None:
        return replace(transforms, shorter=height)
    return replace(transforms, resized=(height, width))


def _crop(transforms: Transforms, words: list[str], part: str) -> Transforms:
    height, width = _size(words, part)
    return replace(transforms, cropped=(height, width or height))


def _size(words: list[str], part: str) -> tuple[int, int | None]:
    match = SIZE.fullmatch(words[0]) if len(words) == 1 else None
    sides = [] if match is None else [int(side) for side in match.groups() if side]
    if not sides or not all(sides):
        raise UsageError(f"transform {part!r} has no size; expected {KNOWN}")
    return sides[0], sides[1] if len(sides) > 1 else None


def _flip(transforms: Transforms, words: list[str], part: str) -> Transforms:
    if words:
        raise UsageError(f"transform {part!r}: flip takes nothing; expected flip")
    return replace(transforms, flipped=True)


def _normalize(transforms: Transforms, words: list[str], part: str) -> Transforms:
    if words == ["imagenet"]:
        mean, std = IMAGENET
        return replace(transforms, mean=mean, std=std)
    try:
        center, spread = map(float, words)
    except ValueError:
        center, spread = 0.0, 0.0
    if not 0 < spread <= 1 or not 0 <= center <= 1:
        raise UsageError(f"transform {part!r} is not known; expected {KNOWN}")
    return replace(transforms, mean=(center,) * CHANNELS, std=(spread,) * CHANNELS)


PARSERS: dict[str, Callable[[Transforms, list[str], str], Transforms]] = {
    "resize": _resize,
    "crop": _crop,
    "flip": _flip,
    "normalize": _normalize,
}
