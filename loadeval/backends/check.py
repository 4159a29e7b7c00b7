"""Whether a backend loads the same as the reference, and what it does with broken files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from loadeval.analysis.choice import BadFile, OnBadFile, PixelDifference
from loadeval.backends.transforms import LEVELS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from loadeval.backends.data import Sample
    from loadeval.backends.served import Loaded, ServedBackend
    from loadeval.backends.transforms import Transforms

UNREAD_SHARE = 0.5
"""A backend that does not read this share of the files is not measured."""
MOST_TRIES = 400
"""So many times a backend is asked, at most, to find the files that it does not read."""


class Reading:
    """What a backend makes of files: those that it reads, and what becomes of the others."""

    def __init__(self, backend: ServedBackend, samples: Sequence[Sample]) -> None:
        self.good: list[Sample] = []
        self.bad: list[BadFile] = []
        self._backend = backend
        self._tries = 0
        self._read(samples)

    def _read(self, samples: Sequence[Sample]) -> None:
        """Read all at once, and where that fails its halves."""
        if not samples:
            return
        loaded = self._backend.load(samples)
        self._tries += 1
        if is_whole(loaded, samples):
            self.good += samples
        elif len(samples) == 1:
            self.bad.append(bad_file(samples[0][0], loaded))
        elif self._tries > MOST_TRIES:
            self.bad += [bad_file(path, loaded) for path, _ in samples]
        else:
            middle = len(samples) // 2
            self._read(samples[:middle])
            self._read(samples[middle:])


def is_whole(loaded: Loaded, samples: Sequence[Sample]) -> bool:
    """Whether there is one for each of `samples`."""
    return loaded.samples is not None and len(loaded.samples) == len(samples)


def bad_file(path: str, loaded: Loaded) -> BadFile:
    """What became of the file at `path`, which was loaded by itself."""
    name = Path(path).name
    if loaded.samples is None:
        return BadFile(name, OnBadFile.RAISES, loaded.error)
    return BadFile(name, OnBadFile.FILLS if len(loaded.samples) else OnBadFile.SKIPS)


def truncated_copy(sample: Sample, folder: Path) -> Sample:
    """A file in `folder` that has the first half of the bytes of `sample`."""
    path, label = sample
    data = Path(path).read_bytes()
    copy = folder / f"half{Path(path).suffix}"
    copy.write_bytes(data[: len(data) // 2])
    return str(copy), label


def difference_of(
    samples: npt.NDArray[Any], reference: npt.NDArray[Any], transforms: Transforms
) -> PixelDifference | None:
    """How far `samples` are from those of the `reference`; None where their shapes differ."""
    if samples.shape != reference.shape:
        return None
    levels = np.abs(_in_levels(samples, transforms) - _in_levels(reference, transforms))
    each = levels.mean(axis=tuple(range(1, levels.ndim)))
    return PixelDifference(
        float(levels.mean()), float(levels.max()), float(each.max()), len(samples)
    )


def _in_levels(samples: npt.NDArray[Any], transforms: Transforms) -> npt.NDArray[np.float32]:
    """Without normalisation; what is added to each level does not change a difference."""
    levels = samples.astype(np.float32)
    if transforms.std:
        levels *= LEVELS * np.asarray(transforms.std, dtype=np.float32)[:, None, None]
    return levels
