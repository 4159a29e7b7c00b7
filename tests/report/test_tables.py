"""Lines and tables in the width there is."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.measure import Measurement

from loadeval.report.tables import WHOLE_INTERVAL, CellTable, Paragraph, table_lines, wrapped

ROWS = [["", "real", "ideal"], ["cpu", "1.00 (0.9, 1.1) cores", "2.00 (1.9, 2.1) cores"]]


@pytest.mark.parametrize("width", range(16, 60))
def test_numbers_keep_their_units(width: int) -> None:
    """At any width: no line ends between the two, or within an interval."""
    text = "It takes 44.3 ms [42.3 ms, 46.3 ms] of 78.9 ms at 1,234 images/s on 4 CPUs (95% CI)."
    told = wrapped(text, width)
    assert " ".join(told) == text
    assert not any(line.endswith(("44.3", "78.9", "1,234", "4", "95%")) for line in told)
    if width >= WHOLE_INTERVAL:
        assert any("[42.3 ms, 46.3 ms]" in line for line in told)


def test_too_many_lines_are_cut() -> None:
    """The last one says so, and is no longer than the others may be."""
    told = wrapped("some words that go on and on " * 5, 20, 2)
    assert len(told) == 2
    assert told[1].endswith("...")
    assert len(told[1]) <= 20


def test_a_table_that_fits_is_one() -> None:
    """A line for each row."""
    assert table_lines([["a", "bb"], ["c", "d"]], 80) == ["a  bb", "c  d"]


def test_a_wide_table_folds_by_columns() -> None:
    """The first column stands before each part."""
    assert table_lines(ROWS, 40) == [
        "     real",
        "cpu  1.00 (0.9, 1.1) cores",
        "     ideal",
        "cpu  2.00 (1.9, 2.1) cores",
    ]


def test_wide_characters_take_two_columns() -> None:
    """As they do in a terminal."""
    assert table_lines([["\u753b", "a"], ["bcd", "e"]], 80) == ["\u753b   a", "bcd  e"]


def test_rich_prints_them() -> None:
    """A paragraph and a table in a console that is narrow; an empty text is an empty line."""
    console = Console(file=io.StringIO(), width=28)
    console.print(Paragraph("about 44.3 ms in 12.0 ms"), Paragraph(""), CellTable(ROWS))
    assert isinstance(console.file, io.StringIO)
    lines = [line.rstrip() for line in console.file.getvalue().splitlines()]
    assert lines == ["about 44.3 ms in 12.0 ms", "", *table_lines(ROWS, 28)]


def test_a_paragraph_is_measured() -> None:
    """From its longest word to its length."""
    console = Console(width=80)
    assert Measurement.get(console, console.options, Paragraph("one three")) == (5, 9)
