"""A folder of real JPEGs, made from the photograph that matplotlib ships."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import cbook
from PIL import Image

ROTATIONS = {
    "upright": None,
    "left": Image.Transpose.ROTATE_90,
    "upside-down": Image.Transpose.ROTATE_180,
    "right": Image.Transpose.ROTATE_270,
}
"""A photograph's class is which way its top points."""


def make_photographs(folder: Path, count: int) -> list[Path]:
    """Fill `folder` with `count` JPEGs of about 500 x 500, a subfolder a class; returns them.

    The size, place and rotation of each crop depend only on its number, so every run makes the
    same files.
    """
    path: Any = cbook.get_sample_data("grace_hopper.jpg", asfileobj=False)
    with Image.open(path) as file:
        photograph = file.convert("RGB")
    paths = []
    for number in range(count):
        name, rotation = list(ROTATIONS.items())[number % len(ROTATIONS)]
        random = np.random.default_rng([1906, number])
        width, height = random.integers(480, 512, size=2, endpoint=True).tolist()
        left = int(random.integers(0, photograph.width - width, endpoint=True))
        top = int(random.integers(0, photograph.height - height, endpoint=True))
        crop = photograph.crop((left, top, left + width, top + height))
        (folder / name).mkdir(parents=True, exist_ok=True)
        paths.append(folder / name / f"{number:04d}.jpg")
        (crop if rotation is None else crop.transpose(rotation)).save(paths[-1], quality=90)
    return paths
