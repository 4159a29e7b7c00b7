"""What is in a figure, and whether it can be read."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, cast

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from loadeval.analysis.report import Report
from loadeval.report.plots import comparison_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

    from loadeval.runlog.model import Run

MS = 1_000_000


def figure_of(real: Run, ideal: Run | None = None) -> Figure:
    return comparison_figure(Report.of([real] if ideal is None else [real, ideal], compared=True))


def bars(axes: Axes) -> list[tuple[float, float, float]]:
    """Left end, width and height of each bar."""
    found = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    return [(bar.get_x(), bar.get_width(), bar.get_height()) for bar in found]


def written(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def legend(axes: Axes) -> list[str]:
    found = axes.get_legend()
    return [] if found is None else [text.get_text() for text in found.get_texts()]


def texts(figure: Figure) -> list[Text]:
    found = cast("list[Text]", figure.findobj(Text))
    return [text for text in found if text.get_visible() and text.get_text().strip()]


def boxes(figure: Figure) -> dict[str, Bbox]:
    """Where every text is, and every legend with its handles, in pixels."""
    legends = [legend for legend in map(Axes.get_legend, figure.axes) if legend is not None]
    inside = {id(text) for legend in legends for text in legend.get_texts()}
    found = {
        f"{number}: {text.get_text()}": text.get_window_extent()
        for number, text in enumerate(texts(figure))
        if id(text) not in inside
    }
    return found | {f"legend {i}": legend.get_window_extent() for i, legend in enumerate(legends)}


def check_that_all_can_be_read(figure: Figure, wide: float = 0.5, high: float = 0.5) -> None:
    """Texts and legends overlap by so many pixels at most, inside; type is no smaller than 1.25%.

    Of the figure's width, so that it can be read at half size.
    """
    figure.draw_without_rendering()
    found = boxes(figure)
    for (name, one), (other_name, other) in combinations(found.items(), 2):
        beside = min(one.x1, other.x1) - max(one.x0, other.x0) <= wide
        below = min(one.y1, other.y1) - max(one.y0, other.y0) <= high
        assert beside or below, (name, other_name)
    for text, box in found.items():
        assert box.x0 >= 0 <= box.y0, text
        assert box.x1 <= figure.bbox.x1, text
        assert box.y1 <= figure.bbox.y1, text
    points = figure.get_size_inches()[0] * 72
    assert min(text.get_fontsize() for text in texts(figure)) / points > 0.0125
