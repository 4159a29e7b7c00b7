"""What is said of runs, once, and the places that show it."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, cast

import pytest
from matplotlib.text import Text
from rich.console import Console

from loadeval.analysis.report import Report
from loadeval.report.facts import On, report_facts
from loadeval.report.figure.figure import comparison_figure
from loadeval.report.page import blocks, text
from loadeval.report.terminal.screen import screen
from loadeval.report.terminal.text import full_report
from tests.runs.given import randomised

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def words(parts: object) -> str:
    """The words of a text, without the breaks between lines."""
    return " ".join(str(parts).split())


def texts_of(figure: Figure) -> list[str]:
    return [part.get_text() for part in cast("list[Text]", figure.findobj(Text))]


def shown(report: Report, place: On) -> str:
    """All that a place shows."""
    assert report.comparison is not None
    if place is On.SCREEN:
        return words(" ".join(screen(report, [], 400)))
    if place is On.FULL:
        console = Console(file=io.StringIO(), width=400, highlight=False)
        console.print(*full_report(report))
        assert isinstance(console.file, io.StringIO)
        return words(console.file.getvalue())
    if place is On.FIGURE:
        return words(" ".join(texts_of(comparison_figure(report.comparison))))
    parts = []
    for block in text.top(report):
        if isinstance(block, blocks.Keys):
            parts += [part for item in block.items for part in item]
        elif isinstance(block, blocks.Text):
            parts += block.lines
    return words(" ".join(parts))


@pytest.mark.parametrize("place", [On.SCREEN, On.FULL, On.PAGE, On.FIGURE])
@pytest.mark.parametrize("pairs", [1, 12])
def test_each_fact_is_where_it_says(place: On, pairs: int) -> None:
    """With its label's value, its interval and what belongs to it."""
    report = Report.of([randomised(pairs=pairs)])
    seen = shown(report, place)
    facts = [fact for fact in report_facts(report) if place in fact.shown]
    assert facts
    for fact in facts:
        for part in (fact.value, fact.interval, fact.detail):
            assert words(part) in seen
