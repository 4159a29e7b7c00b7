"""A stretch of one epoch, batch by batch: what each worker and the training process did when."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.inside.timeline import LoaderTimeline
from loadeval.data.columns import UNKNOWN, Columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.inside.timeline import Mask
    from loadeval.data.columns import Column
    from loadeval.data.run import Run

MOST_BATCHES = 200
"""Batches of a stretch: more are narrower than a pixel, and slow to draw."""


class Choice(Enum):
    """Why this stretch was chosen."""

    WHOLE_EPOCH = "whole epoch"
    HEAD_OF_LINE = "longest head-of-line wait"
    TYPICAL = "typical"


@dataclass(frozen=True, slots=True, eq=False)
class Lanes:
    """Consecutive batches of one epoch, in columns of equal length; times since the run's start.

    A batch is fetched until `fetched_ns`, collated until `collated_ns`, and pickled from
    `pickle_start_ns` to `ready_ns`, which are equal where it was not. Training waited for it from
    `requested_ns` to `delivered_ns`, for `head_of_line_ns` of that while a later one lay ready; 0
    where that is shorter than the median time from one batch to the next. `step_start_ns` and
    `step_end_ns` are the training steps of that time, in columns of their own. `of` is how many
    batches the epoch has, and `workers` are in order; UNKNOWN is the training process.
    """

    times: Columns
    choice: Choice
    of: int
    workers: tuple[int, ...]
    fetched_ns: Column
    collated_ns: Column
    pickle_start_ns: Column
    ready_ns: Column
    head_of_line_ns: Column
    step_start_ns: Column
    step_end_ns: Column

    def __len__(self) -> int:
        return len(self.times)

    @property
    def span(self) -> tuple[int, int]:
        """From when the first batch was begun or requested to the end of what is shown."""
        times = self.times
        first = min(times.requested_ns.min(), times.fetch_start_ns.min())
        last = max(times.delivered_ns.max(), self.ready_ns.max(), self.step_end_ns.max(initial=0))
        return int(first), int(last)


def lanes_of(run: Run) -> Lanes | None:
    """The stretch of `run` to look at; None where its loader was not looked into.

    This is the whole of an epoch that is short enough; else the part around the longest
    head-of-line wait, if that was long, or the part that took the median time. It is taken from the
    last of the longest epochs.
    """
    epochs = [
        LoaderTimeline(*part, run.loader.prefetch_depth or 0) for part in run.stages.by("epoch")
    ]
    epochs = [epoch for epoch in epochs if len(epoch)]
    if not epochs:
        return None
    blocked = [epoch.head_of_line_ns() for epoch in epochs]
    chosen = max(range(len(epochs)), key=lambda index: (len(epochs[index]), index))
    if max(map(len, epochs)) > MOST_BATCHES:
        worst = max(range(len(epochs)), key=lambda index: int(blocked[index].max()))
        if _long(epochs[worst], blocked[worst]).any():
            return _lanes(run, epochs[worst], blocked[worst], Choice.HEAD_OF_LINE)
        return _lanes(run, epochs[chosen], blocked[chosen], Choice.TYPICAL)
    return _lanes(run, epochs[chosen], blocked[chosen], Choice.WHOLE_EPOCH)


def _lanes(run: Run, epoch: LoaderTimeline, blocked_ns: Column, choice: Choice) -> Lanes:
    rows = _rows(epoch, blocked_ns, choice)
    times = epoch.times.take(rows)
    known = times.pickle_start_ns != UNKNOWN
    begin_ns, end_ns = int(times.requested_ns[0]), int(times.delivered_ns[-1])
    start, stop = _steps(run.steps, begin_ns, end_ns)
    return Lanes(
        times=times,
        choice=choice,
        of=len(epoch),
        workers=tuple(np.unique(times.worker).tolist()),
        fetched_ns=epoch.fetched_ns[rows],
        collated_ns=epoch.collated_ns[rows],
        pickle_start_ns=np.where(known, times.pickle_start_ns, epoch.ready_ns[rows]),
        ready_ns=epoch.ready_ns[rows],
        head_of_line_ns=np.where(_long(epoch, blocked_ns), blocked_ns, 0)[rows],
        step_start_ns=start,
        step_end_ns=stop,
    )


def _rows(epoch: LoaderTimeline, blocked_ns: Column, choice: Choice) -> slice:
    """At most MOST_BATCHES rows of `epoch`."""
    last = max(len(epoch) - MOST_BATCHES, 0)
    if choice is Choice.HEAD_OF_LINE:
        first = int(blocked_ns.argmax()) - MOST_BATCHES // 2
    elif choice is Choice.TYPICAL:
        starts = range(1, last + 1, max(MOST_BATCHES // 4, 1))
        first = starts[_median_place([_took_ns(epoch.times, start) for start in starts])]
    else:
        first = 0
    first = min(max(first, 0), last)
    return slice(first, first + MOST_BATCHES)


def _took_ns(times: Columns, first: int) -> int:
    return int(times.delivered_ns[first + MOST_BATCHES - 1] - times.requested_ns[first])


def _median_place(values: Sequence[int]) -> int:
    return int(np.argsort(values, kind="stable")[(len(values) - 1) // 2])


def _long(epoch: LoaderTimeline, blocked_ns: Column) -> Mask:
    """Which head-of-line waits took as long as the median time from one batch to the next."""
    between = np.diff(epoch.times.delivered_ns)
    shortest_ns = max(float(np.median(between)), 1.0) if len(between) else np.inf
    return np.asarray(blocked_ns >= shortest_ns)


def _steps(steps: Columns, begin_ns: int, end_ns: int) -> tuple[Column, Column]:
    """Beginning and end of each training step that began between the two moments."""
    known = (steps.request_ns != UNKNOWN) & (steps.step_ns != UNKNOWN)
    start = steps.request_ns + steps.wait_ns
    known &= (start >= begin_ns) & (start <= end_ns)
    return start[known], (start + steps.step_ns)[known]
