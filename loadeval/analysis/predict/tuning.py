"""Which settings of a loader to measure next, when to stop, and which are best.

Nothing is measured here: predictions and measurements are given, settings to measure come back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import product
from typing import TYPE_CHECKING, Any, TypeAlias, final

from loadeval.analysis.estimate.stats import Estimate
from loadeval.analysis.predict.prediction import Limit

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.analysis.predict.prediction import Prediction, Range, WorkerCurve
    from loadeval.analysis.remark import Remark

CLEARLY = 0.05
"""A point that is faster by this share is faster, however wide the interval of the ratio."""
WORTHWHILE = 0.02
"""A gain below this share is none."""
LEAST_RATIO = 1e-9
MOST_IN_TURNS = 4
"""Settings that are measured in turns: the more there are, the longer a round takes."""
DEEPER = 4
"""A queue may be so many times as deep as those measured before, where deep ones come last."""
WORKERS = "num_workers"
OF_WORKERS = ("prefetch_factor", "in_order", "persistent_workers", "multiprocessing_context")
"""Settings that mean nothing without workers."""

Point: TypeAlias = Mapping[str, Any]
"""A value for each setting that is tuned; without workers none for those in OF_WORKERS."""


class Stop(Enum):
    """Why no further settings were measured."""

    BETTER = "better than its neighbours"
    SMALL_GAIN = "small predicted gain"
    NO_FASTER = "no neighbour is faster"
    MAX_TRIALS = "max_trials"
    INTERRUPTED = "interrupted"
    TRAINING_ENDED = "training ended"


class TrialState(Enum):
    """What became of a trial."""

    MEASURED = "measured"
    FAILED = "failed"
    NOT_MEASURED = "not measured"


class LeftOut(Enum):
    """Why settings were not tried."""

    MEMORY = "memory"
    SHARED_MEMORY = "shared memory"


@dataclass(frozen=True, slots=True)
class Trial:
    """Settings that were tried, predicted and measured; throughputs are per second.

    `throughput` and the prediction's are of the steady state; `epoch_throughput` includes the
    starts of epochs, and is None where the length of an epoch is not known. `ratio` is the
    throughput over that with the present settings, over whole epochs where their length is known:
    measured in turns with these, or both with the best settings until then. `memory_bytes` is
    predicted, and `prediction` what was predicted before the settings were measured. `error` is
    what failed.
    """

    settings: Mapping[str, Any]
    state: TrialState
    prediction: Prediction | None = None
    throughput: Estimate | None = None
    epoch_throughput: Estimate | None = None
    ratio: Estimate | None = None
    memory_bytes: float | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class SettingsLeftOut:
    """Settings that were not tried, and why: a code of LeftOut."""

    settings: Mapping[str, Any]
    reason: Remark


@dataclass(frozen=True, slots=True)
class TuningReport:
    """What tuning a loader found; throughputs are per second, in `unit`.

    `trials` are in the order in which they were measured, the `present` settings first. `gain` is
    the throughput of the best over that of the present ones, measured in turns, with its 95% CI;
    None where the present ones are best, or were not measured in turns with the best. `stopped` is
    why no more were measured. Without a `step` it is the throughput of the loader alone, and if
    `predicted` is False the settings were found by measuring alone. `epoch_batches` is the length
    of an epoch, None where it is not known and its start was left out. `curve` is throughput
    against `num_workers` with the other settings of the present, predicted by all that was
    measured; the best is among what was measured, whatever its other settings are. None where
    nothing was predicted. `left` is how much as fast as the best ideal loading would be.
    """

    trials: tuple[Trial, ...]
    best: Trial
    gain: Estimate | None
    stopped: Stop
    left_out: tuple[SettingsLeftOut, ...]
    unit: str
    step: bool
    predicted: bool
    epoch_batches: float | None
    curve: WorkerCurve | None
    left: Estimate | None

    @property
    def present(self) -> Trial:
        """The settings that were there before."""
        return self.trials[0]


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is predicted of a point, and why not to try it, if so; `throughput` is over an epoch."""

    throughput: Range
    prediction: Prediction
    left_out: Remark | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What measuring a point in turns with others gave; None was not measured.

    `over` has its throughput over that of the others, by their places.
    """

    throughput: Estimate | None = None
    epoch_throughput: Estimate | None = None
    over: Mapping[int, Estimate] = field(default_factory=dict)
    error: str | None = None

    @property
    def state(self) -> TrialState:
        """Whether it was measured."""
        if self.error is not None:
            return TrialState.FAILED
        return TrialState.NOT_MEASURED if self.throughput is None else TrialState.MEASURED


def canonical(point: Point) -> Point:
    """`point` without what means nothing in it."""
    if point.get(WORKERS) != 0:
        return point
    return {name: value for name, value in point.items() if name not in OF_WORKERS}


def depth_of(point: Point) -> int:
    """The batches in its queue, where all of it is known, and else 0."""
    return int(point.get(WORKERS, 0) * (point.get("prefetch_factor") or 0))


def times(first: Estimate, second: Estimate) -> Estimate:
    """The product of two independent ratios."""
    value, apart = first.value * second.value, []
    for ratio in (first, second):
        if ratio.low is None or ratio.high is None:
            return Estimate(value)
        bounds = (max(bound, LEAST_RATIO) for bound in (ratio.low, ratio.high))
        apart.append([math.log(bound / ratio.value) for bound in bounds])
    below, above = (math.exp(math.hypot(*logs)) for logs in zip(*apart, strict=True))
    return Estimate(value, value / below, value * above)


@final
class Search:
    """Chooses what to measure next from predictions, or from measured neighbours alone.

    `present` has a value for each name in `space`, and is point 0; `space` has the values of each,
    the cheapest first. `predicted` names the settings that predictions tell apart. Of the others,
    one at a time is tried at the end, for the best. `max_trials` points are measured at most, none
    with a queue of more than `deepest` batches. A measurement takes some multiple of its queue:
    beyond `cautious` batches none is over DEEPER times as deep as those measured before.
    """

    def __init__(
        self,
        present: Point,
        space: Mapping[str, Sequence[Any]],
        predicted: Sequence[str],
        max_trials: int,
        deepest: float = math.inf,
        cautious: float = math.inf,
    ) -> None:
        self.points: list[Point] = [canonical(present)]
        self.outcomes: list[Outcome] = [Outcome()]
        self.forecasts: list[Forecast | None] = [None]
        """What was predicted of each point before it was measured."""
        self.left_out: list[tuple[Point, Remark]] = []
        self.stopped: Stop | None = None
        self._present = present
        self._space = space
        self._predicted = [name for name in space if name in predicted]
        self._max_trials = max_trials
        self._deepest = deepest
        self._cautious = cautious
        self._ratios: dict[tuple[int, int], Estimate] = {}
        self._forecast: Callable[[Point], Forecast] | None = None

    def add(self, group: Sequence[Point], outcomes: Sequence[Outcome]) -> None:
        """`group` was measured in turns."""
        places = [self._number(point) for point in group]
        for place, outcome in zip(places, outcomes, strict=True):
            if outcome.state is not TrialState.NOT_MEASURED or self.outcomes[place].state is (
                TrialState.NOT_MEASURED
            ):
                self.outcomes[place] = outcome
            for other, ratio in outcome.over.items():
                self._ratios[place, places[other]] = ratio
        if 0 not in places:
            for place in places[1:]:
                beside, before = self.ratio(place, places[0]), self.ratio(places[0])
                if beside is not None and before is not None:
                    self._ratios[place, 0] = times(beside, before)

    def next_group(self, forecast: Callable[[Point], Forecast] | None) -> list[Point]:
        """What to measure in turns; nothing once `stopped` is set.

        `forecast` predicts a point; without it a neighbour of the best is next.
        """
        if self.stopped is not None:
            return []
        self._forecast = forecast
        new = self._climb() if forecast is None else self._predict(forecast)
        if new and len(self.points) >= self._max_trials:
            self.stopped = Stop.MAX_TRIALS
        elif not new:
            self.stopped = self._why_stopped()
        else:
            return self._group(new)
        return []

    @property
    def best(self) -> int:
        """The number of the fastest point; of those level with it, of the cheapest one.

        Two are level within WORTHWHILE; and up to CLEARLY within the interval of their ratio,
        unless predictions and measurements agree on which is faster.
        """
        measured = [
            number
            for number, outcome in enumerate(self.outcomes)
            if outcome.state is TrialState.MEASURED
        ]
        top = max(measured, key=self._measured_ratio, default=0)
        level = [number for number in measured if number == top or self._are_level(top, number)]
        return min(level, key=lambda number: (self._cost(self.points[number]), number), default=0)

    def ratio(self, number: int, other: int = 0) -> Estimate | None:
        """The throughput of a point over that of another, where they were measured in turns.

        Over that of the present one also where both were measured in turns with the same point.
        """
        return self._ratios.get((number, other))

    def _group(self, new: Sequence[Point]) -> list[Point]:
        """The best point, at first the present one, and as many new ones as there is room for."""
        best = self.points[self.best]
        room = min(MOST_IN_TURNS - 1, self._max_trials - len(self.points))
        chosen = list(new[:room])
        for point in chosen:
            self.points.append(point)
            self.outcomes.append(Outcome())
            is_predicted = self._forecast is not None and self._is_predicted(point)
            self.forecasts.append(
                self._forecast(point) if self._forecast is not None and is_predicted else None
            )
        return [best, *chosen]

    def _climb(self) -> list[Point]:
        """The neighbours of the best in the first direction that has some to measure."""
        best = self.points[self.best]
        for name in self._space:
            neighbours = self._unmeasured(self._neighbours(best, [name]))
            if neighbours:
                return neighbours
        return []

    def _predict(self, forecast: Callable[[Point], Forecast]) -> list[Point]:
        best = self.points[self.best]
        anchor = forecast(best).throughput
        allowed = self._allowed(forecast)
        gains = [(predicted.throughput.value / anchor.value, point) for point, predicted in allowed]
        highest = max((gain for gain, _ in gains), default=0.0)
        if highest >= 1 + WORTHWHILE:
            level = [point for gain, point in gains if gain * (1 + WORTHWHILE) > highest]
            top = min(level, key=self._cost)
            return [top, *self._worth_beside(top, allowed, forecast)]
        if self.best:
            beside = self._worth_beside(best, allowed, forecast)
            if beside:
                return beside
        others = [name for name in self._space if name not in self._predicted]
        return self._unmeasured(self._neighbours(best, others))

    def _allowed(self, forecast: Callable[[Point], Forecast]) -> list[tuple[Point, Forecast]]:
        """What was not measured and may be, with its forecast."""
        base = {**self._present, **self.points[self.best]}
        values = [self._space[name] for name in self._predicted]
        deepest = min(self._deepest, max(self._cautious, DEEPER * max(map(depth_of, self.points))))
        points: list[Point] = []
        for chosen in product(*values):
            point = canonical({**base, **dict(zip(self._predicted, chosen, strict=True))})
            if point not in points and depth_of(point) <= deepest:
                points.append(point)
        forecasts = [(point, forecast(point)) for point in self._unmeasured(points)]
        self.left_out = [
            (point, predicted.left_out) for point, predicted in forecasts if predicted.left_out
        ]
        return [(point, predicted) for point, predicted in forecasts if predicted.left_out is None]

    def _worth_beside(
        self,
        point: Point,
        allowed: Sequence[tuple[Point, Forecast]],
        forecast: Callable[[Point], Forecast],
    ) -> list[Point]:
        """The neighbours of `point`, by the first setting, whose range reaches its prediction."""
        prediction = forecast(point)
        if prediction.prediction.limit is Limit.STEP:  # none of them could be faster
            return []
        least = prediction.throughput.value
        reach = [other for other, predicted in allowed if predicted.throughput.high >= least]
        return [
            predicted
            for predicted in self._neighbours(point, self._predicted[:1])
            if predicted in reach
        ]

    def _neighbours(self, point: Point, names: Sequence[str]) -> list[Point]:
        """Points that differ in one setting: by one place if it is a number, else in any way."""
        neighbours = []
        for name in names:
            values = self._space[name]
            if name not in point:
                continue
            at = values.index(point[name])
            near = [values[place] for place in (at - 1, at + 1) if 0 <= place < len(values)]
            is_number = all(type(value) in (int, float) for value in values)
            others = near if is_number else [place for place in values if place != point[name]]
            neighbours += [canonical({**self._present, **point, name: value}) for value in others]
        return neighbours

    def _unmeasured(self, points: Sequence[Point]) -> list[Point]:
        return [point for point in points if point not in self.points]

    def _is_predicted(self, point: Point) -> bool:
        """Whether it differs from the present in nothing else than what predictions tell apart."""
        return all(
            value == self._present[name]
            for name, value in point.items()
            if name not in self._predicted
        )

    def _number(self, point: Point) -> int:
        return self.points.index(point)

    def _cost(self, point: Point) -> list[int]:
        """Batches in another order cost most, then workers, then the others in their order."""
        names = sorted(self._space, key=lambda name: name != "in_order")
        return [self._space[name].index(point[name]) if name in point else -1 for name in names]

    def _measured_ratio(self, number: int) -> float:
        """The throughput of a measured point over the present one."""
        ratio = self._ratios.get((number, 0))
        if ratio is not None or not number:
            return 1.0 if ratio is None else ratio.value
        outcome, present = self.outcomes[number], self.outcomes[0]
        if outcome.epoch_throughput is not None and present.epoch_throughput is not None:
            return outcome.epoch_throughput.value / present.epoch_throughput.value
        assert outcome.throughput is not None  # noqa: S101 - only what was measured is compared
        return outcome.throughput.value / (present.throughput or outcome.throughput).value

    def _are_level(self, top: int, other: int) -> bool:
        ratio = self._ratios.get((top, other))
        if ratio is None:
            ratio = Estimate(self._measured_ratio(top) / self._measured_ratio(other))
        if ratio.value < 1 + WORTHWHILE:
            return True
        if ratio.value >= 1 + CLEARLY or ratio.low is None or ratio.low > 1:
            return False
        if self._forecast is None:
            return True
        top_forecast, beside = (self._forecast(self.points[number]) for number in (top, other))
        return top_forecast.throughput.value < (1 + WORTHWHILE) * beside.throughput.value

    def _why_stopped(self) -> Stop:
        best = self.best
        neighbours = self._neighbours(self.points[best], list(self._space))
        ratios = [
            self._ratios.get((best, number))
            for number, point in enumerate(self.points)
            if point in neighbours
        ]
        if ratios and all(ratio is not None and (ratio.low or 0.0) > 1 for ratio in ratios):
            return Stop.BETTER
        return Stop.NO_FASTER if self._forecast is None else Stop.SMALL_GAIN
