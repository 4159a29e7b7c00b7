"""What is to be done with each video, such as "frames 16, resize 128, crop 112"."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from loadeval.backends import images
from loadeval.backends.transforms import parse
from loadeval.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.backends.images import Transforms

EXAMPLE = '"frames 16, every 2, resize 128, crop 112"'
KNOWN = (
    "frames 16 (the first ones; what is shorter repeats its last), every 2 (every other frame), "
    f"and of the frames {images.KNOWN}"
)


def parse_transforms(text: str) -> Transforms:
    """The transforms that `text` names, with commas between them.

    Raises UsageError for one that is not known, stands twice or in another order, and where videos
    would be of different lengths or sizes.
    """
    transforms = parse(text, images.Transforms(), PARSERS, KNOWN, EXAMPLE)
    if not transforms.frames:
        raise UsageError(
            f"the transforms {text!r} do not say how many frames, and videos of different lengths "
            f"make no batch; expected such as {EXAMPLE}"
        )
    return images.of_one_size(transforms, text, EXAMPLE)


def _frames(transforms: Transforms, words: list[str], part: str) -> Transforms:
    return replace(transforms, frames=_count(words, part))


def _every(transforms: Transforms, words: list[str], part: str) -> Transforms:
    return replace(transforms, every=_count(words, part))


def _count(words: list[str], part: str) -> int:
    if len(words) != 1 or not words[0].isdecimal() or not int(words[0]):
        raise UsageError(f"transform {part!r} has no number of frames; expected {KNOWN}")
    return int(words[0])


PARSERS: dict[str, Callable[[Transforms, list[str], str], Transforms]] = {
    "frames": _frames,
    "every": _every,
    **images.PARSERS,
}
