"""What the panels of the figure show."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from matplotlib.colors import to_rgba

from loadeval.report.waits import BINS, outliers, thinned
from tests.report.drawn import MS, bars, figure_of, legend, written

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes

    from loadeval.runlog.model import Run

    Record = Callable[..., Run]


def panels(real: Run, ideal: Run) -> tuple[Axes, Axes, Axes]:
    throughput, time, waits = figure_of(real, ideal).axes
    return throughput, time, waits


def test_throughput_in_the_units_of_the_run(record: Record) -> None:
    """Two bars as high as the samples per second, which are written on them."""
    axes, _, _ = panels(record(), record("replay"))
    assert [height for _, _, height in bars(axes)] == pytest.approx([100, 400])
    assert written(axes) == ["100", "400"]
    assert axes.get_title(loc="left") == "Throughput in images/s"


@pytest.mark.parametrize(
    ("real", "ideal"), [({"samples": None}, {"samples": None}), ({}, {"unit": "videos"})]
)
def test_throughput_in_batches(
    record: Record, real: dict[str, object], ideal: dict[str, object]
) -> None:
    """Batches where samples are unknown, or are other ones in the two runs."""
    axes, _, _ = panels(record(**real), record("replay", **ideal))
    assert written(axes) == ["25.0", "100"]
    assert axes.get_title(loc="left") == "Throughput in batches/s"


def test_throughput_that_was_not_measured(record: Record) -> None:
    """A side without a steady batch has no bar, and says why."""
    axes, _, _ = panels(record(warmup=99), record("replay"))
    assert written(axes) == ["not\nmeasured", "400"]
    assert len(bars(axes)) == 1


def test_batch_time_is_step_and_waiting(record: Record) -> None:
    """Real and ideal are stacked; between them is what waiting and contention cost."""
    _, axes, _ = panels(record(step_ns=12 * MS), record("replay"))
    drawn = [part / MS for left, width, _ in bars(axes) for part in (left, width)]
    assert drawn == pytest.approx([0, 12, 12, 30, 12, 30, 10, 2, 0, 10, 10, 0])
    rows = ["real", "lost by waiting", "lost by contention", "ideal"]
    assert [label.get_text() for label in axes.get_yticklabels()] == rows
    assert {"42.0 ms", "30.0 ms", "2.00 ms", "10.0 ms"} <= set(written(axes))


def test_how_long_the_device_starved_stands_below_the_waiting(record: Record) -> None:
    """Where its clock told that; without it there is no such row."""
    real, ideal = record(), record("replay")
    _, without, _ = panels(real, ideal)
    assert len(without.get_yticklabels()) == 4
    gpu_idle_ns = np.full(len(real.steps), 5 * MS)
    real = replace(real, steps=replace(real.steps, gpu_idle_ns=gpu_idle_ns))
    _, axes, _ = panels(real, ideal)
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels[1:3] == ["lost by waiting", "GPU idle while waiting"]
    assert "5.00 ms" in written(axes)
    assert [width for _, width, _ in bars(axes)].count(5 * MS) == 1


def test_ideal_batch_time_is_scaled_to_the_real_batches(record: Record) -> None:
    """Replayed batches of half as many samples count twice."""
    _, axes, _ = panels(record(samples=8), record("replay", samples=4))
    assert "20.0 ms" in written(axes)


def test_a_gain_is_drawn_hollow(record: Record) -> None:
    """Steps that are longer in replay are a negative loss, and are not filled."""
    _, axes, _ = panels(record(), record("replay", step_ns=15 * MS))
    filled = [to_rgba(patch.get_facecolor())[3] for patch in axes.patches]
    assert filled.count(0) == 1
    assert "-5.00 ms" in written(axes)


def test_batch_time_that_was_not_measured(record: Record) -> None:
    """What is not known is said so; what is, is drawn."""
    _, axes, _ = panels(record(warmup=99), record("replay"))
    assert written(axes).count("not measured") == 3
    assert "10.0 ms" in written(axes)


def test_waits_are_drawn_by_batch_number(record: Record) -> None:
    """Both runs' waits, in order, over the epochs."""
    waits_ns = [30 * MS, 31 * MS, 32 * MS]
    _, _, axes = panels(record(waits_ns=waits_ns, epochs=2), record("replay", tick_ns=10 * MS))
    real = next(line for line in axes.lines if line.get_label() == "real")
    assert np.asarray(real.get_xdata()).tolist() == [0, 1, 2, 3, 4, 5]
    assert np.asarray(real.get_ydata()).tolist() == waits_ns * 2


def test_epoch_starts_outliers_and_epochs_are_marked(record: Record) -> None:
    """The first wait of each epoch, waits over twice the median iteration, and new epochs."""
    waits_ns = [70 * MS, 30 * MS, 30 * MS, 90 * MS, 30 * MS]
    _, _, axes = panels(record(waits_ns=waits_ns, epochs=2), record("replay"))
    marks = {line.get_label(): np.asarray(line.get_xdata()).tolist() for line in axes.lines}
    assert marks["2 epoch starts"] == [0, 5]
    assert marks["2 waits over 2x the median iteration"] == [3, 8]
    assert legend(axes) == [
        "real",
        "ideal",
        "2 epoch starts",
        "2 waits over 2x the median iteration",
        "new epoch",
    ]


def test_one_epoch_has_no_boundary(record: Record) -> None:
    """Nothing is marked where nothing is."""
    _, _, axes = panels(record(), record("replay"))
    assert legend(axes) == ["real", "ideal", "1 epoch start"]


def test_a_wait_of_nothing_has_its_place_on_a_logarithmic_scale(record: Record) -> None:
    """It is drawn at a tick that says 0, below every other wait."""
    _, _, axes = panels(record(waits_ns=[0, 5 * MS, 300]), record("replay"))
    real = next(line for line in axes.lines if line.get_label() == "real")
    lowest = float(np.asarray(real.get_ydata()).min())
    assert axes.get_yscale() == "log"
    assert axes.get_yticks()[0] == lowest
    assert axes.get_yticklabels()[0].get_text() == "0"
    assert 0 < lowest < 300


def test_like_waits_have_a_linear_scale(record: Record) -> None:
    """A logarithmic scale is for waits that differ greatly."""
    _, _, axes = panels(record(), record("replay", tick_ns=5 * MS))
    assert axes.get_yscale() == "linear"
    assert axes.get_yticklabels()[0].get_text() == "0"


def test_few_ticks(record: Record) -> None:
    """A logarithmic scale from nanoseconds to days has no more than five labels."""
    _, _, axes = panels(record(waits_ns=[1, 10**14] * 15), record("replay"))
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["0", "1 ns", "10 us", "100 ms", "1,000 s"]


def test_waits_of_no_run_at_all(record: Record) -> None:
    """Without a batch the panel says that nothing was measured."""
    _, _, axes = panels(record(epochs=0), record("replay", epochs=0))
    assert written(axes) == ["not measured"]


def test_a_long_run_is_drawn_by_its_extremes(record: Record) -> None:
    """However many batches, each line has no more than two points for each stretch."""
    _, _, axes = panels(record(waits_ns=[MS, *[2 * MS] * 9999]), record("replay"))
    real = next(line for line in axes.lines if line.get_label() == "real")
    assert len(np.asarray(real.get_xdata())) == 2 * BINS


def test_thinning_keeps_every_extreme() -> None:
    """The least and the greatest of every stretch are drawn, so no burst is lost."""
    values = np.random.default_rng(0).integers(0, 10**9, 10_000)
    places, drawn = thinned(values, 100)
    pairs = drawn.reshape(100, 2).tolist()
    assert pairs == [[part.min(), part.max()] for part in values.reshape(100, 100)]
    assert places.tolist() == np.repeat(np.arange(0, 10_000, 100), 2).tolist()


def test_thinning_leaves_few_values_alone() -> None:
    """What can be drawn as it is, is."""
    places, drawn = thinned(np.array([3, 1, 2]), 100)
    assert (places.tolist(), drawn.tolist()) == ([0, 1, 2], [3, 1, 2])


def test_many_marks_keep_the_highest_of_each_stretch(record: Record) -> None:
    """The label counts all outliers; of those that would lie on each other one is drawn."""
    waits_ns = [MS, MS, MS, 200 * MS, 300 * MS] * 2000
    _, _, axes = panels(record(waits_ns=waits_ns), record("replay"))
    line = next(line for line in axes.lines if str(line.get_label()).startswith("4,000 waits"))
    assert len(np.asarray(line.get_xdata())) == BINS
    assert set(np.asarray(line.get_ydata()).tolist()) == {300 * MS}


def test_outliers_of_an_unsteady_run_use_all_its_iterations(record: Record) -> None:
    """A run that is all warm-up still has bursts."""
    run = record(waits_ns=[MS, MS, 90 * MS, MS], warmup=99)
    assert outliers(run).tolist() == [False, False, True, False]
