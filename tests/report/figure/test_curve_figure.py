"""The figure of throughput against the number of workers, and what it shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from loadeval.analysis.estimate.stats import Estimate
from loadeval.errors import UsageError
from loadeval.report.figure.curve_charts import worker_curve_chart
from loadeval.report.figure.curve_figure import plot_worker_curve, worker_curve_figure
from loadeval.report.palette import LIGHT
from tests.report.figure.test_figure import check_readable, legend, words
from tests.report.predictions import GROWS, PRESENT_RATE, prediction, worker_curve

if TYPE_CHECKING:
    from pathlib import Path

    from loadeval.analysis.predict.prediction import WorkerCurve

MANY = tuple(prediction(count, 9.0 * count) for count in range(1, 129, 7))
LONG_UNIT = "$x$ samples of a very long name that goes on and on"


def test_points_are_those_of_the_curve() -> None:
    """With their ends, in the order of workers, and in words that say which they are."""
    rates = (6, Estimate(900.0, None, None)), (2, PRESENT_RATE)
    chart = worker_curve_chart(worker_curve(measured=rates))
    assert [point.workers for point in chart.measured] == [2, 6]
    assert chart.measured[0].words == ("2 workers", "measured 500 [480, 520] images/s")
    first = chart.predicted[0]
    assert (first.value, first.low, first.high) == (250.0, 225.0, 275.0)
    assert first.words[:2] == ("1 worker", "predicted 250 [225, 275] images/s")


def test_few_workers_have_a_label_each() -> None:
    """If there are many, some have one, and none is beyond the ends."""
    assert [label for _, label in worker_curve_chart(worker_curve()).workers.ticks] == [
        f"{count}" for count in range(1, 9)
    ]
    axis = worker_curve_chart(worker_curve(predicted=MANY)).workers
    assert 3 <= len(axis.ticks) <= 6
    assert all(tick <= axis.high for tick, _ in axis.ticks)


@pytest.mark.parametrize(
    ("cpus", "mark", "late"),
    [(4.0, "4 CPUs", False), (7.5, "7.5 CPUs", True), (None, "", False), (9.0, "", False)],
)
def test_the_mark_of_the_cpus(cpus: float | None, mark: str, late: bool) -> None:
    """It is beside its line, where there is room; beyond the points there is none."""
    chart = worker_curve_chart(worker_curve(cpus=cpus))
    assert (chart.mark, chart.mark_is_late) == (mark, late)
    figure = worker_curve_figure(worker_curve(cpus=cpus))
    assert [text.get_text() for text in figure.axes[0].texts] == ([mark] if mark else [])


def test_what_is_measured_and_predicted_is_told_apart() -> None:
    """Colour, line and legend differ; the title says that it is predicted."""
    figure = worker_curve_figure(worker_curve())
    (axes,) = figure.axes
    assert legend(axes) == ["expected range", "predicted", "measured"]
    lines = {line.get_label(): line for line in axes.lines}
    assert lines["measured"].get_color() == LIGHT["real"] != lines["predicted"].get_color()
    assert lines["measured"].get_linestyle() == "None" != lines["predicted"].get_linestyle()
    assert "measured and predicted" in words(figure)
    assert "Assumed: For each further CPU" in words(figure)


def test_measured_points_have_their_intervals() -> None:
    """Only those that have one show it."""
    rates = (6, Estimate(900.0, None, None)), (2, PRESENT_RATE)
    (axes,) = worker_curve_figure(worker_curve(measured=rates)).axes
    (whisker,) = (line for line in axes.lines if line.get_marker() == "_")
    assert np.asarray(whisker.get_ydata()).tolist() == [480.0, 520.0]


def test_without_predictions_none_is_spoken_of() -> None:
    """Trials of a loader that cannot be replayed are measured alone."""
    figure = worker_curve_figure(worker_curve(predicted=()))
    assert legend(figure.axes[0]) == ["measured"]
    assert "predicted" not in words(figure)


def test_without_measurements_there_are_no_dots() -> None:
    """What is predicted is drawn all the same."""
    figure = worker_curve_figure(worker_curve(measured=()))
    assert legend(figure.axes[0]) == ["expected range", "predicted"]


@pytest.mark.parametrize(
    "curve",
    [
        worker_curve(),
        worker_curve(predicted=MANY, cpus=64.0, others_cpus=3.0),
        worker_curve(cpus=1.0),
        worker_curve(cpus=8.0, unit=LONG_UNIT),
        worker_curve(
            predicted=(), measured=((2, PRESENT_RATE), (2, PRESENT_RATE), (64, PRESENT_RATE))
        ),
        worker_curve(predicted=(), measured=()),
    ],
)
def test_everything_can_be_read(curve: WorkerCurve) -> None:
    """No text lies over another, or outside."""
    check_readable(worker_curve_figure(curve))


def test_chosen_settings_are_a_point() -> None:
    """It is beside the curve, with its range and what it is of; beyond its ends too."""
    chosen = prediction(12, 2000.0, faster={"Blur": 4.0})
    figure = worker_curve_figure(worker_curve(), chosen=chosen)
    (axes,) = figure.axes
    assert legend(axes) == ["expected range", "predicted", "measured", "what if"]
    (point,) = (line for line in axes.lines if line.get_label() == "what if")
    assert (point.get_xdata(), point.get_ydata()) == ([12], [2000.0])
    (_, whisker) = (line for line in axes.lines if line.get_marker() == "_")
    assert np.asarray(whisker.get_ydata()).tolist() == [1800.0, 2200.0]
    assert axes.get_xlim()[1] > 12
    assert axes.get_ylim()[1] > 2200
    assert "What if: num_workers=12, prefetch_factor=2" in words(figure)
    assert "faster=Blur 4x" in words(figure)
    check_readable(figure)


def test_what_is_assumed_of_chosen_settings_is_told() -> None:
    """Nothing is assumed of the curve."""
    chosen = prediction(assumptions=(GROWS,))
    figure = worker_curve_figure(worker_curve(predicted=()), chosen=chosen)
    assert "Assumed: For each further CPU" in words(figure)


def test_the_figure_is_written(tmp_path: Path) -> None:
    """Its format is the one that its extension names; another is an error."""
    path = plot_worker_curve(worker_curve(), tmp_path / "a.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(UsageError, match=r"\.png, \.svg or \.pdf was expected"):
        plot_worker_curve(worker_curve(), tmp_path / "a.txt")
