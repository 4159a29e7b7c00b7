"""The bars of backends: a rate each, with its interval as a whisker and in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loadeval.report.bars import GAP, WHISKER
from loadeval.report.fitting import POINTS_PER_INCH, width_of
from loadeval.report.formatting import number
from loadeval.report.style import FAINT, INK, SMALL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from loadeval.analysis.stats import Estimate

FARTHEST = 1.5
"""How far a whisker is drawn, in longest bars."""
LEAST_SCALE = 0.1
"""Of the width, that the longest bars have whatever their values take."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar from `top` on, `thick` inches thick; `missing` is said where there is no rate."""

    rate: Estimate | None
    top: float
    thick: float
    color: str
    points: float
    missing: str

    @property
    def middle(self) -> float:
        """Halfway down, in inches."""
        return self.top + self.thick / 2

    def texts(self) -> tuple[str, str]:
        """The rate, and its interval."""
        rate = self.rate
        if rate is None:
            return "", self.missing
        interval = rate.low is not None and rate.high is not None
        between = f"[{number(rate.low or 0)}, {number(rate.high or 0)}]" if interval else ""
        return number(rate.value), between

    def room(self) -> float:
        """Inches that its texts take."""
        value, interval = self.texts()
        return 3 * GAP + width_of(value, self.points, bold=True) + width_of(interval, SMALL)

    def end(self, farthest: float) -> float:
        """Where it ends, its whisker included, which is not drawn beyond `farthest`."""
        if self.rate is None:
            return 0.0
        return max(self.rate.value, min(self.rate.high or 0.0, farthest))


def fit(bars: Sequence[Bar], width: float) -> float:
    """The rate at the right end of axes `width` inches wide, so that all texts have room."""
    farthest = _farthest(bars)
    ends = [
        bar.end(farthest) * width / max(width - bar.room(), LEAST_SCALE * width) for bar in bars
    ]
    return max(ends, default=0.0) or 1.0


def draw_bars(axes: Axes, bars: Sequence[Bar]) -> None:
    """Draw `bars` on axes whose heights are inches from the top."""
    farthest = _farthest(bars)
    for bar in bars:
        if bar.rate is not None:
            axes.barh(bar.middle, bar.rate.value, height=bar.thick, color=bar.color)
            _draw_whisker(axes, bar.rate, bar.middle, farthest)
        value, interval = bar.texts()
        at = bar.end(farthest)
        _write(axes, value, (at, bar.middle), GAP, bar.points, INK, bold=True)
        beside = GAP + (width_of(value, bar.points, bold=True) + GAP if value else 0.0)
        _write(axes, interval, (at, bar.middle), beside, SMALL, FAINT)


def _draw_whisker(axes: Axes, rate: Estimate, middle: float, farthest: float) -> None:
    if rate.low is None or rate.high is None:
        return
    ends = [rate.low, min(rate.high, farthest)]
    # One that goes on beyond what is drawn has no cap at its end.
    capped = [0] if rate.high > farthest else [0, 1]
    axes.plot(ends, [middle] * 2, **WHISKER, marker="|", markevery=capped)


def _farthest(bars: Sequence[Bar]) -> float:
    return FARTHEST * max((bar.rate.value for bar in bars if bar.rate), default=0.0)


def _write(
    axes: Axes,
    text: str,
    place: tuple[float, float],
    beside: float,
    points: float,
    color: str,
    *,
    bold: bool = False,
) -> None:
    axes.annotate(
        text,
        place,
        xytext=(beside * POINTS_PER_INCH, 0),
        textcoords="offset points",
        va="center_baseline",
        fontsize=points,
        fontweight="bold" if bold else "normal",
        color=color,
    )
