"""The page of `loadeval plan`: what feeding devices takes, and how busy that keeps them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.report.figure.machine_figure import COLOR
from loadeval.report.formatting import cpus, share
from loadeval.report.page import plotly
from loadeval.report.page.blocks import Figure, Keys, Section, Text
from loadeval.report.page.escaping import drawn
from loadeval.report.page.page import rendered
from loadeval.report.page.whatif import HEIGHT, band, upright
from loadeval.report.tables import Table
from loadeval.report.wording import machine as wording
from loadeval.report.wording import whatif as whatif_words
from loadeval.report.wording.whatif import ranged

if TYPE_CHECKING:
    from loadeval.analysis.machine import MachinePlan
    from loadeval.report.page.blocks import Block, Json

PERCENT = 100


def machine_page(plan: MachinePlan, run: str) -> str:
    """The page as text, of the run of that name.

    Raises UsageError where a page cannot hold the installed plotly.
    """
    sections = [_needs(plan), _lifts(plan), _curve(plan)]
    return rendered(wording.headline(plan), [run], _top(plan), sections)


def _top(plan: MachinePlan) -> list[Block]:
    cautions = tuple(filter(None, [wording.caution(plan)]))
    return [
        Keys(tuple(wording.keys(plan))),
        Text(cautions, "caution"),
        Text((wording.RANGES,), "small"),
    ]


def _needs(plan: MachinePlan) -> Section:
    rows = tuple(map(wording.demand_row, plan.demands))
    unknown = tuple(filter(None, map(wording.why_not_known, plan.demands)))
    blocks: list[Block] = [Table(wording.NEEDS_CAPTION, wording.HEAD, rows)]
    return Section("needs", "Needed", (*blocks, *([Text(unknown, "list")] if unknown else [])))


def _lifts(plan: MachinePlan) -> Section:
    head, rows = wording.LIFT_HEAD, tuple(map(wording.lift_row, plan.lifts))
    table = Table(wording.LIFTS_CAPTION, ("", *head[1:]), rows, figures=True)
    return Section(
        "lifts", "What would lift it", (table if rows else Text((wording.ALL_ONE_CAN,)),)
    )


def _curve(plan: MachinePlan) -> Section:
    rows = tuple((cpus(count), ranged(busy, share)) for count, busy in plan.by_cpus)
    table = Table(wording.CURVE_CAPTION, wording.CPUS_HEAD, rows, figures=True)
    return Section("cpus", wording.CPUS_HEAD[0], (_figure(plan), table))


def _figure(plan: MachinePlan) -> Figure:
    ends = [
        (count, PERCENT * busy.low, PERCENT * busy.high, PERCENT * busy.value)
        for count, busy in plan.by_cpus
    ]
    counts = [count for count, *_ in ends]
    there = plan.machine.cpus / plan.machine.devices
    still: Json = {"fixedrange": True}
    form = plotly.layout(HEIGHT) | {
        "xaxis": plotly.axis(
            wording.CPUS_HEAD[0], showgrid=False, **still, range=[0, max(counts) * 1.02]
        ),
        "yaxis": plotly.axis("", **still, range=[0, 105], ticksuffix="%"),
        "shapes": [band([end[:3] for end in ends], COLOR), upright(there)],
        "annotations": [plotly.note(wording.MARK, there, 0, "bottom") | {"xshift": 6}],
    }
    words = [
        f"{drawn(cpus(count))}<br>{drawn(ranged(busy, share))}" for count, busy in plan.by_cpus
    ]
    line = plotly.trace(
        "scatter", whatif_words.PREDICTED, counts, [end[3] for end in ends], words
    ) | {
        "mode": "lines+markers",
        "marker": {"color": COLOR, "size": 8},
        "line": {"color": COLOR, "width": 2},
    }
    return Figure("cpus", wording.FIGURE_CAPTION, [line], form)
