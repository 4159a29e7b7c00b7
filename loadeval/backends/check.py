"""Whether a backend loads the same as the reference, and what it does with broken samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from loadeval.analysis.choice import BadFile, DataDifference, OnBadFile
from loadeval.backends.samples import name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from loadeval.backends.samples import Sample
    from loadeval.backends.served import Loaded

UNREAD_SHARE = 0.5
"""A backend that does not read this share of the samples is not measured."""
MOST_TRIES = 400
"""So many times a backend is asked, at most, to find the samples that it does not read."""


class Transforms(Protocol):
    """What is done with each sample of a kind of data."""

    def values(self) -> dict[str, Any]:
        """What templates need of them."""
        ...

    def difference(
        self, samples: npt.NDArray[Any], reference: npt.NDArray[Any], /
    ) -> DataDifference:
        """How far samples are from those of the reference, which have the same shape."""
        ...


class Reading:
    """What a backend makes of samples: those that it reads, and what becomes of the others.

    `load` loads samples with the backend.
    """

    def __init__(
        self, load: Callable[[Sequence[Sample]], Loaded], samples: Sequence[Sample]
    ) -> None:
        self.good: list[Sample] = []
        self.bad: list[BadFile] = []
        self._load = load
        self._tries = 0
        self._read(samples)

    def _read(self, samples: Sequence[Sample]) -> None:
        """Read all at once, and where that fails its halves."""
        if not samples:
            return
        loaded = self._load(samples)
        self._tries += 1
        if is_whole(loaded, samples):
            self.good += samples
        elif len(samples) == 1:
            self.bad.append(bad_file(samples[0], loaded))
        elif self._tries > MOST_TRIES:
            self.bad += [bad_file(sample, loaded) for sample in samples]
        else:
            middle = len(samples) // 2
            self._read(samples[:middle])
            self._read(samples[middle:])


def is_whole(loaded: Loaded, samples: Sequence[Sample]) -> bool:
    """Whether there is one for each of `samples`."""
    return loaded.samples is not None and len(loaded.samples) == len(samples)


def bad_file(sample: Sample, loaded: Loaded) -> BadFile:
    """What became of `sample`, which was loaded by itself."""
    name = name_of(sample)
    if loaded.samples is None:
        return BadFile(name, OnBadFile.ENDS if loaded.ended else OnBadFile.RAISES, loaded.error)
    return BadFile(name, OnBadFile.FILLS if len(loaded.samples) else OnBadFile.SKIPS)


def difference_of(
    samples: npt.NDArray[Any], reference: npt.NDArray[Any], transforms: Transforms
) -> DataDifference | None:
    """How far `samples` are from those of the `reference`; None where their shapes differ."""
    if samples.shape != reference.shape:
        return None
    return transforms.difference(samples, reference)
