"""The transforms of a loader: what each takes of a batch, and how large it makes a sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.estimate.stats import Series
    from loadeval.data.run import Run

OWN_CODE = (".__call__", ".forward")
"""So end the names of transforms that call other transforms: that is their own code."""
LEAST_OWN_CODE = 0.05
"""Own code that takes a smaller share of fetching and collating only calls transforms."""
NOTHING = np.empty(0)


@dataclass(frozen=True, slots=True)
class TransformTime:
    """One transform, or function of the dataset: per batch its calls and its own time.

    `share` is its part of fetching and collating a batch. One that calls other transforms has the
    name of the method that does, `Compose.__call__`, and the time of that method's own code.
    """

    name: str
    calls: float
    ns: float
    share: float

    @property
    def function(self) -> str:
        """Its name, without the number that tells it from others of that name."""
        return function_of(self.name)

    @property
    def calls_others(self) -> bool:
        """Whether it calls other transforms."""
        return calls_others(self.name)


@dataclass(frozen=True, slots=True)
class TransformSizes:
    """The numbers that a sample has before and after a transform: pixels, times their channels."""

    name: str
    before: float
    after: float


def function_of(name: str) -> str:
    """The name of a transform without the number that tells it from others of that name."""
    return name.partition(" (")[0]


def calls_others(name: str) -> bool:
    """Whether a transform of that name calls other transforms."""
    return function_of(name).endswith(OWN_CODE)


def transforms_of(run: Run, work_ns: float) -> tuple[tuple[TransformTime, ...], tuple[str, ...]]:
    """The transforms, the longest first, and the methods that do little but call them.

    Fetching and collating a batch takes `work_ns`.
    """
    transforms = []
    for name, table in run.transforms.items():
        later = table.batch >= 1
        own_ns, calls = (
            _mean_known([column[later] if later.any() else column])
            for column in (table.ns, table.calls)
        )
        if calls:
            transforms.append(
                TransformTime(name, calls, own_ns, own_ns / work_ns if work_ns else 0.0)
            )
    transforms.sort(key=lambda transform: -transform.ns)
    shown = [
        transform
        for transform in transforms
        if not transform.calls_others or transform.share >= LEAST_OWN_CODE
    ]
    callers = dict.fromkeys(transform.function for transform in transforms)
    for transform in shown:
        callers.pop(transform.function, None)
    return tuple(shown), tuple(callers)


def sizes_of(run: Run) -> tuple[TransformSizes, ...]:
    """The sizes that are known from any batch, steady or not; not of what only calls transforms."""
    return tuple(
        TransformSizes(name, *sizes) for name, sizes in run.sizes.items() if not calls_others(name)
    )


def _mean_known(columns: Sequence[Series]) -> float:
    """The mean of what is a number in `columns`; 0 where nothing is."""
    column = np.concatenate(columns)
    known = column[~np.isnan(column)]
    return float(known.mean()) if len(known) else 0.0
