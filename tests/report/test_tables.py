"""Lines and tables in the width there is."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.measure import Measurement

from loadeval.report.tables import WHOLE_INTERVAL, Paragraph, Table, wrapped

ROWS = [["", "real", "ideal"], ["cpu", "1.00 (0.9, 1.1) cores", "2.00 (1.9, 2.1) cores"]]


@pytest.mark.parametrize("width", [16, 23, 30, 41, 59])
def test_numbers_keep_their_units(width: int) -> None:
    """No line ends between the two, or within an interval, at any width."""
    text = "It takes 44.3 ms [42.3 ms, 46.3 ms] of 78.9 ms at 1,234 images/s on 4 CPUs (95% CI)."
    lines = wrapped(text, width)
    assert " ".join(lines) == text
    assert not any(line.endswith(("44.3", "78.9", "1,234", "4", "95%")) for line in lines)
    if width >= WHOLE_INTERVAL:
        assert any("[42.3 ms, 46.3 ms]" in line for line in lines)


def test_too_many_lines_are_cut() -> None:
    """The last one says so, and is no longer than the others may be."""
    lines = wrapped("some words that go on and on " * 5, 20, 2)
    assert len(lines) == 2
    assert lines[1].endswith("...")
    assert len(lines[1]) <= 20


def test_a_table_that_fits_is_one() -> None:
    """A line for each row."""
    assert Table(rows=[["a", "bb"], ["c", "d"]]).lines(80) == ["a  bb", "c  d"]


def test_a_wide_table_folds_by_columns() -> None:
    """The first column stands before each part."""
    assert Table(rows=ROWS).lines(40) == [
        "     real",
        "cpu  1.00 (0.9, 1.1) cores",
        "     ideal",
        "cpu  2.00 (1.9, 2.1) cores",
    ]


def test_wide_characters_take_two_columns() -> None:
    """They do so in a terminal."""
    assert Table(rows=[["\u753b", "a"], ["bcd", "e"]]).lines(80) == ["\u753b   a", "bcd  e"]


def test_rich_prints_them() -> None:
    """A paragraph and a table in a console that is narrow; an empty text is an empty line."""
    console = Console(file=io.StringIO(), width=28)
    console.print(Paragraph("about 44.3 ms in 12.0 ms"), Paragraph(""), Table(rows=ROWS))
    assert isinstance(console.file, io.StringIO)
    lines = [line.rstrip() for line in console.file.getvalue().splitlines()]
    assert lines == ["about 44.3 ms in 12.0 ms", "", *Table(rows=ROWS).lines(28)]


def test_a_paragraph_is_measured() -> None:
    """Its width is from its longest word to its length."""
    console = Console(width=80)
    assert Measurement.get(console, console.options, Paragraph("one three")) == (5, 9)


LONG = Table(
    "", ("", "why", "left"), [("a", "words that go on and on", "1"), ("b", "", "2")], wraps=(1,)
)


def test_long_cells_go_on_in_further_lines() -> None:
    """Where the table is too wide, and only in the columns that may."""
    assert LONG.lines(30) == [
        "   why                   left",
        "a  words that go on and  1",
        "   on",
        "b                        2",
    ]
    assert len(LONG.lines(80)) == 3


def test_narrow_cells_leave_their_room_to_long_ones() -> None:
    """They are columns that may go on in further lines."""
    rows = [("change", "memory", "one two three four five six seven")]
    assert Table(rows=rows, wraps=range(3)).lines(40) == [
        "change  memory  one two three four five",
        "                six seven",
    ]


def test_the_lines_of_a_row_have_its_number() -> None:
    """The head is the first row."""
    assert [number for number, _ in LONG.numbered_lines(30)] == [0, 1, 1, 2]


def test_a_table_without_rows_has_no_lines() -> None:
    assert Table().lines(80) == []


def test_the_first_cell_of_a_row_has_its_style() -> None:
    """In its first line, and nothing else has it."""
    console = Console(file=io.StringIO(), width=30, force_terminal=True, color_system="standard")
    rows = [("a", "words that go on and on and on"), ("b", "more")]
    console.print(Table(rows=rows, wraps=(1,), styles=("red", "green")))
    assert isinstance(console.file, io.StringIO)
    first, second, third = console.file.getvalue().splitlines()
    assert first.startswith("\x1b[31ma\x1b[0m")
    assert "\x1b" not in second
    assert third.startswith("\x1b[32mb\x1b[0m")
