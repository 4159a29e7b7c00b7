"""The screen of `loadeval plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.report.formatting import cpus, share
from loadeval.report.tables import Table, wrapped
from loadeval.report.wording import machine as wording
from loadeval.report.wording.whatif import ranged

if TYPE_CHECKING:
    from loadeval.analysis.machine import MachinePlan


def machine_lines(plan: MachinePlan, width: int) -> list[str]:
    """The utilisation, what is needed beside what is there, what would lift it, and a curve."""
    lines = wrapped(wording.headline(plan), width)
    if caution := wording.caution(plan):
        lines += ["", *wrapped(caution, width)]
    demands = [wording.HEAD, *map(wording.demand_row, plan.demands)]
    lines += ["", *Table(rows=demands).lines(width), ""]
    for why in filter(None, map(wording.why_not_known, plan.demands)):
        lines += wrapped(why, width)
    if any(demand.why for demand in plan.demands):
        lines.append("")
    if plan.lifts:
        lifts = [wording.LIFT_HEAD, *map(wording.lift_row, plan.lifts)]
        lines += Table(rows=lifts).lines(width)
    else:
        lines += wrapped(wording.ALL_ONE_CAN, width)
    curve = [(cpus(count), ranged(busy, share)) for count, busy in plan.by_cpus]
    lines += ["", *Table(rows=[wording.CPUS_HEAD, *curve]).lines(width)]
    return [*lines, "", *wrapped(wording.RANGES, width)]
