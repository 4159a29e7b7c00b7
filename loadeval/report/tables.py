"""Text in lines, and tables: described once, laid out in a terminal or by the page's template.

No line breaks between a number and its unit.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.measure import Measurement
from rich.text import Text

from loadeval.report.formatting import BYTE_UNITS, TIME_UNITS, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console, ConsoleOptions, RenderResult

Rows = list[tuple[str, str]]
"""Labels, and what belongs to each."""
GAP = 2
"""Columns of characters between two columns of a table."""
NO_LIMIT = 10_000
"""Characters of a line that is as long as it needs to be."""
NARROWEST = 16
"""Characters of a line, at least."""
KEPT = "\x00"
"""Stands for a space that no line ends at."""
UNITS = (
    *TIME_UNITS,
    *BYTE_UNITS,
    "CPUs?",
    "cores",
    "batch(es)?",
    "million",
    "billion",
    r"\w+/s",
    "CI",
)
BEFORE_UNIT = re.compile(rf"(?<=[\d%)\]]) (?=({'|'.join(UNITS)})\b)")
INTERVAL = re.compile(r"\[[^][]{1,40}\]|\([\d.,]+, [\d.,]+\)")
WHOLE_INTERVAL = 44
"""Columns from which on an interval stays on one line."""


def wrapped(text: str, width: int, most: int | None = None) -> list[str]:
    """`text` in lines of at most `width`; where there are more than `most`, the last ends in ..."""
    joined = BEFORE_UNIT.sub(KEPT, text)
    if width >= WHOLE_INTERVAL:
        joined = INTERVAL.sub(lambda match: match[0].replace(" ", KEPT), joined)
    lines = textwrap.wrap(joined, max(width, NARROWEST), break_on_hyphens=False)
    lines = [line.replace(KEPT, " ") for line in lines]
    if most is None or len(lines) <= most:
        return lines
    return [*lines[: most - 1], f"{lines[most - 1][: width - 3].rstrip()}..."]


class Paragraph:
    """Text for rich, without markup, in lines that `wrapped` makes."""

    def __init__(self, text: str, style: str = "") -> None:
        self.text, self.style = text, style

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        """A line of text for each line; longer words are folded."""
        for line in wrapped(self.text, options.max_width) or [""]:
            yield Text(line, self.style, overflow="fold")

    def __rich_measure__(self, _: Console, options: ConsoleOptions) -> Measurement:
        """From the longest word to all of it."""
        longest = max(map(cell_len, self.text.split()), default=0)
        return Measurement(longest, cell_len(self.text)).with_maximum(options.max_width)


@dataclass(frozen=True, slots=True)
class Table:
    """A table, whose first cell of each row names the row.

    In a terminal, cells of the columns in `wraps` go on in further lines where the table is too
    wide, in at least `least` characters; columns that still do not fit follow below, beside the
    first one again. `styles` are those of the first cells, for rich.
    """

    caption: str = ""
    head: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    folded: bool = False
    """Whether the page shows its rows only on demand."""
    figures: bool = False
    """Whether all cells but the first of a row are figures, which the page sets to the right."""
    fits: bool = False
    """Whether it has few and short cells, which stay beside each other on a narrow page."""
    wraps: Sequence[int] = ()
    least: int = NARROWEST
    styles: Sequence[str] = ()

    def lines(self, width: int) -> list[str]:
        """The table as text."""
        return [line for _, line in self.numbered_lines(width)]

    def numbered_lines(self, width: int) -> Iterator[tuple[int, str]]:
        """Each line after the number of its row, of which the head is the first if there is one."""
        rows = list(enumerate([*filter(None, [self.head]), *self.rows]))
        widths = _widths(rows)
        too_wide = sum(widths) + GAP * (len(widths) - 1) - width
        if self.wraps and too_wide > 0:
            wrapping = sorted(widths[column] for column in self.wraps)
            room = sum(wrapping) - too_wide
            # Columns that need less than an equal part leave the rest to the others.
            while len(wrapping) > 1 and wrapping[0] * len(wrapping) <= room:
                room -= wrapping.pop(0)
            rows = self._wrapped(rows, max(room // len(wrapping), self.least))
            widths = _widths(rows)
        parts: list[list[int]] = [[]]
        for column in range(1, len(widths)):
            taken = widths[0] + sum(GAP + widths[other] for other in parts[-1])
            if parts[-1] and taken + GAP + widths[column] > width:
                parts.append([])
            parts[-1].append(column)
        for part in parts:
            for number, row in rows:
                cells = (set_cell_size(row[column], widths[column]) for column in (0, *part))
                yield number, (" " * GAP).join(cells).rstrip()

    def _wrapped(
        self, rows: Sequence[tuple[int, Sequence[str]]], room: int
    ) -> list[tuple[int, Sequence[str]]]:
        """The same rows, of which a cell that takes more than `room` goes on in further ones."""
        return [
            (number, cells)
            for number, row in rows
            for cells in zip_longest(
                *(
                    wrapped(cell, room) if column in self.wraps else [cell]
                    for column, cell in enumerate(row)
                ),
                fillvalue="",
            )
        ]

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        """A line of text for each line, those of the head in bold."""
        before = -1
        for number, line in self.numbered_lines(options.max_width):
            text = Text(line, "bold" if self.head and not number else "", overflow="fold")
            if self.styles and number != before:
                text.stylize(self.styles[number], 0, len(self.rows[number][0]))
            before = number
            yield text


def labelled(rows: Rows) -> list[str]:
    """A line for each label, with what belongs to it."""
    return Table(rows=[(label, printable(value)) for label, value in rows]).lines(NO_LIMIT)


def _widths(rows: Sequence[tuple[int, Sequence[str]]]) -> list[int]:
    return [max(map(cell_len, column)) for column in zip(*(row for _, row in rows), strict=True)]
