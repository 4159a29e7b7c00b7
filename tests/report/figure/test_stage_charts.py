"""What the figures of the inside of a loader show."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from loadeval.analysis.report import Report
from loadeval.report.figure.stage_charts import MOST_TRANSFORMS, loaders_chart, stages_chart
from tests.runs.staged import staged
from tests.runs.tables import replace

if TYPE_CHECKING:
    from loadeval.analysis.inside.stages import StageReport


@pytest.fixture(name="report", scope="module")
def _report() -> StageReport:
    """The report of a run with two workers."""
    (run,) = Report.of([staged()]).runs
    assert run.stages is not None
    return run.stages


def test_all_stages_are_in_the_first_row(report: StageReport) -> None:
    """One after the other, and as long as the whole."""
    first, *_ = stages_chart(report).rows
    assert [bar.color for bar in first.bars] == [stage.stage.value for stage in report.stages]
    for bar, after in zip(first.bars, first.bars[1:], strict=False):
        assert bar.end == pytest.approx(after.start)
    assert first.bars[-1].end == pytest.approx(report.total_ns)
    assert (first.label, first.text) == ("loader alone", "11.7 ms")


def test_each_stage_is_below_its_part(report: StageReport) -> None:
    """Split into on CPU, waiting and blocked where that is known."""
    first, *rows = stages_chart(report).rows
    thick = [row for row in rows if not row.thin]
    for whole, row in zip(first.bars, thick, strict=True):
        assert row.bars[0].start == pytest.approx(whole.start)
        assert row.bars[-1].end == pytest.approx(whole.end)
    fetch = next(row for row in thick if row.label == "fetch")
    assert [bar.texture for bar in fetch.bars] == ["solid", "hatched", "light"]
    assert fetch.bars[0].text == "on CPU 5.94 ms"
    assert [len(row.bars) for row in thick if row.label in {"pickle", "receive"}] == [1, 1]


def test_transforms_are_thin_rows_in_fetch(report: StageReport) -> None:
    """The longest few, one after the other."""
    rows = stages_chart(report).rows
    fetch = next(row for row in rows if row.label == "fetch")
    thin = [row for row in rows if row.thin]
    assert [row.label.strip() for row in thin] == [
        transform.name for transform in report.transforms
    ]
    assert thin[0].bars[0].start == fetch.bars[0].start
    assert thin[-1].bars[0].end <= fetch.bars[-1].end
    many = replace(report, transforms=report.transforms * 3)
    assert sum(row.thin for row in stages_chart(many).rows) == MOST_TRANSFORMS


def test_what_is_not_attributed_has_a_bar_at_the_end(report: StageReport) -> None:
    """In the first row and in one of its own; none for what rounds to nothing."""
    assert "not attributed" not in [row.label for row in stages_chart(report).rows]
    rest_ns = 0.1 * report.total_ns
    more = replace(report, total_ns=report.total_ns + rest_ns, not_attributed_ns=rest_ns)
    first, *_, last = stages_chart(more).rows
    assert (first.bars[-1].color, last.label) == ("not_attributed", "not attributed")
    assert first.bars[-1].end == pytest.approx(more.total_ns)
    (row,) = loaders_chart([("a", more)]).rows
    assert row.bars[-1].color == "not_attributed"


def test_more_than_all_is_attributed(report: StageReport) -> None:
    """What is under nothing is told below, and is no part of the first row."""
    less = replace(report, total_ns=0.9 * report.total_ns, not_attributed_ns=-0.1 * report.total_ns)
    first, *_, last = stages_chart(less).rows
    assert all(bar.length >= 0 for bar in first.bars)
    assert last.bars[0].length < 0


def test_nothing_was_waited_for(report: StageReport) -> None:
    """Bars have no length, and there are no shares."""
    stages = tuple(replace(stage, charged_ns=0.0) for stage in report.stages)
    chart = stages_chart(replace(report, total_ns=0.0, not_attributed_ns=0.0, stages=stages))
    assert "not measured" in chart.rows[1].text


def test_a_row_for_each_loader(report: StageReport) -> None:
    """All parts in one row, with the main stages in words."""
    first, second = loaders_chart([("a", report), ("b", report)]).rows
    assert (first.label, second.label) == ("a", "b")
    assert first.interval.startswith("fetch 72%")
    assert first.bars[-1].end == pytest.approx(report.total_ns)
    assert {bar.texture for bar in first.bars} == {"solid", "hatched", "light"}
