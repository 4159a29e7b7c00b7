"""A folder of real JPEGs, made from the photograph that matplotlib ships."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import cbook
from PIL import Image

ROTATIONS = {"upright": 0, "left": 90, "upside-down": 180, "right": 270}
"""A photograph's class is which way its top points."""
SIDE = 496


def make_photographs(folder: Path, count: int) -> list[Path]:
    """Fill `folder` with `count` JPEGs of SIDE x SIDE, a subfolder a class; returns them.

    The place and rotation of each crop depend only on its number, so every run makes the same
    files.
    """
    path: Any = cbook.get_sample_data("grace_hopper.jpg", asfileobj=False)
    with Image.open(path) as file:
        photograph = file.convert("RGB")
    room = [photograph.width - SIDE, photograph.height - SIDE]
    paths = []
    for number in range(count):
        name, degrees = list(ROTATIONS.items())[number % len(ROTATIONS)]
        left, top = np.random.default_rng(number).integers(0, room, endpoint=True).tolist()
        crop = photograph.crop((left, top, left + SIDE, top + SIDE))
        (folder / name).mkdir(parents=True, exist_ok=True)
        paths.append(folder / name / f"{number:04d}.jpg")
        crop.rotate(degrees).save(paths[-1], quality=90)
    return paths
