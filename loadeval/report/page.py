"""Lines of text on a figure's page, measured in inches from its top left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.report.fitting import POINTS_PER_INCH, drawable, wrapped
from loadeval.report.style import SMALL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

WIDTH = 14.0
MARGIN = 0.4
TEXT_WIDTH = WIDTH - 2 * MARGIN
"""Inches."""
LINE = 1.45
"""Of a line, in sizes of its type."""


def small(*texts: str, room: float = TEXT_WIDTH, lines: int = 3) -> list[str]:
    """Each of `texts` in small print, in at most `lines` lines as wide as `room` inches."""
    return [line for text in texts for line in wrapped(drawable(text), SMALL, room, lines)]


def high(lines: Sequence[str], points: float) -> float:
    """How high `lines` are in a type of `points`, in inches."""
    return len(lines) * points * LINE / POINTS_PER_INCH


def write(
    figure: Figure,
    lines: Sequence[str],
    place: tuple[float, float],
    points: float,
    color: str,
    *,
    bold: bool = False,
) -> None:
    """Write `lines` below each other from `place` on: inches from the left, and from the top."""
    wide, tall = figure.get_size_inches()
    left, top = place
    for row, line in enumerate(lines):
        figure.text(
            left / wide,
            1 - (top + high(lines[:row], points)) / tall,
            line,
            va="top",
            fontsize=points,
            fontweight="bold" if bold else "normal",
            color=color,
        )
