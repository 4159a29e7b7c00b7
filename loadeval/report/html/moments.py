"""The batches of a run on its axis of time, and what is told of each that is pointed at."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from loadeval.report.formatting import duration
from loadeval.report.html.drawing import axis
from loadeval.runlog.model import UNKNOWN, rank_in_epoch

if TYPE_CHECKING:
    import numpy.typing as npt

    from loadeval.report.html.blocks import Json
    from loadeval.runlog.model import Column, Run

SECOND_NS = 1e9
NS_DIGITS = 6
"""Decimals of a second that are drawn: microseconds."""


@dataclass(frozen=True)
class Moments:
    """The batches of `run`; where their times are not known, their numbers stand for them."""

    run: Run

    @cached_property
    def timed(self) -> bool:
        """Whether it is known when each batch was asked for."""
        request_ns = self.run.steps.request_ns
        return bool(len(request_ns)) and not bool((request_ns == UNKNOWN).any())

    @cached_property
    def x(self) -> npt.NDArray[np.float64]:
        """Where each batch is on the axis: seconds since the run's start, or its number."""
        if self.timed:
            return self.run.steps.request_ns / SECOND_NS
        return np.arange(len(self.run.steps), dtype=np.float64)

    @cached_property
    def number(self) -> Column:
        """Each batch's number within its epoch, from 0."""
        return rank_in_epoch(self.run.steps.epoch)

    @cached_property
    def iteration_ns(self) -> Column:
        """Wait and step of each batch together; nothing to go by where the step is open."""
        return self.run.steps.wait_ns + self.run.steps.step_ns

    def at(self, places: npt.NDArray[np.intp]) -> list[float]:
        """Where the batches at `places` are, as JSON takes it."""
        return [float(x) for x in np.round(self.x[places], NS_DIGITS).tolist()]

    def told(self, places: npt.NDArray[np.intp], what: str, values: Column) -> list[str]:
        """Of each batch its epoch, its number, when it was asked for, and `what` it took."""
        epochs, numbers = self.run.steps.epoch, self.number
        return [
            f"epoch {epochs[place]}, batch {numbers[place]}{self.when(place)}"
            f"<br>{what} {duration(int(values[place]))}"
            for place in places.tolist()
        ]

    def when(self, place: int) -> str:
        """When it was asked for, where that is known."""
        return f", at {seconds(self.x[place])}" if self.timed else ""

    def axis(self, **more: object) -> Json:
        """The axis, as wide as the run."""
        title = "time since the run began" if self.timed else "batch number"
        found = axis(title, showgrid=False, ticks="outside", ticklen=4, tickcolor="line", **more)
        if self.timed:
            found |= {"ticksuffix": " s"}
        return found | {"range": self.range()}

    def range(self) -> list[float]:
        """From the first batch to the end of the last step, with a little room."""
        if not len(self.x):
            return [0.0, 1.0]
        steps = self.run.steps
        first, last = float(self.x.min()), float(self.x.max())
        if self.timed:
            spent = steps.wait_ns + np.maximum(steps.step_ns, 0)
            last = float((self.x + spent / SECOND_NS).max())
        room = 0.01 * (last - first) or 0.5
        return [first - room, last + room]


def seconds(value: float) -> str:
    """A time since the run's start: 12.345 s."""
    return f"{value:,.3f} s"
