"""What was read of the machine while a run went on, and how long its device starved."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - `lines` reads the annotations at run time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from loadeval.runlog.model import UNKNOWN, Column

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from loadeval.runlog.steps import Steps

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Readings:
    """What one probe read of one subject, a device or a process, in columns of equal length.

    `time_ns` counts from the run's start. The name of each quantity ends in its unit, and its
    value is of that moment, or a mean since the reading before; NaN is "not known". `missing`
    says why there are none, or from some time on no more.
    """

    probe: str
    subject: str
    time_ns: Column
    values: Mapping[str, Values]
    missing: str | None = None

    def __len__(self) -> int:
        return len(self.time_ns)


@dataclass(frozen=True, slots=True, eq=False)
class Starvation:
    """How long the device had nothing to do before batches of an epoch, by its own clock.

    `starved_ns` has a value for each batch from number `first` of the epoch on; UNKNOWN is -1.
    """

    epoch: int
    first: int
    starved_ns: Column

    def __len__(self) -> int:
        return len(self.starved_ns)


def joined(parts: Iterable[Readings]) -> tuple[Readings, ...]:
    """One Readings for each probe and subject, in the order in which they came first."""
    found: dict[tuple[str, str], list[Readings]] = {}
    for part in parts:
        found.setdefault((part.probe, part.subject), []).append(part)
    return tuple(map(_joined, found.values()))


def starvations(steps: Steps) -> Iterator[Starvation]:
    """What `steps` know of the device's starving, as a line for each epoch."""
    for epoch in np.unique(steps.epoch).tolist():
        starved_ns = steps.starved_ns[steps.epoch == epoch]
        if (starved_ns != UNKNOWN).any():
            yield Starvation(epoch, 0, starved_ns)


def _joined(parts: list[Readings]) -> Readings:
    names = list(dict.fromkeys(name for part in parts for name in part.values))
    return Readings(
        parts[0].probe,
        parts[0].subject,
        np.concatenate([part.time_ns for part in parts]),
        {name: np.concatenate([_column(part, name) for part in parts]) for name in names},
        parts[-1].missing,
    )


def _column(part: Readings, name: str) -> Values:
    found = part.values.get(name)
    return np.full(len(part), np.nan) if found is None else found
