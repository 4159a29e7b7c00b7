"""What the figures of the inside of a loader show, as plain data: see bar_charts."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from loadeval.report.figure.bar_charts import Bar, BarChart, Row
from loadeval.report.formatting import duration, share, short_name
from loadeval.report.wording import stages as stage_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.inside.stages import StageReport, StageShare
    from loadeval.report.figure.bar_charts import Texture

TEXTURES: dict[Texture, str] = {
    "solid": stage_words.ON_CPU,
    "hatched": stage_words.WAITING_FOR_CPU,
    "light": stage_words.BLOCKED,
}
"""What a texture stands for."""
MOST_TRANSFORMS = 5
LEAST_DRAWN = 0.0005
"""A smaller share of the total rounds to 0.0%."""
LONGEST_LABEL = 24


def stages_chart(report: StageReport) -> BarChart:
    """All stages in one row, each in a row of its own below, and transforms in fetch."""
    rows = [_all(report, stage_words.ALL_STAGES[report.basis])]
    begins = accumulate((stage.charged_ns for stage in report.stages), initial=0.0)
    for stage, begin_ns in zip(report.stages, begins, strict=False):
        rows.append(_row(report, stage, begin_ns))
        if stage.stage.value == "fetch":
            rows += _transforms(report, begin_ns)
    rest_ns = report.not_attributed_ns
    if abs(report.share(rest_ns) or 0.0) >= LEAST_DRAWN:
        bar = Bar("not_attributed", report.total_ns - rest_ns, rest_ns, duration(rest_ns))
        rows.append(Row(stage_words.NOT_ATTRIBUTED, _value(report, rest_ns), (bar,)))
    return BarChart(tuple(rows))


def loaders_chart(loaders: Sequence[tuple[str, StageReport]]) -> BarChart:
    """A row for each loader, with all its stages and their parts."""
    rows = []
    for name, report in loaders:
        begins = accumulate((stage.charged_ns for stage in report.stages), initial=0.0)
        bars = [
            bar
            for stage, begin_ns in zip(report.stages, begins, strict=False)
            for bar in _bars(stage, begin_ns)
        ]
        text = duration(report.total_ns)
        rows.append(Row(name, text, (*bars, *_rest(report)), stage_words.stages_in_short(report)))
    return BarChart(tuple(rows))


def _all(report: StageReport, label: str) -> Row:
    begins = accumulate((stage.charged_ns for stage in report.stages), initial=0.0)
    bars = [
        Bar(stage.stage.value, begin_ns, stage.charged_ns, duration(stage.charged_ns))
        for stage, begin_ns in zip(report.stages, begins, strict=False)
    ]
    return Row(label, duration(report.total_ns), (*bars, *_rest(report)))


def _rest(report: StageReport) -> tuple[Bar, ...]:
    """A bar of what is not attributed, where that is more than nothing."""
    rest_ns = report.not_attributed_ns
    if (report.share(rest_ns) or 0.0) < LEAST_DRAWN:
        return ()
    return (Bar("not_attributed", report.total_ns - rest_ns, rest_ns, duration(rest_ns)),)


def _row(report: StageReport, stage: StageShare, begin_ns: float) -> Row:
    return Row(
        stage_words.STAGES[stage.stage], _value(report, stage.charged_ns), _bars(stage, begin_ns)
    )


def _bars(stage: StageShare, begin_ns: float) -> tuple[Bar, ...]:
    """A bar each for on CPU, waiting for a CPU and blocked; one bar where that is not known."""
    color, parts_ns = stage.stage.value, (stage.cpu_ns, stage.run_queue_ns, stage.blocked_ns)
    bars = []
    for (texture, name), part_ns in zip(TEXTURES.items(), parts_ns, strict=True):
        if part_ns is None:
            return (Bar(color, begin_ns, stage.charged_ns, duration(stage.charged_ns)),)
        text = f"{name} {duration(part_ns)}"
        bars.append(Bar(color, begin_ns, part_ns, text, texture=texture))
        begin_ns += part_ns
    return tuple(bars)


def _transforms(report: StageReport, begin_ns: float) -> list[Row]:
    """The longest transforms, one after the other from the beginning of fetch on."""
    rows = []
    for transform in report.transforms[:MOST_TRANSFORMS]:
        charged_ns = (report.transform_share(transform) or 0.0) * report.total_ns
        bar = Bar("fetch", begin_ns, charged_ns, duration(charged_ns))
        label = f"  {short_name(transform.name, LONGEST_LABEL)}"
        rows.append(Row(label, _value(report, charged_ns), (bar,), thin=True))
        begin_ns += charged_ns
    return rows


def _value(report: StageReport, ns: float) -> str:
    return f"{duration(ns)}, {share(report.share(ns))}"
