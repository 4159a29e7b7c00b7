"""How a figure looks: colours, sizes of type, plain axes; nothing is set globally."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from loadeval.report.fitting import FAMILY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, which colour-blind readers can tell apart.
REAL = "#0072B2"
IDEAL = "#009E73"
LOADER_ONLY = "#9CCBE8"
WAITING = "#E69F00"
CONTENTION = "#CC79A7"
GPU_IDLE = "#D55E00"
STEP = "#C8C8C8"
EPOCH_START = "#D55E00"
OUTLIER = "#000000"
INK = "#1A1A1A"
FAINT = "#5A5A5A"
PAPER = "#FFFFFF"

TITLE = 22
PANEL = 18
LABEL = 16
SMALL = 13
"""Sizes of type in points, on a figure 14 inches wide: readable when it is shown half as wide."""


def panel(
    figure: Figure, box: tuple[float, float, float, float], title: str, labels: float = 0.0
) -> Axes:
    """Axes with a title over them.

    `box` is left, bottom, width and height in inches; `labels` of its width are kept for the
    labels at the left, and the title begins over those.
    """
    wide, high = figure.get_size_inches()
    left, bottom, width, height = box
    inner = width - labels
    axes = figure.add_axes(((left + labels) / wide, bottom / high, inner / wide, height / high))
    axes.set_facecolor(PAPER)
    axes.grid(visible=False)
    axes.set_title(
        title, loc="left", fontsize=PANEL, fontweight="bold", color=INK, pad=12, x=-labels / inner
    )
    for side, spine in axes.spines.items():
        spine.set_visible(side in {"left", "bottom"})
        spine.set_color(FAINT)
        spine.set_linewidth(1)
    axes.tick_params(labelsize=LABEL, labelcolor=INK, color=FAINT, length=4)
    axes.minorticks_off()
    return axes


def legend(axes: Axes, handles: Sequence[Artist], labels: Sequence[str]) -> None:
    """A legend in one line, right of the title."""
    axes.legend(
        handles,
        labels,
        loc="lower right",
        bbox_to_anchor=(1, 1),
        ncols=len(handles),
        frameon=False,
        fontsize=LABEL,
        labelcolor=INK,
        borderaxespad=0.2,
        handlelength=1.2,
        handletextpad=0.5,
        columnspacing=1.2,
    )


def without_scale(axes: Axes, *keep: str) -> None:
    """Take away the axes' frame and ticks: the values are written out. `keep` names spines."""
    axes.set_xticks([])
    axes.set_yticks([])
    for side, spine in axes.spines.items():
        spine.set_visible(side in keep)


def take_text_literally(figure: Figure) -> None:
    """No text of a run is read as TeX, and all is set in the font it was measured in."""
    from matplotlib.text import Text  # noqa: PLC0415 - heavy

    for text in cast("list[Text]", figure.findobj(Text)):
        text.set_parse_math(False)
        text.set_usetex(False)
        text.set_fontfamily(FAMILY)
