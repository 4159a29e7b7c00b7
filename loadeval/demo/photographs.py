"""A folder of real JPEGs, made from the photograph that matplotlib ships."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import cbook
from PIL import Image

from loadeval.errors import LoadevalError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROTATIONS = {
    "upright": None,
    "left": Image.Transpose.ROTATE_90,
    "upside-down": Image.Transpose.ROTATE_180,
    "right": Image.Transpose.ROTATE_270,
}
"""A photograph's class is which way its top points."""
SEED = 1906
SHORTEST, LONGEST = 480, 512
"""A crop's sides are so long, in pixels."""
END_OF_JPEG = b"\xff\xd9"


def make_photographs(
    folder: Path, count: int, made: Callable[[int], object] = lambda _: None
) -> list[Path]:
    """Fill `folder` with `count` JPEGs of about 500 x 500, a subfolder a class; returns them.

    The size, place and rotation of each crop depend only on its number, so every run makes the
    same files, and complete ones are kept. `made` is called with the number of files so far.
    Raises LoadevalError if matplotlib's photograph is missing, OSError if `folder` cannot be
    written.
    """
    photograph = _photograph()
    classes = list(ROTATIONS)
    paths = [
        folder / classes[number % len(classes)] / f"{number:04d}.jpg" for number in range(count)
    ]
    for name in classes:
        (folder / name).mkdir(parents=True, exist_ok=True)
    for number, path in enumerate(paths):
        if not _is_complete(path):
            _crop(photograph, number, ROTATIONS[path.parent.name]).save(path, quality=90)
        made(number + 1)
    return paths


def _photograph() -> Image.Image:
    path: Any = cbook.get_sample_data("grace_hopper.jpg", asfileobj=False)
    try:
        with Image.open(path) as photograph:
            return photograph.convert("RGB")
    except OSError as error:
        raise LoadevalError(
            f"cannot read the photograph that matplotlib ships, from which the demo makes its "
            f"images ({path}: {error}); reinstall matplotlib from PyPI"
        ) from error


def _crop(photograph: Image.Image, number: int, rotation: Image.Transpose | None) -> Image.Image:
    random = np.random.default_rng([SEED, number])
    width, height = random.integers(SHORTEST, LONGEST, size=2, endpoint=True).tolist()
    left = int(random.integers(0, photograph.width - width, endpoint=True))
    top = int(random.integers(0, photograph.height - height, endpoint=True))
    crop = photograph.crop((left, top, left + width, top + height))
    return crop if rotation is None else crop.transpose(rotation)


def _is_complete(path: Path) -> bool:
    """Whether `path` is a file that ends like a JPEG, so it was written completely."""
    return path.is_file() and path.read_bytes().endswith(END_OF_JPEG)
