"""What the figures of bars show, as plain data: throughput, and where an iteration's time goes.

matplotlib and plotly draw it, and decide nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from loadeval.analysis.backends import ranked
from loadeval.report.formatting import (
    NOT_MEASURED,
    bracketed,
    duration,
    number,
    share,
)
from loadeval.report.lost import lost_parts
from loadeval.report.palette import NAMES
from loadeval.report.wording.ranks import worst_first
from loadeval.runlog.model import ARMS

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from loadeval.analysis.backends import BackendReport
    from loadeval.analysis.headroom import Headroom
    from loadeval.analysis.ranks import JobReport
    from loadeval.analysis.report import Comparison, Report, RunReport
    from loadeval.analysis.stats import Estimate
    from loadeval.report.lost import LostPart

    Rows = npt.NDArray[np.intp]
    Mask = npt.NDArray[np.bool_]

Texture = Literal["solid", "hatched", "light"]
FARTHEST = 1.5
"""How far a whisker is drawn, in longest bars."""
MOST_RANKS = 16


@dataclass(frozen=True, slots=True)
class Bar:
    """From `start` on, `length` long, which is under 0 for a gain; `color` is one of the palette.

    `low` and `high` are where its 95% CI begins and ends on the axis. Parts of one colour are told
    apart by their `texture`.
    """

    color: str
    start: float
    length: float
    text: str
    low: float | None = None
    high: float | None = None
    texture: Texture = "solid"

    @property
    def end(self) -> float:
        """Its right end, without the whisker."""
        return self.start + max(self.length, 0.0)


@dataclass(frozen=True, slots=True)
class Row:
    """Bars in one row, with their value as text and its 95% CI, or why there is none.

    `group` is the run that the row is of, where there are several. A `thin` row is a part of one
    above it.
    """

    label: str
    text: str
    bars: tuple[Bar, ...] = ()
    interval: str = ""
    group: str = ""
    thin: bool = False

    @property
    def name(self) -> str:
        """The label behind that of its group."""
        return ", ".join(filter(None, (self.group, self.label)))

    @property
    def words(self) -> str:
        """The value with its interval."""
        return f"{self.text} {self.interval}".strip()


@dataclass(frozen=True, slots=True)
class BarChart:
    """Rows of bars on one linear axis from 0, in `unit` per second or in nanoseconds."""

    rows: tuple[Row, ...]
    unit: str = ""

    @property
    def farthest(self) -> float:
        """Where a whisker is cut off, so that a wide one does not squeeze the bars."""
        return FARTHEST * max((bar.end for row in self.rows for bar in row.bars), default=0.0)

    def end(self, row: Row) -> float:
        """Where `row` ends, its whisker included."""
        whiskers = [min(bar.high, self.farthest) for bar in row.bars if bar.high is not None]
        return max([bar.end for bar in row.bars] + whiskers, default=0.0)


def throughput_chart(report: Report) -> BarChart:
    """Real, ideal and the loader alone: of each backend, or of the one run or the two."""
    if report.backends is not None:
        return backends_chart(report.backends)
    if report.comparison is not None:
        return comparison_chart(report.comparison)
    (one,) = report.runs
    return BarChart((_rate(one.sides[0].arm, one.rate),), one.unit)


def comparison_chart(comparison: Comparison) -> BarChart:
    """The throughputs of a comparison; two separate runs have none of the loader alone."""
    labels = ("real", "ideal", "loader") if comparison.ideal is None else ARMS
    rates = zip(labels, comparison.rates, strict=False)
    return BarChart(tuple(_rate(label, rate) for label, rate in rates), comparison.unit)


def ranks_chart(job: JobReport) -> BarChart:
    """How long ranks wait for their batches, those first that cost the job most."""
    return BarChart(
        tuple(
            Row(
                f"rank {one.rank}",
                duration(one.wait_ns),
                ()
                if one.wait_ns is None
                else (Bar("waiting", 0.0, one.wait_ns, duration(one.wait_ns)),),
                "" if one.last_share is None else f"last in {share(one.last_share)}",
            )
            for one in worst_first(job)[:MOST_RANKS]
        )
    )


def backends_chart(found: BackendReport) -> BarChart:
    """The throughputs of each backend, the fastest first."""
    rows: list[Row] = []
    for one in ranked(found.backends):
        rates = {"real": one.real, "ideal": one.ideal, "loader": one.loader_only}
        told = [_rate(color, rate, one.name) for color, rate in rates.items()]
        rows += [Row("", "failed", group=one.name)] if one.error is not None else told
    return BarChart(tuple(rows), found.unit)


def _rate(color: str, rate: Estimate | None, group: str = "") -> Row:
    if rate is None:
        return Row(NAMES[color], NOT_MEASURED, group=group)
    text = number(rate.value)
    bar = Bar(color, 0.0, rate.value, text, rate.low, rate.high)
    return Row(NAMES[color], text, (bar,), bracketed(rate, number), group)


def iteration_chart(report: Report) -> BarChart:
    """Where the time of an iteration goes: of a comparison, or of each run."""
    if report.comparison is not None:
        return lost_time_chart(report.comparison)
    failed = {
        one.name for one in (report.backends.backends if report.backends else ()) if one.error
    }
    rows: list[Row] = []
    for one in report.runs:
        if one.name in failed:
            rows.append(Row("", "failed", group=one.name))
            continue
        bars = _parts_of(one)
        text = duration(max((bar.end for bar in bars), default=None))
        rows.append(Row("" if one.name else one.run.header.mode, text, bars, group=one.name))
        idle_ns = one.metrics.gpu_idle_ns["real"]
        if idle_ns is not None:
            rows.append(_gpu_idle(0.0, idle_ns, one.name))
    return BarChart(tuple(rows))


def lost_time_chart(comparison: Comparison) -> BarChart:
    """From real down to ideal: what makes up each stacked, and between them what is lost."""
    found = comparison.headroom
    waiting, contention, *starts = lost_parts(found)
    real = _stack("real", found.real_ns, found.real_wait_ns)
    rows = [real]
    for one in starts:
        rows = [_with_starts(real, found, one), _lost(one, found.real_ns)]
    # The others are lost from the end of the steady iteration: waiting first, then contention.
    between_ns = None
    if found.real_ns is not None and waiting.time_ns is not None:
        between_ns = found.real_ns - waiting.time_ns.value
    rows.append(_lost(waiting, between_ns))
    if found.gpu_idle_ns is not None and between_ns is not None:
        rows.append(_gpu_idle(between_ns, found.gpu_idle_ns))
    rows.append(_lost(contention, found.ideal_ns))
    rows.append(_stack("ideal", found.ideal_ns, found.ideal_wait_ns))
    return BarChart(tuple(rows))


def _gpu_idle(start_ns: float, idle_ns: float, group: str = "") -> Row:
    bar = Bar("gpu_idle", start_ns, idle_ns, duration(idle_ns))
    return Row(NAMES["gpu_idle"], bar.text, (bar,), group=group)


def _stack(label: str, iteration_ns: float | None, wait_ns: float | None) -> Row:
    if iteration_ns is None or wait_ns is None:
        return Row(label, duration(iteration_ns))
    step_ns = iteration_ns - wait_ns
    bars = (
        Bar("step", 0.0, step_ns, duration(step_ns)),
        Bar("waiting", step_ns, wait_ns, duration(wait_ns)),
    )
    return Row(label, duration(iteration_ns), bars)


def _with_starts(real: Row, found: Headroom, starts: LostPart) -> Row:
    """The real row, as high as whole epochs; starts that gain time are no part of it."""
    bars, text = real.bars, duration(found.whole_ns)
    if found.real_ns is not None and starts.time_ns is not None and starts.time_ns.value > 0:
        added_ns = starts.time_ns.value
        bars += (Bar(starts.color, found.real_ns, added_ns, duration(added_ns)),)
    return Row(real.label, text, bars)


def _lost(part: LostPart, start_ns: float | None) -> Row:
    label, lost = f"lost to {part.name}", part.time_ns
    if start_ns is None or lost is None:
        return Row(label, NOT_MEASURED)
    low, high = (None if end is None else max(start_ns + end, 0.0) for end in (lost.low, lost.high))
    bar = Bar(part.color, start_ns, lost.value, duration(lost.value), low, high)
    return Row(label, bar.text, (bar,), bracketed(lost, duration))


def _parts_of(one: RunReport) -> tuple[Bar, ...]:
    """What adds up to the mean iteration of a run; of one that alternated, of its real arm."""
    summary = one.sides[0].summary
    if summary.wait_ns is None or summary.step_ns is None:
        return ()
    slower = one.comparison and one.comparison.headroom.contention_ns
    slower_ns = min(max(slower.value, 0.0), summary.step_ns) if slower else 0.0
    alone_ns = summary.step_ns - slower_ns
    parts = [("step", 0.0, alone_ns), ("waiting", summary.step_ns, summary.wait_ns)]
    if slower_ns:
        parts.insert(1, ("contention", alone_ns, slower_ns))
    return tuple(Bar(color, start, ns, duration(ns)) for color, start, ns in parts)
