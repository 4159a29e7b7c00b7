"""The paces: real, ideal, and the loader alone, with their intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loadeval.analysis.arms import run_times, throughputs
from loadeval.analysis.backends import BATCHES, MeasuredRun, ranked, result_of, unit_of
from loadeval.report.facts import comparison_facts
from loadeval.report.formatting import (
    LONGEST_NAME,
    NOT_MEASURED,
    estimated,
    number,
    shortened,
)
from loadeval.report.html.blocks import Figure, Section
from loadeval.report.html.drawing import bare_axis, beside, layout, names_axis, room_beside, whisker
from loadeval.report.html.escaping import drawn
from loadeval.report.html.tables import listed, side_by_side
from loadeval.report.text import figures

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.backends import BackendResult
    from loadeval.analysis.stats import Estimate
    from loadeval.report.comparison import Comparison
    from loadeval.report.html.blocks import Block, Json
    from loadeval.report.html.subject import Subject
    from loadeval.runlog.model import Run

COLORS = {"real": "real", "ideal": "ideal", "loader alone": "loader"}
ROW, GAP = 34, 16
BETWEEN = 0.6
"""Pixels that a bar takes, those around all of them; and rows that are left between backends."""
LONGEST_UNIT = 16
"""Characters of a unit that are drawn beside a bar."""
FARTHEST = 1.5
"""How far a whisker is drawn, in longest bars."""
CAPTION = (
    "Throughput in {unit} per second: of training as it was (real), of training if loading were "
    "free (ideal), and of the loader with nobody training (loader alone). Whiskers are 95% "
    "intervals."
)
OF_ONE = "Throughput in {unit} per second. The whisker is its 95% interval."


@dataclass(frozen=True, slots=True)
class Bar:
    """A throughput, whose it is, and which of the paces."""

    name: str
    pace: str
    rate: Estimate | None
    missing: str = NOT_MEASURED

    @property
    def label(self) -> str:
        """How its row is called."""
        return f"{self.name}, {self.pace}" if self.name else self.pace

    def words(self) -> str:
        """The throughput with its interval."""
        return self.missing if self.rate is None else estimated(self.rate, _plain)


def paces(subject: Subject) -> Section:
    """Bars with intervals, and the figures behind them."""
    unit, bars = _bars(subject)
    unit = shortened(unit, LONGEST_NAME)
    rows = [(bar.label, bar.words()) for bar in bars]
    caption = CAPTION if len(bars) > 1 else OF_ONE
    blocks: list[Block] = [
        Figure("paces", caption.format(unit=unit), *_drawn(bars, unit)),
        listed(f"Throughput in {unit}/s, with 95% intervals", f"{unit}/s", rows, folded=True),
    ]
    if subject.comparison is not None:
        facts = comparison_facts(subject.comparison.headroom)
        blocks.append(listed("All figures of the comparison", "", facts, folded=True))
    names = [name for name, _ in subject.sides]
    found = [figures(*side) for _, side in subject.sides]
    blocks.append(side_by_side("All figures of each run", names, found, folded=True))
    return Section("paces", "Throughput", tuple(blocks))


def _bars(subject: Subject) -> tuple[str, list[Bar]]:
    if subject.backends is not None:
        unit = subject.backends.unit
        return unit, [bar for one in ranked(subject.backends.backends) for bar in _three(one)]
    if subject.comparison is not None:
        return subject.comparison.unit, _of_comparison(subject.comparison)
    (run,) = subject.runs
    unit = run.header.unit if run_times(run).has_samples else BATCHES
    pace = "ideal" if run.header.mode == "replay" else "real"
    return unit, [Bar("", pace, _throughput(run, unit))]


def _of_comparison(comparison: Comparison) -> list[Bar]:
    if comparison.ideal is None:
        return _three(result_of("", run := MeasuredRun.of(comparison.real), unit_of([run])))
    real, ideal = (_throughput(run, comparison.unit) for run in comparison.runs)
    return [
        Bar("", "real", real),
        Bar("", "ideal", ideal),
        Bar("", "loader alone", None, "not measured in two separate runs"),
    ]


def _three(one: BackendResult) -> list[Bar]:
    if one.error is not None:
        return [Bar(one.name, "real", None, "failed")]
    rates = (one.real, one.ideal, one.loader_only)
    return [Bar(one.name, pace, rate) for pace, rate in zip(COLORS, rates, strict=True)]


def _throughput(run: Run, unit: str) -> Estimate | None:
    return throughputs(run, run_times(run), unit != BATCHES)[0]


def _drawn(bars: Sequence[Bar], unit: str) -> tuple[list[Json], Json]:
    longest = max((bar.rate.value for bar in bars if bar.rate), default=0.0) or 1.0
    ends = [_end(bar, FARTHEST * longest) for bar in bars]
    traces = [_trace(bars, pace) for pace in COLORS]
    rows = _rows(bars)
    unit = shortened(unit, LONGEST_UNIT)
    values = [f"{number(bar.rate.value)} {unit}/s" if bar.rate else "" for bar in bars]
    texts = [
        beside(drawn(value or bar.missing), end, row)
        for value, bar, row, end in zip(values, bars, rows, ends, strict=True)
    ]
    found = layout(GAP + round(ROW * (rows[-1] + 1)), bottom=6)
    found["margin"]["r"] = room_beside(values)
    found |= {
        "xaxis": bare_axis(max(*ends, longest)),
        "yaxis": names_axis([bar.label for bar in bars], rows),
        "annotations": texts,
        "shapes": [
            whisker(bar.rate.low, end, row)
            for bar, row, end in zip(bars, rows, ends, strict=True)
            if bar.rate and bar.rate.low is not None and bar.rate.high is not None
        ],
        "barmode": "overlay",
    }
    return [trace for trace in traces if trace["x"]], found


def _rows(bars: Sequence[Bar]) -> list[float]:
    """Where each bar is, with a gap between backends."""
    names = list(dict.fromkeys(bar.name for bar in bars))
    return [row + BETWEEN * names.index(bar.name) for row, bar in enumerate(bars)]


def _trace(bars: Sequence[Bar], pace: str) -> Json:
    rows = [row for row, bar in enumerate(bars) if bar.pace == pace and bar.rate is not None]
    rates = [bars[row].rate for row in rows]
    known = [rate for rate in rates if rate is not None]
    return {
        "type": "bar",
        "orientation": "h",
        "name": pace,
        "showlegend": False,
        "x": [rate.value for rate in known],
        "y": [_rows(bars)[row] for row in rows],
        "width": 0.62,
        "marker": {"color": COLORS[pace]},
        "customdata": [f"{drawn(bars[row].label)}: {drawn(bars[row].words())}" for row in rows],
        "hovertemplate": "%{customdata}<extra></extra>",
    }


def _end(bar: Bar, farthest: float) -> float:
    if bar.rate is None:
        return 0.0
    return max(bar.rate.value, min(bar.rate.high or 0.0, farthest))


def _plain(value: float | None) -> str:
    return NOT_MEASURED if value is None else number(value)
