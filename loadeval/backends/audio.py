"""What is to be done with each recording, such as "mono, resample 16000, crop 3s"."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from loadeval.analysis.choice import DataDifference
from loadeval.backends.transforms import parse
from loadeval.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

EXAMPLE = '"mono, resample 16000, crop 3s"'
KNOWN = (
    "mono (the mean of all channels), resample 16000 (samples per second), and crop 3s (from the "
    "beginning; what is shorter is filled with zeros)"
)
SECONDS = re.compile(r"(\d{1,4}(?:\.\d{1,3})?)s")
PERCENT = 100
QUIETEST = 1e-3
"""What is quieter is taken for as loud as this, of 1: what nobody hears is no difference."""


@dataclass(frozen=True, slots=True)
class Transforms:
    """What is done with a recording: `rate` is in samples per second, `seconds` are kept."""

    mono: bool = False
    rate: int = 0
    seconds: float = 0.0

    def values(self) -> dict[str, Any]:
        """What templates need of them."""
        return {
            "mono": self.mono,
            "rate": self.rate,
            "seconds": self.seconds,
            "length": round(self.seconds * self.rate),
        }

    def difference(self, samples: npt.NDArray[Any], reference: npt.NDArray[Any]) -> DataDifference:
        """How far waveforms are from those of the reference, of the same shape, in percent.

        The root mean square of the difference over that of the reference; the largest is of 1.
        """
        apart = samples.astype(np.float64) - reference
        each = tuple(range(1, apart.ndim))
        shares = _loudness(apart, each) / np.maximum(_loudness(reference, each), QUIETEST)
        share = _loudness(apart, None) / max(_loudness(reference, None), QUIETEST)
        return DataDifference(
            float(PERCENT * share),
            float(PERCENT * np.abs(apart).max()),
            float(PERCENT * shares.max()),
            len(samples),
        )


def parse_transforms(text: str) -> Transforms:
    """The transforms that `text` names, with commas between them.

    Raises UsageError for one that is not known, stands twice or in another order, and where
    recordings would be of different lengths.
    """
    transforms = parse(text, Transforms(), PARSERS, KNOWN, EXAMPLE)
    if not transforms.rate or not transforms.seconds:
        lacks = "crop" if transforms.rate else "resample"
        raise UsageError(
            f"the transforms {text!r} do not {lacks}, and recordings of different lengths make no "
            f"batch; expected such as {EXAMPLE}"
        )
    return transforms


def _loudness(waveforms: npt.NDArray[Any], axes: tuple[int, ...] | None) -> Any:
    """The root mean square."""
    return np.sqrt(np.mean(np.square(waveforms, dtype=np.float64), axis=axes))


def _mono(transforms: Transforms, words: list[str], part: str) -> Transforms:
    if words:
        raise UsageError(f"transform {part!r}: mono takes nothing; expected mono")
    return replace(transforms, mono=True)


def _resample(transforms: Transforms, words: list[str], part: str) -> Transforms:
    if len(words) != 1 or not words[0].isdecimal() or not int(words[0]):
        raise UsageError(f"transform {part!r} has no rate; expected {KNOWN}")
    return replace(transforms, rate=int(words[0]))


def _crop(transforms: Transforms, words: list[str], part: str) -> Transforms:
    match = SECONDS.fullmatch(words[0]) if len(words) == 1 else None
    if match is None or not float(match[1]):
        raise UsageError(f"transform {part!r} has no length in seconds; expected {KNOWN}")
    return replace(transforms, seconds=float(match[1]))


PARSERS: dict[str, Callable[[Transforms, list[str], str], Transforms]] = {
    "mono": _mono,
    "resample": _resample,
    "crop": _crop,
}
