"""The panel of waits against batch number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.summary import numbers_in_run, steady
from loadeval.report.formatting import NOT_MEASURED, counted
from loadeval.report.style import EPOCH_START, FAINT, IDEAL, INK, LABEL, OUTLIER, REAL, legend
from loadeval.report.wait_axes import scale_batches, scale_waits
from loadeval.runlog.model import UNKNOWN, rank_in_epoch

if TYPE_CHECKING:
    import numpy.typing as npt
    from matplotlib.axes import Axes

    from loadeval.runlog.model import Column, Run

BINS = 700
"""Stretches of batches, each drawn as its least and greatest wait, when there are more batches."""
OUTLIER_ITERATIONS = 2
MOST_EPOCH_LINES = 40
MOST_DOTS = 150
MOST_LARGE_MARKS = 60


def draw_waits(axes: Axes, real: Run, ideal: Run) -> None:
    """Both runs' waits; of the real one also epoch starts, outliers and where epochs begin."""
    axes.set_xlabel("batch number", fontsize=LABEL, color=INK)
    waits = [run.steps.wait_ns for run in (real, ideal)]
    if not any(map(len, waits)):
        say_not_measured(axes)
        return
    floor_ns = scale_waits(axes, waits)
    numbers = [numbers_in_run(run) for run in (real, ideal)]
    _draw_line(axes, numbers[0], np.maximum(waits[0], floor_ns), REAL, "real")
    _draw_line(axes, numbers[1], np.maximum(waits[1], floor_ns), IDEAL, "ideal")
    epoch_start = rank_in_epoch(real.steps.epoch) == 0
    _draw_marks(
        axes, real, epoch_start, floor_ns, ("epoch start", "epoch starts"), "^", EPOCH_START
    )
    iteration = f"over {OUTLIER_ITERATIONS}x the median iteration"
    _draw_marks(
        axes,
        real,
        outliers(real) & ~epoch_start,
        floor_ns,
        (f"wait {iteration}", f"waits {iteration}"),
        "o",
        OUTLIER,
    )
    draw_epochs(axes, real if len(waits[0]) else ideal)
    scale_batches(axes, max(int(found.max(initial=-1)) + 1 for found in numbers))
    legend(axes, *axes.get_legend_handles_labels())


def outliers(run: Run) -> npt.NDArray[np.bool_]:
    """Which waits of `run` are longer than twice its median iteration, over the steady part."""
    steps = run.steps
    chosen = steady(run)
    if not chosen.any():
        chosen = steps.step_ns != UNKNOWN
    if not chosen.any():
        return np.zeros(len(steps), dtype=bool)
    median_ns = np.median((steps.wait_ns + steps.step_ns)[chosen])
    longer: npt.NDArray[np.bool_] = steps.wait_ns > OUTLIER_ITERATIONS * median_ns
    return longer


def thinned(values: Column, bins: int) -> tuple[Column, Column]:
    """Places and values to draw: of each of `bins` stretches its least and its greatest value.

    As many values as fit into that, or fewer, are returned as they are.
    """
    if len(values) <= 2 * bins:
        return np.arange(len(values)), values
    starts = np.linspace(0, len(values), bins, endpoint=False).astype(np.int64)
    pairs = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
    return np.repeat(starts, 2), np.stack(pairs, axis=1).ravel()


def _draw_line(axes: Axes, numbers: Column, values: Column, color: str, label: str) -> None:
    if not len(values):
        return
    places, drawn = thinned(values, BINS)
    few = len(values) <= MOST_DOTS
    axes.plot(
        numbers[places],
        drawn,
        color=color,
        label=label,
        linewidth=1.2,
        linestyle="-",
        marker="o" if few else "",
        markersize=4,
    )


def _draw_marks(
    axes: Axes,
    run: Run,
    chosen: npt.NDArray[np.bool_],
    floor_ns: float,
    names: tuple[str, str],
    marker: str,
    color: str,
) -> None:
    (places,) = np.nonzero(chosen)
    if not len(places):
        return
    label = counted(len(places), *names)
    values = np.maximum(run.steps.wait_ns[places], floor_ns)
    # Of many marks, the highest of each stretch.
    stretch = places * BINS // len(chosen)
    order = np.lexsort((values, stretch))
    kept = order[np.append(np.diff(stretch[order]) > 0, [True])]
    few = len(kept) <= MOST_LARGE_MARKS
    axes.plot(
        numbers_in_run(run)[places[kept]],
        values[kept],
        color=color,
        label=label,
        linestyle="",
        marker=marker,
        markersize=10 if few else 4,
        markerfacecolor="none",
        markeredgewidth=2 if few else 1,
    )


def say_not_measured(axes: Axes) -> None:
    """Empty axes, and why."""
    axes.set_yticks([])
    axes.set_xticks([])
    axes.text(
        0.5,
        0.5,
        NOT_MEASURED,
        transform=axes.transAxes,
        ha="center",
        va="center",
        fontsize=LABEL,
        color=FAINT,
    )


def draw_epochs(axes: Axes, run: Run) -> None:
    """A line where each epoch but the first begins, as long as they are few."""
    (begins,) = np.nonzero(np.diff(run.steps.epoch))
    if 0 < len(begins) <= MOST_EPOCH_LINES:
        axes.vlines(
            numbers_in_run(run)[begins + 1] - 0.5,
            0,
            1,
            transform=axes.get_xaxis_transform(),
            label="new epoch",
            color=FAINT,
            alpha=0.5,
            linewidth=1.2,
            linestyle=(0, (4, 4)),
        )
