"""Crops of one photograph, as JPEG files: what all tests of adapters decode."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from matplotlib.cbook import get_sample_data
from PIL import Image


def crops(*boxes: tuple[int, int, int, int]) -> list[bytes]:
    """The JPEG of each box, which is left, upper, right and lower."""
    jpegs = []
    with Image.open(str(get_sample_data("grace_hopper.jpg", asfileobj=False))) as photograph:
        for box in boxes:
            file = io.BytesIO()
            photograph.crop(box).save(file, "JPEG")
            jpegs.append(file.getvalue())
    return jpegs


FILES = crops(*((left, 100, left + 40, 132) for left in range(40)))
"""Forty of them, 40 by 32."""


def decode(file: bytes) -> np.ndarray[Any, Any]:
    with Image.open(io.BytesIO(file)) as image:
        return np.asarray(image.convert("RGB"))


def collate(images: list[np.ndarray[Any, Any]]) -> dict[str, Any]:
    """A batch that tells which images are in it, by their sums."""
    return {"images": np.stack(images), "names": [f"{image.sum()}" for image in images]}
