"""What the figures of the inside of a loader show, as plain data: see bar_charts."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from loadeval.report.bar_charts import Bar, BarChart, Row
from loadeval.report.formatting import duration, share, short_name
from loadeval.report.wording.stages import (
    ALL_STAGES,
    BLOCKED,
    NOT_ATTRIBUTED,
    ON_CPU,
    STAGES,
    WAITING_FOR_CPU,
    stages_in_short,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.stages import StageReport, StageShare
    from loadeval.report.bar_charts import Texture

TEXTURES: dict[Texture, str] = {"solid": ON_CPU, "hatched": WAITING_FOR_CPU, "light": BLOCKED}
"""What a texture stands for."""
MOST_TRANSFORMS = 5
LEAST_DRAWN = 0.0005
"""Of the total: what is less than that rounds to 0.0%."""
LONGEST_LABEL = 24


def stages_chart(found: StageReport) -> BarChart:
    """All stages in one row, each in a row of its own below, and transforms in fetch."""
    rows = [_all(found, ALL_STAGES[found.basis])]
    begins = accumulate((one.charged_ns for one in found.stages), initial=0.0)
    for one, begin_ns in zip(found.stages, begins, strict=False):
        rows.append(_row(found, one, begin_ns))
        if one.stage.value == "fetch":
            rows += _transforms(found, begin_ns)
    rest_ns = found.not_attributed_ns
    if abs(found.share(rest_ns) or 0.0) >= LEAST_DRAWN:
        bar = Bar("not_attributed", found.total_ns - rest_ns, rest_ns, duration(rest_ns))
        rows.append(Row(NOT_ATTRIBUTED, _told(found, rest_ns), (bar,)))
    return BarChart(tuple(rows))


def loaders_chart(loaders: Sequence[tuple[str, StageReport]]) -> BarChart:
    """For each loader all its stages in one row, their parts told apart."""
    rows = []
    for name, found in loaders:
        begins = accumulate((one.charged_ns for one in found.stages), initial=0.0)
        bars = [
            bar
            for one, begin_ns in zip(found.stages, begins, strict=False)
            for bar in _bars(one, begin_ns)
        ]
        text = duration(found.total_ns)
        rows.append(Row(name, text, (*bars, *_rest(found)), stages_in_short(found)))
    return BarChart(tuple(rows))


def _all(found: StageReport, label: str) -> Row:
    begins = accumulate((one.charged_ns for one in found.stages), initial=0.0)
    bars = [
        Bar(one.stage.value, begin_ns, one.charged_ns, duration(one.charged_ns))
        for one, begin_ns in zip(found.stages, begins, strict=False)
    ]
    return Row(label, duration(found.total_ns), (*bars, *_rest(found)))


def _rest(found: StageReport) -> tuple[Bar, ...]:
    """What is not attributed, where that is more than nothing."""
    rest_ns = found.not_attributed_ns
    if (found.share(rest_ns) or 0.0) < LEAST_DRAWN:
        return ()
    return (Bar("not_attributed", found.total_ns - rest_ns, rest_ns, duration(rest_ns)),)


def _row(found: StageReport, one: StageShare, begin_ns: float) -> Row:
    return Row(STAGES[one.stage], _told(found, one.charged_ns), _bars(one, begin_ns))


def _bars(one: StageShare, begin_ns: float) -> tuple[Bar, ...]:
    """On CPU, waiting for a CPU, blocked; or one bar where that is not known."""
    color, parts_ns = one.stage.value, (one.cpu_ns, one.run_queue_ns, one.blocked_ns)
    bars = []
    for (texture, name), part_ns in zip(TEXTURES.items(), parts_ns, strict=True):
        if part_ns is None:
            return (Bar(color, begin_ns, one.charged_ns, duration(one.charged_ns)),)
        text = f"{name} {duration(part_ns)}"
        bars.append(Bar(color, begin_ns, part_ns, text, texture=texture))
        begin_ns += part_ns
    return tuple(bars)


def _transforms(found: StageReport, begin_ns: float) -> list[Row]:
    """The longest transforms, one after the other from the beginning of fetch on."""
    rows = []
    for one in found.transforms[:MOST_TRANSFORMS]:
        charged_ns = (found.transform_share(one) or 0.0) * found.total_ns
        bar = Bar("fetch", begin_ns, charged_ns, duration(charged_ns))
        label = f"  {short_name(one.name, LONGEST_LABEL)}"
        rows.append(Row(label, _told(found, charged_ns), (bar,), thin=True))
        begin_ns += charged_ns
    return rows


def _told(found: StageReport, ns: float) -> str:
    return f"{duration(ns)}, {share(found.share(ns))}"
