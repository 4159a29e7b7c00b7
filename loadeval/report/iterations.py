"""The panel of an alternating run: the iterations of real and ideal blocks, in their order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from loadeval.report.formatting import counted, duration
from loadeval.report.style import EPOCH_START, IDEAL, INK, LABEL, REAL, legend
from loadeval.report.wait_axes import scale_batches, scale_waits
from loadeval.report.waits import BINS, MOST_EPOCH_LINES, draw_epochs, say_not_measured
from loadeval.runlog.model import ARMS, UNKNOWN, rank_in_epoch

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from loadeval.runlog.model import Arm, Column, Run, Steps

COLORS: dict[Arm, str] = {"real": REAL, "ideal": IDEAL}
SHORTEST = 0.5
"""How far a block's line reaches beyond its first and last batch."""
FEW_BLOCKS = 40


def draw_iterations(axes: Axes, run: Run) -> None:
    """Dots are the iterations of counted batches, lines the means of their blocks."""
    axes.set_xlabel("batch number", fontsize=LABEL, color=INK)
    steps = run.steps
    counts = (steps.pair != UNKNOWN) & (steps.step_ns != UNKNOWN)
    if not counts.any():
        say_not_measured(axes)
        return
    iteration_ns = steps.wait_ns + steps.step_ns
    scale_waits(axes, [iteration_ns[counts]])
    for code, arm in enumerate(ARMS):
        (places,) = np.nonzero(counts & (steps.arm == code))
        if len(places):
            _draw_arm(axes, arm, _blocks(steps, places), iteration_ns)
    _draw_epoch_starts(axes, steps)
    draw_epochs(axes, run)
    scale_batches(axes, len(steps))
    legend(axes, *axes.get_legend_handles_labels())


def _blocks(steps: Steps, places: Column) -> list[Column]:
    """The batches at `places` in stretches that follow on each other and count for one pair."""
    gaps = (np.diff(places) > 1) | (np.diff(steps.pair[places]) != 0)
    return np.split(places, np.flatnonzero(gaps) + 1)


def _draw_arm(axes: Axes, arm: Arm, blocks: list[Column], iteration_ns: Column) -> None:
    color = COLORS[arm]
    dots = np.concatenate(blocks)
    dots = dots[:: max(1, len(dots) // BINS)]
    few = len(blocks) <= FEW_BLOCKS
    axes.plot(
        dots, iteration_ns[dots], color=color, linestyle="", marker="o", markersize=3, alpha=0.35
    )
    axes.hlines(
        [float(iteration_ns[block].mean()) for block in blocks],
        [block[0] - SHORTEST for block in blocks],
        [block[-1] + SHORTEST for block in blocks],
        color=color,
        linewidth=4 if few else 2,
        label=arm,
    )


def _draw_epoch_starts(axes: Axes, steps: Steps) -> None:
    """At the foot of the axes: an epoch start is no iteration, and often many times as long."""
    (places,) = np.nonzero(rank_in_epoch(steps.epoch) == 0)
    if not 0 < len(places) <= MOST_EPOCH_LINES + 1:
        return
    mean_ns = float(steps.wait_ns[places].mean())
    axes.plot(
        places,
        np.full(len(places), 0.04),
        transform=axes.get_xaxis_transform(),
        clip_on=False,
        color=EPOCH_START,
        label=f"{counted(len(places), 'epoch start', 'epoch starts')} ({duration(mean_ns)})",
        linestyle="",
        marker="^",
        markersize=10,
        markerfacecolor="none",
        markeredgewidth=2,
    )
