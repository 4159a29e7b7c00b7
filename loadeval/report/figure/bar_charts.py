"""What the figures of bars show, as plain data: throughput, and where an iteration's time goes.

matplotlib and plotly draw it, and decide nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from loadeval.analysis.backends import ranked
from loadeval.data.run import ARMS
from loadeval.report.formatting import (
    NOT_MEASURED,
    duration,
    interval,
    number,
    share,
)
from loadeval.report.palette import NAMES
from loadeval.report.wording.lost import lost_parts
from loadeval.report.wording.ranks import worst_first

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from loadeval.analysis.backends import BackendReport
    from loadeval.analysis.estimate.headroom import Headroom
    from loadeval.analysis.estimate.stats import Estimate
    from loadeval.analysis.job.ranks import JobReport
    from loadeval.analysis.report import Comparison, Report, RunReport
    from loadeval.report.wording.lost import LostPart

    Rows = npt.NDArray[np.intp]
    Mask = npt.NDArray[np.bool_]

Texture = Literal["solid", "hatched", "light"]
FARTHEST = 1.5
"""How far a whisker is drawn, in longest bars."""
MOST_RANKS = 16


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar from `start` on; its `length` is under 0 for a gain, its `color` one of the palette.

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
        """The right end of the bar, without the whisker."""
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
    (run,) = report.runs
    return BarChart((rate_row(run.sides[0].arm, run.rate),), run.unit)


def comparison_chart(comparison: Comparison) -> BarChart:
    """The throughputs of a comparison; two separate runs have none of the loader alone."""
    labels = ("real", "ideal", "loader") if comparison.ideal is None else ARMS
    rates = zip(labels, comparison.rates, strict=False)
    return BarChart(tuple(rate_row(label, rate) for label, rate in rates), comparison.unit)


def ranks_chart(job: JobReport) -> BarChart:
    """How long ranks wait for their batches, those first that cost the job most."""
    return BarChart(
        tuple(
            Row(
                f"rank {rank.rank}",
                duration(rank.wait_ns),
                ()
                if rank.wait_ns is None
                else (Bar("waiting", 0.0, rank.wait_ns, duration(rank.wait_ns)),),
                "" if rank.last_share is None else f"last in {share(rank.last_share)}",
            )
            for rank in worst_first(job)[:MOST_RANKS]
        )
    )


def backends_chart(report: BackendReport) -> BarChart:
    """The throughputs of each backend, the fastest first."""
    rows: list[Row] = []
    for backend in ranked(report.backends):
        rates = {"real": backend.real, "ideal": backend.ideal, "loader": backend.loader_only}
        measured = [rate_row(color, rate, backend.name) for color, rate in rates.items()]
        rows += [Row("", "failed", group=backend.name)] if backend.error is not None else measured
    return BarChart(tuple(rows), report.unit)


def rate_row(color: str, rate: Estimate | None, group: str = "") -> Row:
    """A rate with its CI, labelled with the name of what has that color."""
    label = NAMES[color]
    if rate is None:
        return Row(label, NOT_MEASURED, group=group)
    text = number(rate.value)
    bar = Bar(color, 0.0, rate.value, text, rate.low, rate.high)
    return Row(label, text, (bar,), interval(rate, number), group)


def iteration_chart(report: Report) -> BarChart:
    """Where the time of an iteration goes, in a comparison or in each run."""
    if report.comparison is not None:
        return lost_time_chart(report.comparison)
    failed = {
        backend.name
        for backend in (report.backends.backends if report.backends else ())
        if backend.error
    }
    rows: list[Row] = []
    for run in report.runs:
        if run.name in failed:
            rows.append(Row("", "failed", group=run.name))
            continue
        bars = _parts_of(run)
        text = duration(max((bar.end for bar in bars), default=None))
        rows.append(Row("" if run.name else run.run.header.mode, text, bars, group=run.name))
        idle_ns = run.metrics.gpu_idle_ns["real"]
        if idle_ns is not None:
            rows.append(_gpu_idle(0.0, idle_ns, run.name))
    return BarChart(tuple(rows))


def lost_time_chart(comparison: Comparison) -> BarChart:
    """The real and the ideal iteration with their parts, and between them what is lost."""
    headroom = comparison.headroom
    waiting, contention, *starts = lost_parts(headroom)
    real = _stack("real", headroom.real_ns, headroom.real_wait_ns)
    rows = [real]
    for part in starts:
        rows = [_with_starts(real, headroom, part), _lost(part, headroom.real_ns)]
    # The others are lost from the end of the steady iteration: waiting first, then contention.
    between_ns = None
    if headroom.real_ns is not None and waiting.time_ns is not None:
        between_ns = headroom.real_ns - waiting.time_ns.value
    rows.append(_lost(waiting, between_ns))
    if headroom.gpu_idle_ns is not None and between_ns is not None:
        rows.append(_gpu_idle(between_ns, headroom.gpu_idle_ns))
    rows.append(_lost(contention, headroom.ideal_ns))
    rows.append(_stack("ideal", headroom.ideal_ns, headroom.ideal_wait_ns))
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


def _with_starts(real: Row, headroom: Headroom, starts: LostPart) -> Row:
    """The real row, as high as whole epochs; starts that gain time are no part of it."""
    bars, text = real.bars, duration(headroom.whole_ns)
    if headroom.real_ns is not None and starts.time_ns is not None and starts.time_ns.value > 0:
        added_ns = starts.time_ns.value
        bars += (Bar(starts.color, headroom.real_ns, added_ns, duration(added_ns)),)
    return Row(real.label, text, bars)


def _lost(part: LostPart, start_ns: float | None) -> Row:
    label, lost = f"lost to {part.name}", part.time_ns
    if start_ns is None or lost is None:
        return Row(label, NOT_MEASURED)
    low, high = (None if end is None else max(start_ns + end, 0.0) for end in (lost.low, lost.high))
    bar = Bar(part.color, start_ns, lost.value, duration(lost.value), low, high)
    return Row(label, bar.text, (bar,), interval(lost, duration))


def _parts_of(run: RunReport) -> tuple[Bar, ...]:
    """What adds up to the mean iteration of a run, or of the real arm where it alternated."""
    summary = run.sides[0].summary
    if summary.wait_ns is None or summary.step_ns is None:
        return ()
    slower = run.comparison and run.comparison.headroom.contention_ns
    slower_ns = min(max(slower.value, 0.0), summary.step_ns) if slower else 0.0
    alone_ns = summary.step_ns - slower_ns
    parts = [("step", 0.0, alone_ns), ("waiting", summary.step_ns, summary.wait_ns)]
    if slower_ns:
        parts.insert(1, ("contention", alone_ns, slower_ns))
    return tuple(Bar(color, start, ns, duration(ns)) for color, start, ns in parts)
