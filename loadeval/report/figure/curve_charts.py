"""What a figure of throughput against the number of workers shows, as plain data.

matplotlib and plotly draw it, and decide nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loadeval.report.figure.point_charts import Axis, linear_axis, round_ticks
from loadeval.report.formatting import counted, estimated, number, short_name, speedup
from loadeval.report.wording import whatif as whatif_words

if TYPE_CHECKING:
    from loadeval.analysis.predict.prediction import Prediction, WorkerCurve

FEW_WORKERS = 12
"""Up to so many workers, each number has a label."""
MARGIN, MARGIN_SHARE = 0.4, 0.03
"""Workers, and part of the axis, between its ends and the first and last point, at least."""
MEASURED_COLOR, PREDICTED_COLOR, CHOSEN_COLOR = "real", "series1", "series3"


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """A throughput per second with so many workers; `words` tell it, in lines."""

    workers: int
    value: float
    low: float | None
    high: float | None
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CurveChart:
    """Measured points, a predicted line with its range, and a mark where the CPUs end.

    `chosen` is predicted too, under settings that may differ in more than their workers.
    `cpus` is None where that is not known, or is beyond all points.
    """

    unit: str
    workers: Axis
    throughput: Axis
    measured: tuple[CurvePoint, ...]
    predicted: tuple[CurvePoint, ...]
    cpus: float | None
    chosen: CurvePoint | None = None

    @property
    def mark(self) -> str:
        """What stands beside the mark."""
        return "" if self.cpus is None else whatif_words.cpu_count(self.cpus)

    @property
    def mark_is_late(self) -> bool:
        """Whether there is more room left of the mark."""
        low, high = self.workers.low, self.workers.high
        return self.cpus is not None and self.cpus > (low + 3 * high) / 4


def worker_curve_chart(curve: WorkerCurve, chosen: Prediction | None = None) -> CurveChart:
    """What is measured and predicted, each in the order of its workers; and `chosen`."""
    unit = short_name(curve.unit)
    measured = tuple(
        CurvePoint(
            workers,
            rate.value,
            rate.low,
            rate.high,
            (_workers(workers), f"{whatif_words.MEASURED} {estimated(rate, number)} {unit}/s"),
        )
        for workers, rate in sorted(curve.measured, key=lambda measured: measured[0])
    )
    predicted = tuple(map(_predicted, curve.predicted))
    marked = None if chosen is None else _predicted(chosen)
    points = (*measured, *predicted, *filter(None, [marked]))
    first = min((point.workers for point in points), default=0)
    last = max((point.workers for point in points), default=1)
    highest = max((point.high or point.value for point in points), default=0.0)
    workers = _workers_axis(first, last)
    cpus = curve.cpus if curve.cpus is not None and curve.cpus <= workers.high else None
    return CurveChart(
        curve.unit,
        workers,
        linear_axis(highest, "", _tick_of),
        measured,
        predicted,
        cpus,
        marked,
    )


def _predicted(prediction: Prediction) -> CurvePoint:
    rate, unit = prediction.throughput, short_name(prediction.unit)
    words = (
        _workers(prediction.num_workers),
        f"{whatif_words.PREDICTED} {whatif_words.ranged(rate, number)} {unit}/s",
        f"{whatif_words.SPEEDUP} {whatif_words.ranged(prediction.speedup, speedup)}",
        f"{whatif_words.HELD_UP_BY} {whatif_words.limit_in_short(prediction)}",
    )
    return CurvePoint(prediction.num_workers, rate.value, rate.low, rate.high, words)


def _workers_axis(first: int, last: int) -> Axis:
    ticks = range(first, last + 1) if last - first < FEW_WORKERS else map(int, round_ticks(last))
    labels = tuple((float(tick), f"{tick:,}") for tick in ticks)
    margin = max(MARGIN, MARGIN_SHARE * (last - first))
    return Axis("num_workers", first - margin, last + margin, labels)


def _workers(count: int) -> str:
    return counted(count, "worker", "workers")


def _tick_of(rate: float) -> str:
    return f"{rate:,g}"
