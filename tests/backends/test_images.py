"""Transforms that are read from a line of text."""

from __future__ import annotations

import pytest

from loadeval.backends.images import IMAGENET, Transforms, parse_transforms
from loadeval.errors import UsageError


def test_all_transforms() -> None:
    parsed = parse_transforms("resize 256, crop 224, flip, normalize imagenet")
    mean, std = IMAGENET
    assert parsed == Transforms(256, None, (224, 224), flipped=True, mean=mean, std=std)
    assert parsed.height_and_width == (224, 224)


def test_height_comes_before_width() -> None:
    assert parse_transforms("resize 224x192").height_and_width == (224, 192)
    assert parse_transforms("resize 200, crop 100x150").height_and_width == (100, 150)


def test_one_mean_and_deviation_for_all_channels() -> None:
    parsed = parse_transforms("resize 8x8, normalize 0.5 0.25")
    assert (parsed.mean, parsed.std) == ((0.5,) * 3, (0.25,) * 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "do not resize"),
        ("crop 224", "do not resize"),
        ("resize 256", "leaves the longer side as it comes"),
        ("resize", "has no size"),
        ("resize 0", "has no size"),
        ("resize 10x", "has no size"),
        ("resize 256 256", "has no size"),
        ("resize 256, crop 300", "crop 300x300 is larger than what resize leaves"),
        ("resize 100x300, crop 200x200", "larger than what resize leaves, at least 100x300"),
        ("crop 224, resize 256", "'resize 256' comes after crop"),
        ("resize 8x8, resize 8x8", "comes after resize"),
        ("resize 8x8, flip 2", "flip takes nothing"),
        ("resize 8x8, normalize", "'normalize' is not known"),
        ("resize 8x8, normalize 0.5 0", "is not known"),
        ("resize 8x8, normalize nan nan", "is not known"),
        ("resize 8x8, blur 3", "transform 'blur 3' is not known; expected resize 256"),
    ],
)
def test_what_cannot_be_done_is_said(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_transforms(text)
