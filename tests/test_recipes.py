"""Recipes load the same images from a folder of JPEGs, whatever library decodes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadeval.backends import RECIPES, recipe_loader
from tests.images import crops

# Higher than wide, wider than high, large enough for a JPEG to be decoded at half its size, and
# smaller than what it is resized to.
BOXES = [(0, 0, 400, 600), (0, 100, 512, 400), (0, 0, 512, 576), (100, 100, 290, 300)]
PIXELS = {"pillow": 0, "pillow_draft": 4, "opencv": 4, "simplejpeg": 4, "dali": 1, "spdl": 0}
"""How much the pixels of each may differ, of 255 levels on average; a crop aside makes 6."""


def loaded(
    name: str, samples: list[tuple[str, int]], workers: int, cropped: int = 224
) -> dict[int, Any]:
    """The images that one epoch serves, by their class."""
    images: dict[int, Any] = {}
    for batch, labels in recipe_loader(name, samples, 3, workers, cropped=cropped):
        assert batch.shape[1:] == (3, cropped, cropped)
        assert len(batch) == len(labels) <= 3
        images |= {int(label): image.numpy() for image, label in zip(batch, labels, strict=True)}
    return images


NOT_IN_TEST = {"opencv", "simplejpeg"}
"""The extra `test` does not install these."""


EACH = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.check] if name in NOT_IN_TEST else [])
        for name in RECIPES
    ],
)


@EACH
def test_each_serves_the_same_images_and_classes(name: str, tmp_path: Path) -> None:
    """The last batch too, which is smaller; near Pillow's pixels."""
    samples = []
    for number, jpeg in enumerate(crops(*BOXES)):
        path = tmp_path / f"{number}.jpg"
        path.write_bytes(jpeg)
        samples.append((str(path), number))
    reference, images = loaded("pillow", samples, 0), loaded(name, samples, 1)
    assert sorted(images) == sorted(reference) == [0, 1, 2, 3]
    for number, image in images.items():
        difference = np.abs(image.astype(np.int16) - reference[number]).mean()
        assert difference <= PIXELS[name], (number, difference)


@EACH
def test_the_square_may_be_of_another_size(name: str, tmp_path: Path) -> None:
    """It is the middle of the same image."""
    (tmp_path / "0.jpg").write_bytes(crops(BOXES[0])[0])
    samples = [(str(tmp_path / "0.jpg"), 0)]
    whole, middle = (loaded(name, samples, 0, cropped)[0] for cropped in (224, 112))
    np.testing.assert_array_equal(middle, whole[:, 56:168, 56:168])
