"""The page's sections with figures: each figure with its caption, and its numbers in a table."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.metrics import THREADS
from loadeval.analysis.summary import OUTLIER_TIMES_MEDIAN, iterations_of, steady
from loadeval.report.bar_charts import iteration_chart, ranks_chart, throughput_chart
from loadeval.report.formatting import LONGEST_NAME, counted, duration, number, share, shortened
from loadeval.report.html import plotly
from loadeval.report.html.blocks import Figure, Heading, Section, Table, Text, listed, side_by_side
from loadeval.report.html.escaping import drawn
from loadeval.report.metrics import MAIN, metrics_rows
from loadeval.report.palette import NAMES, dash, series
from loadeval.report.point_charts import (
    SECOND_NS,
    RunTime,
    epoch_starts_of,
    extremes,
    iterations_chart,
    linear_axis,
    log_axis,
    steps_chart,
    waits_chart,
)
from loadeval.report.text import comparison_facts, figures
from loadeval.report.wording.metrics import LONGEST_SUBJECT, quantity_in_words, value_of
from loadeval.report.wording.page import (
    DISTRIBUTION,
    EPOCH_STARTS,
    GPU_IDLE,
    ITERATION_PARTS,
    LOST_TIME,
    METRICS,
    NO_BATCH,
    NO_EPOCH_START,
    NO_METRICS,
    NO_OUTLIER,
    NO_READINGS_OF_RUN,
    NOT_SHADED,
    NOTHING,
    OF_BACKENDS,
    ONE_THROUGHPUT,
    OUTLIERS,
    RINGS,
    SHADED,
    SHADED_METRICS,
    THINNED,
    THROUGHPUT,
    TIMELINE,
    ZEROS,
)
from loadeval.report.wording.ranks import (
    HEAD,
    LARGE_DOTS,
    OF_ONE_RANK,
    OWN_WAITS,
    WHAT_RANKS_ARE,
    clocks_in_words,
    rank_rows,
    worst_first,
)
from loadeval.runlog.model import ARMS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.ranks import JobReport
    from loadeval.analysis.report import Report, RunReport, Side
    from loadeval.report.html.blocks import Block, Json
    from loadeval.report.point_charts import PointChart
    from loadeval.runlog.columns import Column, Values
    from loadeval.runlog.model import Run

# Throughput and iteration time


def throughput(report: Report) -> Section:
    """Bars with intervals, and the numbers behind them."""
    chart = throughput_chart(report)
    unit = shortened(chart.unit, LONGEST_NAME)
    caption = (THROUGHPUT if len(chart.rows) > 1 else ONE_THROUGHPUT).format(unit=unit)
    rows = [(row.name, row.words) for row in chart.rows]
    blocks: list[Block] = [
        Figure("throughput", caption, *plotly.bars(chart)),
        listed(f"Throughput in {unit}/s, with 95% CIs", f"{unit}/s", rows, folded=True),
    ]
    if report.comparison is not None:
        facts = comparison_facts(report.comparison)
        blocks.append(listed("All figures of the comparison", "", facts, folded=True))
    names = [shortened(side.name, LONGEST_NAME) for side in report.sides]
    found = [figures(side) for side in report.sides]
    blocks.append(side_by_side("All figures of each run", names, found, folded=True))
    return Section("throughput", "Throughput", tuple(blocks))


def iteration_time(report: Report) -> Section:
    """Where it goes, and the numbers."""
    chart = iteration_chart(report)
    caption = ITERATION_PARTS if report.backends is None else f"{ITERATION_PARTS} {OF_BACKENDS}"
    caption = caption if report.comparison is None else LOST_TIME
    if any(bar.color == "gpu_idle" for row in chart.rows for bar in row.bars):
        caption += GPU_IDLE
    rows = []
    for row in chart.rows:
        parts = ", ".join(f"{NAMES[bar.color]} {bar.text}" for bar in row.bars)
        rows.append((row.name, f"{row.words}: {parts}" if len(row.bars) > 1 else row.words))
    return Section(
        "iteration-time",
        "Iteration time",
        (
            Figure("iteration-time", caption, *plotly.bars(chart)),
            listed("Time per batch, with 95% CIs", "", rows, folded=True),
        ),
    )


# Ranks

RANKS_HEIGHT, MOST_RANKS = 260, 100
SMALL_DOT, LARGE_DOT, HALF = 5, 13, 0.5


def ranks(report: Report) -> list[Section]:
    """One section for a job, else none: who waits, who keeps the others waiting."""
    job = report.job
    if job is None:
        return []
    chart, order = ranks_chart(job), worst_first(job)
    drawing = plotly.bars(chart) if len(order) <= len(chart.rows) else _all_ranks(job)
    large = f" {LARGE_DOTS}" if len(order) > len(chart.rows) and job.stragglers.ranks else ""
    rows = list(map(tuple, rank_rows(order[:MOST_RANKS], LONGEST_NAME)))
    top, more = tuple(rows[: len(chart.rows)]), tuple(rows[len(chart.rows) :])
    first = f", the first {len(top)} of {len(order):,}" if more else ""
    clocks = clocks_in_words(job)
    explained = (WHAT_RANKS_ARE, OF_ONE_RANK.format(rank=job.shown), clocks)
    blocks: list[Block] = [
        Figure("ranks", f"{OWN_WAITS}.{large}", *drawing),
        Table(f"Ranks, by what they cost the job{first}", HEAD, top, figures=True),
        Text(tuple(filter(None, explained)), "small"),
    ]
    if more:
        blocks.insert(2, Table(f"The next {len(more)}", HEAD, more, folded=True, figures=True))
    return [Section("ranks", "Ranks", tuple(blocks))]


def _all_ranks(job: JobReport) -> tuple[list[Json], Json]:
    """A dot for each rank, a large one for a straggler; a single straggler by its name."""
    known = [(one, one.wait_ns) for one in job.ranks if one.wait_ns is not None]
    longest_ns = max((ns for _, ns in known), default=0.0)
    large = set(job.stragglers.ranks)
    named = large if len(large) == 1 else set()  # names of neighbours would cover one another
    form = plotly.layout(RANKS_HEIGHT)
    form["xaxis"] = plotly.axis("rank", showgrid=False, fixedrange=True)
    form["yaxis"] = plotly.value_axis(linear_axis(longest_ns, "wait"))
    dots: Json = {
        "type": "scatter",
        "mode": "markers+text",
        "name": NAMES["waiting"],
        "showlegend": False,
        "marker": {
            "color": "waiting",
            "size": [LARGE_DOT if one.rank in large else SMALL_DOT for one, _ in known],
            # Plotly makes dots of several sizes transparent, with an outline.
            "opacity": 1,
            "line": {"width": 0},
        },
        "text": [f"rank {one.rank}" if one.rank in named else "" for one, _ in known],
        "textposition": [
            "middle right" if one.rank < HALF * job.world_size else "middle left"
            for one, _ in known
        ],
        "x": [one.rank for one, _ in known],
        "y": [ns for _, ns in known],
        "customdata": [
            f"rank {one.rank} on {drawn(one.host or 'an unknown host')}<br>waits {duration(ns)}, "
            f"last in {share(one.last_share)}"
            for one, ns in known
        ],
        "hovertemplate": plotly.HOVER,
    }
    return [dots], form


# Over the run

WORST = 20
OUTLIER_HEAD = ("epoch and batch", "at", "iteration", "wait", "step", "times the median")
MOST_BARS, MOST_ROWS, FEW_EPOCHS = 300, 200, 20


def timeline(report: Report) -> Section:
    """Waits and steps of each run over time, its blocks shaded."""
    blocks: list[Block] = []
    for one in report.runs:
        blocks += _heading(one)
        blocks.append(_timeline(one) if len(one.run.steps) else Text((NO_BATCH,)))
    return Section("timeline", "Timeline", tuple(blocks))


def outliers(report: Report) -> Section:
    """The iterations of each run over time, and the worst of all in a table."""
    blocks: list[Block] = []
    rows: list[tuple[float, tuple[str, ...]]] = []
    counts = dict.fromkeys(ARMS, 0)
    for one in report.runs:
        blocks += _heading(one)
        chart = iterations_chart(one.counted)
        count = sum(points.count for points in chart.points)
        if chart.marks:
            blocks.append(_over_run("outliers", one, chart))
            rows += _worst(one, chart)
        elif count:
            told = counted(count, "iteration", "iterations")
            blocks.append(Text((NO_OUTLIER.format(count=told, times=OUTLIER_TIMES_MEDIAN),)))
        else:
            blocks.append(Text((NOTHING,)))
        for mark in chart.marks:
            counts["ideal" if mark.color == "ideal" else "real"] += mark.count
    if rows:
        told = " and ".join(f"{count:,} {arm}" for arm, count in counts.items() if count)
        caption = f"Outliers: {told}, by times the median of their arm"
        if sum(counts.values()) > WORST:
            caption += f"; the worst {WORST}"
        worst = sorted(rows, key=lambda row: -row[0])[:WORST]
        blocks.append(Table(caption, OUTLIER_HEAD, tuple(row for _, row in worst), figures=True))
    return Section("outliers", "Outliers", tuple(blocks))


def epoch_starts(report: Report) -> Section:
    """A bar for each epoch, and their times in a table."""
    found = [(one.name, *epoch_starts_of(one.run)) for one in report.runs]
    found = [one for one in found if len(one[1])]
    if not found:
        return Section("epoch-starts", "Epoch starts", (Text((NO_EPOCH_START,)),))
    rows = [
        (", ".join(filter(None, [name, f"epoch {epoch}"])), duration(ns))
        for name, epochs, waits in found
        for epoch, ns in zip(epochs[:MOST_ROWS].tolist(), waits[:MOST_ROWS].tolist(), strict=True)
    ]
    most = max(len(epochs) for _, epochs, _ in found)
    first = f", the first {MOST_ROWS} of {most:,} epochs" if most > MOST_ROWS else ""
    data = [_epoch_bars(*one, at, len(found)) for at, one in enumerate(found)]
    last = max(int(epochs.max()) for _, epochs, _ in found)
    scale = linear_axis(max(int(waits.max()) for *_, waits in found), "first wait")
    form = plotly.layout(240)
    form |= {
        "xaxis": plotly.axis("epoch", showgrid=False, fixedrange=True, range=[-0.6, last + 0.6])
        | ({"dtick": 1} if last < FEW_EPOCHS else {"nticks": 10}),
        "yaxis": plotly.value_axis(scale),
        # Few epochs have thin bars.
        "bargap": 1 - 0.7 * min(1.0, (last + 1) / FEW_EPOCHS),
    }
    shown, count = sum(len(one["x"]) for one in data), sum(len(waits) for *_, waits in found)
    blocks = (
        Figure("epoch-starts", EPOCH_STARTS, data, form, _thinned(shown, count, "epochs")),
        listed(f"First wait of each epoch{first}", "first wait", rows, folded=True),
    )
    return Section("epoch-starts", "Epoch starts", blocks)


def _heading(one: RunReport) -> list[Block]:
    return [Heading(one.name)] if one.name else []


def _thinned(shown: int, count: int, what: str) -> tuple[str, ...]:
    """That `shown` of `count` are drawn; nothing where it is all of them."""
    if shown >= count:
        return ()
    return (THINNED.format(shown=shown, count=count, what=what),)


def _timeline(one: RunReport) -> Figure:
    waits, steps = waits_chart(one.counted), steps_chart(one.counted)
    caption = TIMELINE + (RINGS if waits.marks else "")
    shades: list[Json] = []
    if one.run.header.mode == "alternate":
        shades, count = plotly.shades(one.run, waits.time)
        caption += SHADED if shades else NOT_SHADED.format(count=count) if count else ""
    form = plotly.layout(440)
    form |= {
        "grid": {"subplots": [["xy"], ["xy2"]], "ygap": 0.16},
        "xaxis": plotly.time_axis(waits.time, anchor="y2"),
        "yaxis": plotly.value_axis(waits.axis),
        "yaxis2": plotly.value_axis(steps.axis),
        "shapes": [*shades, *plotly.epoch_lines(waits)],
    }
    data = plotly.points(waits, "wait", many=True) + plotly.points(steps, "step", "y2", many=True)
    drawn_waits = sum(len(points.rows) for points in waits.points)
    notes = _thinned(drawn_waits, len(waits.values), "batches")
    return Figure(f"timeline-{one.number}", caption, data, form, notes, f"run-{one.number}")


def _over_run(name: str, one: RunReport, chart: PointChart) -> Figure:
    form = plotly.layout(300)
    form |= {
        "xaxis": plotly.time_axis(chart.time),
        "yaxis": plotly.value_axis(chart.axis),
        "shapes": plotly.medians(chart),
    }
    notes = _thinned(*chart.shown, "measured batches")
    data = plotly.points(chart, "iteration")
    return Figure(f"{name}-{one.number}", OUTLIERS, data, form, notes, f"run-{one.number}")


def _worst(one: RunReport, chart: PointChart) -> list[tuple[float, tuple[str, ...]]]:
    """Of each arm the rows of its slowest iterations, behind how many medians each took."""
    steps = one.run.steps
    found: list[tuple[float, tuple[str, ...]]] = []
    for arm in iterations_of(one.counted):
        slowest = np.argsort(-chart.values[arm.outliers], kind="stable")[:WORST]
        rows = arm.outliers[slowest]
        for row in rows.tolist():
            times = float(chart.values[row]) / arm.median_ns
            where = f"epoch {steps.epoch[row]}, batch {steps.batch[row]}"
            where += f" ({arm.arm})" if one.run.header.mode == "alternate" else ""
            cells = (
                f"{one.name}: {where}" if one.name else where,
                plotly.seconds(chart.time.x[row]) if chart.time.timed else "unknown",
                duration(int(chart.values[row])),
                duration(int(steps.wait_ns[row])),
                duration(int(steps.step_ns[row])),
                number(times),
            )
            found.append((times, cells))
    return found


def _epoch_bars(name: str, epochs: Column, waits: Column, at: int, count: int) -> Json:
    """Bars, or of very many epochs a line."""
    kept, label = extremes(waits), drawn(name) or "epoch start"
    color = name if name in ARMS else series(at) if count > 1 else "epoch_start"
    bars: Json = {"type": "bar", "marker": {"color": color}}
    line: Json = {"type": "scatter", "mode": "lines", "line": {"color": color, "width": 1.2}}
    return (bars if len(waits) <= MOST_BARS else line) | {
        "name": label,
        "x": epochs[kept].tolist(),
        "y": waits[kept].tolist(),
        "customdata": [
            f"{label}, epoch {epochs[row]}<br>{duration(int(waits[row]))}" for row in kept.tolist()
        ],
        "hovertemplate": plotly.HOVER,
    }


# The distribution of waits

A_DECADE = 10
"""Bins that a power of ten is cut into."""
WAITS_HEAD = ("", "batches", "mean", "p50", "p95", "p99", "longest")


def distribution(report: Report) -> Section:
    """A line for each run or arm, counted from all waits, and their quantiles in a table."""
    sides = [side for side in report.sides if len(_waits(side))]
    # Of several backends the real waits alone: ideal ones are alike, and hide what differs.
    real = [side for side in sides if side.arm == "real"]
    shown = sides if report.comparison is not None else real or sides
    if not shown:
        return Section("distribution", "Waits", (Text((NOTHING,)),))
    found = [(shortened(side.name, LONGEST_NAME), _waits(side)) for side in shown]
    zeros = any((wait_ns <= 0).any() for _, wait_ns in found)
    caption = DISTRIBUTION + (ZEROS if zeros else "")
    rows = []
    for side in report.sides:
        if (told := side.summary.waits) is not None:
            values = (told.mean_ns, told.p50_ns, told.p95_ns, told.p99_ns, told.max_ns)
            batches = f"{side.summary.steady_batches:,}"
            rows.append((shortened(side.name, LONGEST_NAME), batches, *map(duration, values)))
    table = Table("Waits of the measured batches", WAITS_HEAD, tuple(rows), figures=True)
    return Section(
        "distribution", "Waits", (Figure("distribution", caption, *_histogram(found)), table)
    )


def _waits(side: Side) -> Column:
    """The waits of its measured batches."""
    arm = side.arm if side.run.header.mode == "alternate" else None
    return side.run.steps.wait_ns[steady(side.run, arm)]


def _histogram(found: Sequence[tuple[str, Column]]) -> tuple[list[Json], Json]:
    axis = log_axis(np.concatenate([wait_ns for _, wait_ns in found]), "wait")
    low = round(math.log10(axis.floor))
    high = max(math.ceil(math.log10(axis.high / 2)), low + 1)
    bounds = np.linspace(low, high, (high - low) * A_DECADE + 1)
    own = {name for name, _ in found} <= set(ARMS)
    data = [
        _histogram_line(name, wait_ns, bounds, name if own else series(at), dash(at))
        for at, (name, wait_ns) in enumerate(found)
    ]
    top = max(max(trace["y"]) for trace in data)
    shares = linear_axis(top, "share of the batches", lambda part: f"{100 * part:g}%")
    form = plotly.layout(280)
    form["xaxis"] = plotly.value_axis(axis) | {"showgrid": False}
    form["yaxis"] = plotly.value_axis(shares)
    return data, form


def _histogram_line(name: str, wait_ns: Column, bounds: Values, color: str, dashes: str) -> Json:
    logs = np.log10(np.maximum(wait_ns, 10.0 ** bounds[0]))
    counts, _ = np.histogram(np.clip(logs, bounds[0], bounds[-1]), bounds)
    parts = counts / len(wait_ns)
    label = drawn(name)
    ends = [duration(10.0**bound) for bound in bounds.tolist()]
    between = [f"{low} to {high}" for low, high in pairwise(ends)]
    between[0] = f"up to {ends[1]}"
    return {
        "type": "scatter",
        "mode": "lines",
        "name": label,
        "x": (10.0 ** ((bounds[:-1] + bounds[1:]) / 2)).tolist(),
        "y": np.round(parts, 6).tolist(),
        "line": {"color": color, "dash": dashes, "shape": "hvh", "width": 2},
        "customdata": [
            f"{label}: {count:,} batches ({share(float(part))})<br>waited {where}"
            for count, part, where in zip(counts, parts, between, strict=True)
        ],
        "hovertemplate": plotly.HOVER,
    }


# System metrics

PANEL, PANEL_GAP, PANELS_AROUND = 130, 0.26, 54
"""Pixels: a quantity's panel, with which part of it for its title, and the axis."""
METRIC_BUCKETS = 400
MOST_LINES = 64
"""As many GPUs with a quantity each, or fewer with more."""


@dataclass(frozen=True, slots=True, eq=False)
class MetricLine:
    """A quantity of one subject over time, what is not known left out."""

    quantity: str
    subject: str
    time_ns: Column
    values: Values


def system_metrics(report: Report) -> Section:
    """A figure for each run that has readings, and the means of each arm in a table."""
    blocks: list[Block] = []
    for one in report.runs:
        blocks += _heading(one)
        found = _metric_lines(one.run)
        reasons = "; ".join(f"{probe}: {why}" for probe, why in one.metrics.missing)
        why = reasons or NO_READINGS_OF_RUN
        blocks.append(_metrics(one, found) if found else Text((NO_METRICS.format(why=why),)))
    rows = metrics_rows([(one.metrics, side.arm) for one in report.runs for side in one.sides])
    names = [shortened(side.name, LONGEST_NAME) for side in report.sides]
    blocks.append(side_by_side("Means over the measured batches", names, rows))
    return Section("machine", "System metrics", tuple(blocks))


def _metric_lines(run: Run) -> list[MetricLine]:
    """Of the main quantities those that were read, in the order of MAIN."""
    found = []
    for name in MAIN:
        for readings in run.readings:
            values = readings.values.get(name)
            if readings.probe == THREADS:
                continue  # they have a table of their own
            if values is not None and (known := np.isfinite(values)).any():
                times_ns = readings.time_ns[known]
                found.append(MetricLine(name, readings.subject, times_ns, values[known]))
    return found[:MOST_LINES]


def _metrics(one: RunReport, found: Sequence[MetricLine]) -> Figure:
    quantities = list(dict.fromkeys(line.quantity for line in found))
    subjects = list(dict.fromkeys(line.subject for line in found))
    axes = ["y", *(f"y{row}" for row in range(2, len(quantities) + 1))]
    form = plotly.layout(PANELS_AROUND + PANEL * len(quantities))
    form["margin"]["t"] += round(PANEL_GAP * PANEL)
    form["grid"] = {"subplots": [[f"x{axis}"] for axis in axes], "ygap": PANEL_GAP}
    time = RunTime.of(one.run)
    form["xaxis"] = plotly.time_axis(time, anchor=axes[-1])
    form["shapes"], _ = plotly.shades(one.run, time)
    form["annotations"] = []
    for axis, name in zip(axes, quantities, strict=True):
        top = max(float(line.values.max()) for line in found if line.quantity == name)
        panel = linear_axis(max(top, 0.0), "", partial(_tick_of, name))
        form[axis.replace("y", "yaxis")] = plotly.value_axis(panel)
        title = plotly.note(quantity_in_words(name), 0, 1, "bottom")
        form["annotations"].append(title | {"xref": "paper", "yref": f"{axis} domain"})
    data: list[Json] = []
    for place, line in enumerate(found):
        first = all(line.subject != other.subject for other in found[:place])
        axis = axes[quantities.index(line.quantity)]
        data.append(_metric_trace(line, subjects.index(line.subject), axis, first=first))
    count, shown = sum(len(line.values) for line in found), sum(len(one["x"]) for one in data)
    caption = METRICS.format(names=", ".join(map(quantity_in_words, quantities)))
    caption += SHADED_METRICS if form["shapes"] else ""
    notes = _thinned(shown, count, "readings")
    return Figure(f"machine-{one.number}", caption, data, form, notes, f"run-{one.number}")


def _metric_trace(line: MetricLine, subject: int, axis: str, *, first: bool) -> Json:
    kept = extremes(line.values, METRIC_BUCKETS)
    name = drawn(line.subject, LONGEST_SUBJECT) or "all"
    times = np.round(line.time_ns[kept] / SECOND_NS, plotly.S_DIGITS).tolist()
    values = line.values[kept].tolist()
    told = [
        f"{quantity_in_words(line.quantity)} {value_of(line.quantity, value)}" for value in values
    ]
    return {
        "type": "scatter",
        "mode": "lines+markers" if len(kept) <= METRIC_BUCKETS // 4 else "lines",
        "name": name,
        "legendgroup": f"subject{subject}",
        "showlegend": first,
        "x": times,
        "y": values,
        "xaxis": "x",
        "yaxis": axis,
        "line": {"color": series(subject), "dash": dash(subject), "width": 1.6},
        "marker": {"color": series(subject), "size": 4},
        "customdata": [
            f"{name}<br>{value}, at {plotly.seconds(at)}"
            for at, value in zip(times, told, strict=True)
        ],
        "hovertemplate": plotly.HOVER,
    }


def _tick_of(name: str, value: float) -> str:
    return value_of(name, value) if value else "0"
