"""Text and tables in the width there is: nothing breaks between a number and its unit."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.measure import Measurement
from rich.text import Text

from loadeval.report.formatting import BYTE_UNITS, TIME_UNITS

if TYPE_CHECKING:
    from collections.abc import Sequence

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
        joined = INTERVAL.sub(lambda found: found[0].replace(" ", KEPT), joined)
    lines = textwrap.wrap(joined, max(width, NARROWEST), break_on_hyphens=False)
    lines = [line.replace(KEPT, " ") for line in lines]
    if most is None or len(lines) <= most:
        return lines
    return [*lines[: most - 1], f"{lines[most - 1][: width - 3].rstrip()}..."]


def table_lines(rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """`rows` as a table; the columns that do not fit follow below, beside the first one again."""
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    parts: list[list[int]] = [[]]
    gap = " " * GAP
    for column in range(1, len(widths)):
        taken = widths[0] + sum(GAP + widths[one] for one in parts[-1])
        if parts[-1] and taken + GAP + widths[column] > width:
            parts.append([])
        parts[-1].append(column)
    return [
        gap.join(set_cell_size(row[column], widths[column]) for column in (0, *part)).rstrip()
        for part in parts
        for row in rows
    ]


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


class CellTable:
    """Rows for rich, the first as the heading; what does not fit folds by whole columns."""

    def __init__(self, rows: Sequence[Sequence[str]]) -> None:
        self.rows = rows

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        """A line of text for each line."""
        for number, line in enumerate(table_lines(self.rows, options.max_width)):
            yield Text(line, "" if number % len(self.rows) else "bold", overflow="fold")
