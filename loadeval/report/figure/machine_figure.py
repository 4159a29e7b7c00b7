"""The figure of `loadeval plan`: how busy a device is, against the CPUs that there are for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from loadeval.report.figure import drawing
from loadeval.report.figure.curve_figure import OPACITY, PANEL_HEIGHT
from loadeval.report.figure.figure import figure_path, save_figure
from loadeval.report.palette import LIGHT
from loadeval.report.wording import machine as wording
from loadeval.report.wording import whatif as whatif_words

if TYPE_CHECKING:
    import os
    from pathlib import Path

    from matplotlib.figure import Figure

    from loadeval.analysis.machine import MachinePlan

COLOR = "real"


def plot_machine(plan: MachinePlan, output: str | os.PathLike[str] = "plan.png") -> Path:
    """Draw utilisation against CPUs for each device; returns the path of the figure written.

    Raises UsageError where `output` is no PNG, SVG or PDF by its extension, or cannot be written.
    """
    path = figure_path(output)
    save_figure(machine_figure(plan), path)
    return path


def machine_figure(plan: MachinePlan) -> Figure:
    """The predicted line with its range, and a mark where the machine is."""
    details = [wording.headline(plan), *filter(None, [wording.caution(plan)])]
    figure, (part,) = drawing.page(wording.TITLE, details, [wording.RANGES], [PANEL_HEIGHT])
    axes = drawing.panel(part, "Accelerator utilisation, %")
    counts = [count for count, _ in plan.by_cpus]
    busy = 100 * np.array([(busy.value, busy.low, busy.high) for _, busy in plan.by_cpus])
    color = LIGHT[COLOR]
    band = axes.fill_between(
        counts,
        busy[:, 1],
        busy[:, 2],
        color=color,
        alpha=OPACITY,
        linewidth=0,
        label=whatif_words.RANGE,
    )
    (line,) = axes.plot(
        counts,
        busy[:, 0],
        color=color,
        linewidth=2.5,
        marker="o",
        markersize=7,
        markerfacecolor=drawing.PAPER,
        label=whatif_words.PREDICTED,
    )
    there = plan.machine.cpus / plan.machine.devices
    mark = axes.axvline(
        there, color=drawing.FAINT, linewidth=1.5, linestyle=(0, (2, 3)), label=wording.MARK
    )
    axes.set_xlim(0, max(counts) * 1.02)
    axes.set_ylim(0, 105)
    axes.set_xlabel(wording.CPUS_HEAD[0], fontsize=drawing.LABEL, color=drawing.INK)
    drawing.legend(part, [line, band, mark])
    return drawing.finish(figure)
