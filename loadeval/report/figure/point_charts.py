"""What the figures over a run show, as plain data: waits, steps, iterations and their axes.

matplotlib and plotly draw it, and decide nothing. What is drawn is thinned, and nothing else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.estimate.epochs import epoch_start_waits
from loadeval.analysis.estimate.steady import steady
from loadeval.analysis.estimate.summary import OUTLIER_TIMES_MEDIAN, iterations_of
from loadeval.data.columns import UNKNOWN
from loadeval.data.run import ARMS
from loadeval.report.formatting import (
    TIME_UNITS,
)
from loadeval.report.palette import NAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import numpy.typing as npt

    from loadeval.data.columns import Column, Values
    from loadeval.data.run import Run

    Rows = npt.NDArray[np.intp]
    Mask = npt.NDArray[np.bool_]

SECOND_NS = 1e9
LINE_BUCKETS = 1_000
"""Runs of neighbouring values, of each of which the least and the greatest are drawn."""
DOT_BUCKETS = 350
"""The same where each value is a dot, which takes a browser longer than a bend of a line."""
MOST_EPOCH_LINES = 40
LOG_FROM = 20
"""Times the typical value at which the greatest one asks for a logarithmic axis."""
MOST_DECADES = 5
"""Labelled on a logarithmic axis."""
FINE_TO = 20
"""Times the lowest power of ten: axes that end by then have labels between those too."""
OUTLIERS = f"over {OUTLIER_TIMES_MEDIAN}x median"


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis from `low` to `high`, with labels at `ticks`; a value of 0 is drawn at `floor`."""

    title: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    log: bool = False
    floor: float = 0.0

    def places(self, values: Column) -> Values:
        """Where `values` are drawn on it."""
        return np.maximum(values, self.floor).astype(np.float64)


def round_ticks(highest: float) -> list[float]:
    """At least three ticks from 0 to `highest`, in steps of 1, 2 or 5 times a power of ten."""
    rough = highest / 2
    power = 10.0 ** math.floor(math.log10(rough))
    step = max(factor * power for factor in (1, 2, 5) if factor * power <= rough * 1.001)
    return [step * place for place in range(int(highest / step * 1.001) + 1)]


def tick_label(ns: float) -> str:
    """A round duration without the digits that say nothing: 10 ms."""
    if not ns:
        return "0"
    thousands = min(max(math.floor(math.log10(ns * 1.001)) // 3, 0), len(TIME_UNITS) - 1)
    return f"{ns / 1000**thousands:,g} {TIME_UNITS[thousands]}"


def linear_axis(highest: float, title: str, label: Callable[[float], str] = tick_label) -> Axis:
    """An axis from 0, with ticks of durations by default; where all is 0, with one tick."""
    ticks = tuple((tick, label(tick)) for tick in (round_ticks(highest) if highest else (0.0,)))
    highest = highest or 1.0
    return Axis(title, -0.03 * highest, 1.1 * highest, ticks)


def log_axis(ns: Column, title: str) -> Axis:
    """A logarithmic axis of durations; nothing, which has no place on it, is under the rest."""
    positive = ns[ns > 0] if ns.any() else np.ones(1)
    top = float(positive.max())
    first = math.floor(math.log10(positive.min()))
    decades = range(first, math.ceil(math.log10(top)) + 1)
    powers = [10.0**decade for decade in decades[:: math.ceil(len(decades) / MOST_DECADES)]]
    factors = (1, 2, 5) if top <= FINE_TO * powers[0] else (1,)
    shown = [factor * power for power in powers for factor in factors]
    ticks = [(tick, tick_label(tick)) for tick in shown if tick <= 1.5 * top]
    floor = 10.0**first
    if ns.min() <= 0:
        floor /= 10
        ticks = [(floor, "0"), *ticks]
    return Axis(title, 0.6 * floor, 2.0 * top, tuple(ticks), log=True, floor=floor)


def duration_axis(columns: Iterable[Column], title: str) -> Axis:
    """An axis of durations: logarithmic where a few are many times what is typical of a column."""
    known = [column for column in columns if len(column)]
    every = np.concatenate([*known, np.zeros(0, dtype=np.int64)])
    typical = min((float(np.median(column)) for column in known), default=0.0)
    top = int(every.max(initial=0))
    return log_axis(every, title) if top > LOG_FROM * typical else linear_axis(top, title)


@dataclass(frozen=True, slots=True, eq=False)
class RunTime:
    """Where each batch of a run is on an axis of time: seconds since its start, from and to.

    Where another tool measured, and the times are not known, the batches' numbers stand for them.
    """

    x: Values
    end: Values
    timed: bool

    @classmethod
    def of(cls, run: Run) -> RunTime:
        """The places of the batches of `run`, from when each was asked for."""
        steps = run.steps
        if not len(steps) or (steps.request_ns == UNKNOWN).any():
            numbers = np.arange(len(steps), dtype=np.float64)
            return cls(numbers, numbers, timed=False)
        spent_ns = steps.wait_ns + np.maximum(steps.step_ns, 0)
        return cls(steps.request_ns / SECOND_NS, (steps.request_ns + spent_ns) / SECOND_NS, True)

    @property
    def range(self) -> tuple[float, float]:
        """The first batch and the end of the last step, with a little room around them."""
        if not len(self.x):
            return 0.0, 1.0
        first, last = float(self.x.min()), float(self.end.max())
        room = 0.01 * (last - first) or 0.5
        return first - room, last + room


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Batches that are drawn alike: `rows` of the run's steps, thinned from `count`.

    A line `joined` through them is broken before the places `breaks` in `rows`.
    """

    name: str
    color: str
    rows: Rows
    count: int
    joined: bool = False
    breaks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """The measured blocks: their first and last rows, their arms' codes, and mean iterations."""

    first: Rows
    last: Rows
    arm: Column
    mean_ns: Values

    def __len__(self) -> int:
        return len(self.first)


@dataclass(frozen=True, slots=True, eq=False)
class PointChart:
    """A duration of each batch of `run`, `values`, over the run.

    `marks` lie over `points`. `medians` are horizontal lines, of a colour and at a value.
    """

    run: Run
    time: RunTime
    values: Column
    axis: Axis
    points: tuple[Points, ...]
    marks: tuple[Points, ...] = ()
    medians: tuple[tuple[str, float], ...] = ()

    @property
    def number(self) -> Column:
        """Each batch's number among all of the run."""
        return np.arange(len(self.run.steps))

    def places(self, points: Points, x: Column | Values) -> tuple[Values, Values]:
        """Where `points` are drawn: of `x`, which has a place for each batch, and on the axis.

        A line has a gap, which is not a number, between two epochs.
        """
        y = self.axis.places(self.values[points.rows])
        columns = x[points.rows].astype(np.float64), y
        across, up = (np.insert(column, points.breaks, np.nan) for column in columns)
        return across, up

    @property
    def epochs(self) -> Rows:
        """The rows at which a new epoch begins; none where they are too many to be drawn."""
        begins = np.flatnonzero(np.diff(self.run.steps.epoch)) + 1
        return begins if len(begins) <= MOST_EPOCH_LINES else begins[:0]

    @property
    def shown(self) -> tuple[int, int]:
        """How many batches are drawn, and of how many."""
        every = (*self.points, *self.marks)
        return sum(len(points.rows) for points in every), sum(points.count for points in every)


def waits_chart(run: Run) -> PointChart:
    """The wait for each batch: epoch starts, what counts of each arm, and the rest.

    Marked are outliers by their iteration, where epochs do not start.
    """
    wait_ns = run.steps.wait_ns
    points = [_points(run, wait_ns, *group) for group in _groups(run).items()]
    real = [arm.outliers for arm in iterations_of(run) if arm.arm == "real"]
    marks = [_dots(OUTLIERS, "outlier", outliers, wait_ns) for outliers in real]
    return _chart(run, wait_ns, duration_axis([wait_ns], "wait"), points, marks)


def waits_of_two(real: Run, ideal: Run) -> tuple[PointChart, PointChart]:
    """The waits of a real and of an ideal run on one axis; of the latter what is counted alone."""
    first, second = waits_chart(real), waits_chart(ideal)
    axis = duration_axis([first.values, second.values], "wait")
    counted = tuple(points for points in second.points if points.color == "ideal")
    return replace(first, axis=axis), replace(second, axis=axis, points=counted, marks=())


def steps_chart(run: Run) -> PointChart:
    """The step of each batch: what counts of each arm, and the rest."""
    groups = _groups(run)
    groups["not_counted"] = groups["not_counted"] | groups.pop("epoch_start")
    closed = run.steps.step_ns != UNKNOWN
    points = [
        _points(run, run.steps.step_ns, color, rows & closed) for color, rows in groups.items()
    ]
    axis = duration_axis([run.steps.step_ns[closed]], "step")
    return _chart(run, run.steps.step_ns, axis, points)


def iterations_chart(run: Run) -> PointChart:
    """The measured iterations, by arm, with the outliers of each and its median."""
    iteration_ns = run.steps.wait_ns + run.steps.step_ns
    arms = iterations_of(run)
    points, marks = [], []
    for arm in arms:
        usual = np.setdiff1d(arm.rows, arm.outliers, assume_unique=True)
        points.append(_dots(NAMES[arm.arm], arm.arm, usual, iteration_ns))
        marks.append(_dots(f"{arm.arm}, {OUTLIERS}", arm.arm, arm.outliers, iteration_ns))
    medians = tuple((str(arm.arm), arm.median_ns) for arm in arms)
    rows = np.concatenate([np.arange(0), *(arm.rows for arm in arms)])
    axis = duration_axis([iteration_ns[rows]], "iteration")
    return _chart(run, iteration_ns, axis, points, marks, medians)


def blocks_of(run: Run) -> Blocks:
    """The blocks of an alternating run, cut where an epoch begins within one."""
    steps = run.steps
    counts = (steps.pair != UNKNOWN) & (steps.step_ns != UNKNOWN)
    code = np.where(counts, steps.pair * len(ARMS) + steps.arm, UNKNOWN)
    first = np.flatnonzero(np.append([1], np.diff(code) | np.diff(steps.epoch))[: len(steps)])
    lengths = np.diff(first, append=len(steps))
    total_ns = np.add.reduceat(steps.wait_ns + steps.step_ns, first) if len(first) else lengths
    kept = counts[first]
    return Blocks(
        first[kept],
        (first + lengths - 1)[kept],
        steps.arm[first[kept]],
        (total_ns / np.maximum(lengths, 1))[kept],
    )


def epoch_starts_of(run: Run) -> tuple[Column, Column]:
    """The epochs that began with the loader itself, and the first wait of each in nanoseconds."""
    steps = run.steps
    first = steps.batch == 0
    waits = epoch_start_waits(run)
    if run.header.mode == "alternate":
        first &= steps.arm == ARMS.index("real")
    epochs: Column = steps.epoch[first]
    # Where the loader had batches ready, the first epoch has no epoch start to tell.
    return epochs[len(epochs) - len(waits) :], waits


def _groups(run: Run) -> dict[str, Mask]:
    """Which batches are epoch starts, count for an arm, or do neither, by colour."""
    steps = run.steps
    first: Mask = steps.batch == 0
    groups, rest = {"epoch_start": first}, ~first
    for code, arm in enumerate(ARMS):
        groups[arm] = steady(run, arm) & (steps.arm == code) & rest
        rest &= ~groups[arm]
    return {**groups, "not_counted": rest}


def _points(run: Run, values: Column, color: str, chosen: Mask) -> Points:
    rows = np.flatnonzero(chosen)
    if color not in ARMS or run.header.mode == "alternate":
        return _dots(NAMES[color], color, rows, values)
    # Batches of one arm alone follow on each other, so a line tells more than dots.
    kept = rows[extremes(values[rows], LINE_BUCKETS)]
    breaks = np.flatnonzero(np.diff(run.steps.epoch[kept])) + 1
    few = breaks.tolist() if len(breaks) <= MOST_EPOCH_LINES else []
    return Points(NAMES[color], color, kept, len(rows), joined=True, breaks=tuple(few))


def _dots(name: str, color: str, rows: Rows, values: Column) -> Points:
    return Points(name, color, rows[extremes(values[rows], DOT_BUCKETS)], len(rows))


def _chart(
    run: Run,
    values: Column,
    axis: Axis,
    points: Iterable[Points],
    marks: Iterable[Points] = (),
    medians: tuple[tuple[str, float], ...] = (),
) -> PointChart:
    shown, marked = (tuple(group for group in some if group.count) for some in (points, marks))
    return PointChart(run, RunTime.of(run), values, axis, shown, marked, medians)


def extremes(values: npt.NDArray[np.generic], buckets: int = LINE_BUCKETS) -> Rows:
    """Places in `values`, in order, of the least and the greatest in each of equal buckets.

    All of them where there are no more than two for each of the `buckets`.
    """
    if len(values) <= 2 * buckets:
        return np.arange(len(values))
    bounds = np.linspace(0, len(values), buckets + 1).astype(np.intp)
    bucket = np.repeat(np.arange(buckets), np.diff(bounds))
    # The last of a bucket in the order of values is its greatest, the first its least.
    order = np.lexsort((values, bucket))
    return np.unique(np.concatenate([order[bounds[:-1]], order[bounds[1:] - 1]]))
