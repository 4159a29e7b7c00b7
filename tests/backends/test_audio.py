"""What is done with recordings, and how far they differ."""

from __future__ import annotations

import numpy as np
import pytest

from loadeval.backends.audio import Transforms, parse_transforms
from loadeval.errors import UsageError


def test_all_transforms() -> None:
    parsed = parse_transforms("mono, resample 16000, crop 2.5s")
    assert parsed == Transforms(mono=True, rate=16000, seconds=2.5)
    assert parsed.values()["length"] == 40_000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "do not resample"),
        ("crop 3s", "do not resample, and recordings of different lengths make no batch"),
        ("resample 16000", "do not crop"),
        ("resample", "has no rate"),
        ("resample 0, crop 3s", "has no rate"),
        ("resample 16k, crop 3s", "has no rate"),
        ("resample 16000, crop 3", "has no length in seconds"),
        ("resample 16000, crop 0s", "has no length in seconds"),
        ("mono 2, resample 16000, crop 3s", "mono takes nothing"),
        ("crop 3s, resample 16000", "'resample 16000' comes after crop"),
        ("louder", "transform 'louder' is not known; expected mono"),
    ],
)
def test_what_cannot_be_done_is_said(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_transforms(text)


def test_differences_are_a_share_of_the_loudness() -> None:
    """Of all recordings, and of the one that differs most; the largest is of full scale."""
    reference = np.full((2, 1, 4), 0.1, np.float32)
    reference[1] = 0.2
    samples = reference.copy()
    samples[0] += 0.01
    difference = parse_transforms("resample 8, crop 1s").difference(samples, reference)
    assert difference.mean == pytest.approx(100 * 0.01 / np.sqrt(0.1**2 + 0.2**2), rel=1e-5)
    assert (difference.largest, difference.worst) == pytest.approx((1.0, 10.0), rel=1e-5)


def test_silence_differs_by_little() -> None:
    """What is not heard is no difference, and divides nothing by zero."""
    silence = np.zeros((1, 1, 4), np.float32)
    difference = parse_transforms("resample 8, crop 1s").difference(silence + 1e-6, silence)
    assert difference.worst == pytest.approx(0.1)
