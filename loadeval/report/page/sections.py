"""The page's sections with figures: each figure with its caption, and its numbers in a table."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.estimate.steady import steady
from loadeval.analysis.estimate.summary import OUTLIER_TIMES_MEDIAN, iterations_of
from loadeval.data.run import ARMS
from loadeval.report.facts import figures
from loadeval.report.figure.bar_charts import iteration_chart, throughput_chart
from loadeval.report.figure.point_charts import (
    epoch_starts_of,
    extremes,
    iterations_chart,
    linear_axis,
    log_axis,
    steps_chart,
    waits_chart,
)
from loadeval.report.formatting import LONGEST_NAME, counted, duration, number, share, shortened
from loadeval.report.page import plotly
from loadeval.report.page.blocks import Figure, Section, Text, headed, listed, side_by_side
from loadeval.report.page.escaping import drawn
from loadeval.report.palette import NAMES, dash, series
from loadeval.report.tables import Table
from loadeval.report.terminal.text import comparison_rows
from loadeval.report.wording import page as page_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.report import Report, RunReport, Side
    from loadeval.data.columns import Column, Values
    from loadeval.report.figure.point_charts import PointChart
    from loadeval.report.page.blocks import Block, Json

# Throughput and iteration time


def throughput(report: Report) -> Section:
    """Bars with intervals, and the numbers behind them."""
    chart = throughput_chart(report)
    unit = shortened(chart.unit, LONGEST_NAME)
    caption = (page_words.THROUGHPUT if len(chart.rows) > 1 else page_words.ONE_THROUGHPUT).format(
        unit=unit
    )
    rows = [(row.name, row.words) for row in chart.rows]
    blocks: list[Block] = [
        Figure("throughput", caption, *plotly.bars(chart)),
        listed(f"Throughput in {unit}/s, with 95% CIs", f"{unit}/s", rows, folded=True),
    ]
    if report.comparison is not None:
        facts = comparison_rows(report.comparison)
        blocks.append(listed("All figures of the comparison", "", facts, folded=True))
    names = [shortened(side.name, LONGEST_NAME) for side in report.sides]
    columns = [figures(side) for side in report.sides]
    blocks.append(side_by_side("All figures of each run", names, columns, folded=True))
    return Section("throughput", "Throughput", tuple(blocks))


def iteration_time(report: Report) -> Section:
    """Where the time of an iteration goes, and the numbers."""
    chart = iteration_chart(report)
    caption = (
        page_words.ITERATION_PARTS
        if report.backends is None
        else f"{page_words.ITERATION_PARTS} {page_words.OF_BACKENDS}"
    )
    caption = caption if report.comparison is None else page_words.LOST_TIME
    if any(bar.color == "gpu_idle" for row in chart.rows for bar in row.bars):
        caption += page_words.GPU_IDLE
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


# Over the run

WORST = 20
OUTLIER_HEAD = ("epoch and batch", "at", "iteration", "wait", "step", "times the median")
MOST_BARS, MOST_ROWS, FEW_EPOCHS = 300, 200, 20


def timeline(report: Report) -> Section:
    """Waits and steps of each run over time, its blocks shaded."""
    blocks: list[Block] = []
    for run in report.runs:
        blocks += headed(run.name)
        blocks.append(_timeline(run) if len(run.run.steps) else Text((page_words.NO_BATCH,)))
    return Section("timeline", "Timeline", tuple(blocks))


def outliers(report: Report) -> Section:
    """The iterations of each run over time, and the worst of all in a table."""
    blocks: list[Block] = []
    rows: list[tuple[float, tuple[str, ...]]] = []
    counts = dict.fromkeys(ARMS, 0)
    for run in report.runs:
        blocks += headed(run.name)
        chart = iterations_chart(run.counted)
        count = sum(points.count for points in chart.points)
        if chart.marks:
            blocks.append(_outliers(run, chart))
            rows += _worst(run, chart)
        elif count:
            in_words = counted(count, "iteration", "iterations")
            blocks.append(
                Text((page_words.NO_OUTLIER.format(count=in_words, times=OUTLIER_TIMES_MEDIAN),))
            )
        else:
            blocks.append(Text((page_words.NOTHING,)))
        for mark in chart.marks:
            counts["ideal" if mark.color == "ideal" else "real"] += mark.count
    if rows:
        in_words = " and ".join(f"{count:,} {arm}" for arm, count in counts.items() if count)
        caption = f"Outliers: {in_words}, by times the median of their arm"
        if sum(counts.values()) > WORST:
            caption += f"; the worst {WORST}"
        worst = sorted(rows, key=lambda row: -row[0])[:WORST]
        blocks.append(Table(caption, OUTLIER_HEAD, tuple(row for _, row in worst), figures=True))
    return Section("outliers", "Outliers", tuple(blocks))


def epoch_starts(report: Report) -> Section:
    """A bar for each epoch, and their times in a table."""
    runs = [(run.name, *epoch_starts_of(run.run)) for run in report.runs]
    runs = [(name, epochs, waits_ns) for name, epochs, waits_ns in runs if len(epochs)]
    if not runs:
        return Section("epoch-starts", "Epoch starts", (Text((page_words.NO_EPOCH_START,)),))
    rows = [
        (", ".join(filter(None, [name, f"epoch {epoch}"])), duration(wait_ns))
        for name, epochs, waits_ns in runs
        for epoch, wait_ns in zip(
            epochs[:MOST_ROWS].tolist(), waits_ns[:MOST_ROWS].tolist(), strict=True
        )
    ]
    longest = max(len(epochs) for _, epochs, _ in runs)
    first = f", the first {MOST_ROWS} of {longest:,} epochs" if longest > MOST_ROWS else ""
    data = [_epoch_bars(*run, index, len(runs)) for index, run in enumerate(runs)]
    last = max(int(epochs.max()) for _, epochs, _ in runs)
    scale = linear_axis(max(int(waits_ns.max()) for *_, waits_ns in runs), "first wait")
    form = plotly.layout(240)
    form |= {
        "xaxis": plotly.axis("epoch", showgrid=False, fixedrange=True, range=[-0.6, last + 0.6])
        | ({"dtick": 1} if last < FEW_EPOCHS else {"nticks": 10}),
        "yaxis": plotly.value_axis(scale),
        # Few epochs have thin bars.
        "bargap": 1 - 0.7 * min(1.0, (last + 1) / FEW_EPOCHS),
    }
    shown = sum(len(trace["x"]) for trace in data)
    notes = thinned(shown, sum(len(epochs) for _, epochs, _ in runs), "epochs")
    blocks = (
        Figure("epoch-starts", page_words.EPOCH_STARTS, data, form, notes),
        listed(f"First wait of each epoch{first}", "first wait", rows, folded=True),
    )
    return Section("epoch-starts", "Epoch starts", blocks)


def thinned(shown: int, count: int, what: str) -> tuple[str, ...]:
    """A note that `shown` of `count` are drawn; none where all are."""
    if shown >= count:
        return ()
    return (page_words.THINNED.format(shown=shown, count=count, what=what),)


def _timeline(run: RunReport) -> Figure:
    waits, steps = waits_chart(run.counted), steps_chart(run.counted)
    caption = page_words.TIMELINE + (page_words.RINGS if waits.marks else "")
    shades: list[Json] = []
    if run.run.header.mode == "alternate":
        shades, count = plotly.shades(run.run, waits.time)
        caption += (
            page_words.SHADED
            if shades
            else page_words.NOT_SHADED.format(count=count)
            if count
            else ""
        )
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
    notes = thinned(drawn_waits, len(waits.values), "batches")
    return Figure(f"timeline-{run.number}", caption, data, form, notes, f"run-{run.number}")


def _outliers(run: RunReport, chart: PointChart) -> Figure:
    form = plotly.layout(300)
    form |= {
        "xaxis": plotly.time_axis(chart.time),
        "yaxis": plotly.value_axis(chart.axis),
        "shapes": plotly.medians(chart),
    }
    notes = thinned(*chart.shown, "measured batches")
    data = plotly.points(chart, "iteration")
    return Figure(
        f"outliers-{run.number}", page_words.OUTLIERS, data, form, notes, f"run-{run.number}"
    )


def _worst(run: RunReport, chart: PointChart) -> list[tuple[float, tuple[str, ...]]]:
    """The slowest iterations of each arm: how many medians each took, and its row."""
    steps = run.run.steps
    worst: list[tuple[float, tuple[str, ...]]] = []
    for arm in iterations_of(run.counted):
        slowest = np.argsort(-chart.values[arm.outliers], kind="stable")[:WORST]
        rows = arm.outliers[slowest]
        for row in rows.tolist():
            times = float(chart.values[row]) / arm.median_ns
            where = f"epoch {steps.epoch[row]}, batch {steps.batch[row]}"
            where += f" ({arm.arm})" if run.run.header.mode == "alternate" else ""
            cells = (
                f"{run.name}: {where}" if run.name else where,
                plotly.seconds(chart.time.x[row]) if chart.time.timed else "unknown",
                duration(int(chart.values[row])),
                duration(int(steps.wait_ns[row])),
                duration(int(steps.step_ns[row])),
                number(times),
            )
            worst.append((times, cells))
    return worst


def _epoch_bars(name: str, epochs: Column, waits: Column, index: int, count: int) -> Json:
    """Bars; for very many epochs, a line."""
    kept, label = extremes(waits), drawn(name) or "epoch start"
    color = name if name in ARMS else series(index) if count > 1 else "epoch_start"
    shown = epochs[kept].tolist(), waits[kept].tolist()
    words = [f"{label}, epoch {epoch}<br>{duration(ns)}" for epoch, ns in zip(*shown, strict=True)]
    if len(waits) <= MOST_BARS:
        return plotly.trace("bar", label, *shown, words) | {"marker": {"color": color}}
    line = {"mode": "lines", "line": {"color": color, "width": 1.2}}
    return plotly.trace("scatter", label, *shown, words) | line


# The distribution of waits

A_DECADE = 10
"""Bins in a power of ten."""
WAITS_HEAD = ("", "batches", "mean", "p50", "p95", "p99", "longest")


def distribution(report: Report) -> Section:
    """A line for each run or arm, counted from all waits, and their quantiles in a table."""
    sides = [side for side in report.sides if len(_waits(side))]
    # Several backends show only the real waits: ideal ones are alike, and hide the differences.
    real = [side for side in sides if side.arm == "real"]
    shown = sides if report.comparison is not None else real or sides
    if not shown:
        return Section("distribution", "Waits", (Text((page_words.NOTHING,)),))
    waits = [(shortened(side.name, LONGEST_NAME), _waits(side)) for side in shown]
    zeros = any((wait_ns <= 0).any() for _, wait_ns in waits)
    caption = page_words.DISTRIBUTION + (page_words.ZEROS if zeros else "")
    rows = []
    for side in report.sides:
        if (quantiles := side.summary.waits) is not None:
            values = (
                quantiles.mean_ns,
                quantiles.p50_ns,
                quantiles.p95_ns,
                quantiles.p99_ns,
                quantiles.max_ns,
            )
            batches = f"{side.summary.steady_batches:,}"
            rows.append((shortened(side.name, LONGEST_NAME), batches, *map(duration, values)))
    table = Table("Waits of the measured batches", WAITS_HEAD, tuple(rows), figures=True)
    return Section(
        "distribution", "Waits", (Figure("distribution", caption, *_histogram(waits)), table)
    )


def _waits(side: Side) -> Column:
    """The waits of its measured batches."""
    arm = side.arm if side.run.header.mode == "alternate" else None
    return side.run.steps.wait_ns[steady(side.run, arm)]


def _histogram(sides: Sequence[tuple[str, Column]]) -> tuple[list[Json], Json]:
    axis = log_axis(np.concatenate([wait_ns for _, wait_ns in sides]), "wait")
    low = round(math.log10(axis.floor))
    high = max(math.ceil(math.log10(axis.high / 2)), low + 1)
    bounds = np.linspace(low, high, (high - low) * A_DECADE + 1)
    own = {name for name, _ in sides} <= set(ARMS)
    data = [
        _histogram_line(name, wait_ns, bounds, name if own else series(index), dash(index))
        for index, (name, wait_ns) in enumerate(sides)
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
    words = [
        f"{label}: {count:,} batches ({share(float(part))})<br>waited {where}"
        for count, part, where in zip(counts, parts, between, strict=True)
    ]
    middles = 10.0 ** ((bounds[:-1] + bounds[1:]) / 2)
    return plotly.trace("scatter", label, middles.tolist(), np.round(parts, 6).tolist(), words) | {
        "mode": "lines",
        "line": {"color": color, "dash": dashes, "shape": "hvh", "width": 2},
    }


# System metrics
