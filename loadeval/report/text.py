"""A report as text: a screen of some height, or all of it; rich lays it out and prints it.

A number stays with its unit and an interval in one piece, and nothing is cut off.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.measure import measure_renderables
from rich.table import Table as Grid
from rich.text import Text as Line

from loadeval.report.blocks import (
    DARK,
    Bars,
    Block,
    Cell,
    Chart,
    Facts,
    Findings,
    FindingText,
    Section,
    Table,
    Text,
)
from loadeval.words import duration, printable, whole_share

WIDTH = 80
"""Columns of a file's lines, and of a terminal's where it does not say."""
LONGEST_LINE = 100
"""Columns of a sentence's lines: longer ones are hard to read, however wide the terminal is."""
LONGEST_BAR, BESIDE_BAR = 72, 18
"""Columns of a bar at most, and of its label and its total."""
MOST_FINDINGS = 10
"""On a screen."""
LOOKS = {
    "plain": ("", ""),
    "entry": ("- ", ""),
    "caution": ("Caution: ", "yellow"),
    "note": ("", "dim"),
}
"""What stands before a kind of text, and the style of it."""
GAP = 2
"""Columns between those of a table."""
NARROWEST = 16
"""Columns of a line at least."""
BLOCKS = "█░▓▒"
"""What the parts of a bar are drawn with, in their order."""
ASCII = str.maketrans(BLOCKS, "#.+=")
"""The same where the terminal, or a file, has no other characters."""
KEPT, BREAK = "\ue000", "\x1f"
"""Stand for a space that no line ends at, and where a long word may be broken, which takes no room
and is a space to rich. `printable` lets neither in."""
SHOWN = {ord(KEPT): " ", ord(BREAK): None}
UNITS = "ns|us|ms|s|bytes|[kMGT]B|CPUs?|cores|batch(es)?|million|billion|CI|[^\\W\\d]+/s"
BEFORE_UNIT = re.compile(rf"(?<=[\d%)\]]) (?=({UNITS})\b)")
INTERVAL = re.compile(r"\[[^][]{1,40}\]")
LONG_WORD = re.compile(r"\S{40,}")
SEPARATOR = re.compile(r"(?<=[/\\])(?=[^/\\])")
LAYOUT = Console(file=io.StringIO(), width=10_000)
"""Lays lines out, and prints none."""


def show(
    sections: Sequence[Section], *, file: TextIO | None = None, height: int | None = None
) -> None:
    """Print sections to stdout or `file`, or those that fit in `height` lines."""
    console = Console(file=file, highlight=False, markup=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = WIDTH
    for line in lines(sections, console.width, height=height):
        if console.options.ascii_only:
            line.plain = line.plain.translate(ASCII)
        console.print(line, no_wrap=True, overflow="ignore", crop=False)


def lines(
    sections: Sequence[Section], width: int = WIDTH, *, height: int | None = None
) -> list[Line]:
    """The sections in lines of `width`; with a `height`, those of a priority that fit in it.

    Of these the first is always there, and findings have a line each.
    """
    if height is None:
        every = [_of_section(section, width) for section in sections]
    else:
        every = [[] for _ in sections]
        by_priority = [
            (section.priority, at)
            for at, section in enumerate(sections)
            if section.priority is not None
        ]
        left = height + 1
        for _, at in sorted(by_priority):
            for most in range(MOST_FINDINGS, 0, -1):
                drawn = _of_section(_in_brief(sections[at], most), width)
                if drawn and (len(drawn) < left or not any(every)):
                    every[at] = drawn
                    left -= len(drawn) + 1
                    break
    return [line for part in every if part for line in (Line(), *part)][1:]


def _in_brief(section: Section, most: int) -> Section:
    """A section as a screen has it: a line for each finding."""
    blocks = list[Block]()
    for block in section.blocks:
        if isinstance(block, Findings):
            rows = [
                (finding.cost, f"{finding.name}: {finding.where}".removesuffix(": "))
                for finding in block.found[:most]
            ]
            blocks.append(Table((), rows))
            if len(block.found) > most:
                blocks.append(Text(f"and {len(block.found) - most} more"))
        else:
            blocks.append(block)
    says_itself = section.priority != 1 and blocks and isinstance(blocks[0], Bars | Text)
    return Section("" if says_itself else section.title, blocks)


def _of_section(section: Section, width: int) -> list[Line]:
    # What a chart shows is in a table of its section.
    blocks = [
        block
        for block in section.blocks
        if not isinstance(block, Chart) and (not isinstance(block, Bars) or block.stacked)
    ]
    found: list[Line] = []
    if not blocks and section.blocks:
        return []
    if blocks and isinstance(first := blocks[0], Table) and first.head and not first.head[0]:
        blocks[0] = Table((section.title, *first.head[1:]), first.rows)
    elif section.title:
        found += _paragraph(section.title, width, "bold")
    for before, block in zip([None, *blocks], blocks, strict=False):
        is_apart = isinstance(block, Table | Facts)
        if is_apart and before is not None and not isinstance(before, Text):
            found.append(Line())
        found += _of_block(block, width)
    return found


def _of_block(block: Block, width: int) -> list[Line]:
    found: list[Line] = []
    match block:
        case Text(kind="command"):
            found = [Line(printable(block.text))]
        case Text():
            first, style = LOOKS[block.kind]
            found = _paragraph(block.text, width, style, first)
        case Facts():
            found = _table((), block.rows, width)
        case Table():
            caption = _paragraph(block.caption, width, "bold") if block.caption else []
            found = caption + _table(block.head, block.rows, width)
        case Bars():
            found = _bars(block, width)
        case Findings():
            for at, finding in enumerate(block.found, 1):
                found += [*([Line()] if found else []), *_finding(at, finding, width)]
    return found


def _paragraph(text: str, width: int, style: str = "", first: str = "") -> list[Line]:
    """Lines of `text`, the first of which has `first` before it, and the others as many spaces."""
    room = max(min(width, LONGEST_LINE) - len(first), NARROWEST)
    starts = [first, *[" " * len(first)] * len(text)]
    wrapped = _kept(text).wrap(LAYOUT, room, overflow="fold")
    return [
        Line(start + line.plain.translate(SHOWN).rstrip(), style)
        for start, line in zip(starts, wrapped, strict=False)
    ]


def _table(head: Sequence[str], rows: Sequence[Sequence[Cell]], width: int) -> list[Line]:
    """A table; where it is too wide its widest columns are narrower, down to their longest word."""
    columns = [
        list(map(_kept, column)) for column in zip(*([head] if head else []), *rows, strict=True)
    ]
    ranges = [measure_renderables(LAYOUT, LAYOUT.options, column) for column in columns]
    widths = [each.maximum for each in ranges]
    while sum(widths) + GAP * (len(widths) - 1) > width:
        wraps = [at for at, each in enumerate(ranges) if widths[at] > each.minimum]
        widths[max(wraps or range(len(widths)), key=widths.__getitem__)] -= 1
    grid = Grid.grid(padding=(0, GAP, 0, 0))
    for room, each in zip(widths, ranges, strict=True):
        grid.add_column(overflow="fold", width=max(room, min(each.maximum, 1)))
    for number, row in enumerate(zip(*columns, strict=True)):
        grid.add_row(*row, style="bold" if head and not number else "")
    found = []
    for parts in LAYOUT.render_lines(grid, pad=False):
        line = Line.assemble(*((part.text.translate(SHOWN), part.style or "") for part in parts))
        line.rstrip()
        found.append(line)
    return found


def _kept(cell: Cell) -> Line:
    """A cell in which a number with its unit, and an interval, are one word to rich."""
    text = BEFORE_UNIT.sub(KEPT, printable(cell))
    text = INTERVAL.sub(lambda found: found[0].replace(" ", KEPT), text)
    return Line(LONG_WORD.sub(lambda found: SEPARATOR.sub(BREAK, found[0]), text))


def _bars(block: Bars, width: int) -> list[Line]:
    """Each bar with its total, and below them what the parts of the first one are."""
    (_, first), *_ = block.rows
    look = {name: (BLOCKS[at], DARK[name]) for at, name in enumerate(first)}
    totals = [sum(parts.values()) for _, parts in block.rows]
    longest, label_width = max(totals) or 1.0, max(len(label) for label, _ in block.rows)
    # A part that is there takes a column, however short it is.
    room = max(min(width - BESIDE_BAR, LONGEST_BAR), NARROWEST) - len(first)
    found = []
    for (label, parts), total in zip(block.rows, totals, strict=True):
        line = Line(label.ljust(label_width + GAP))
        for name, value in parts.items():
            glyph, color = look[name]
            line.append(glyph * max(round(value / longest * room), 1), color)
        found.append(line.append(f"  {duration(total)}"))
    legend = Line()
    for name, (glyph, color) in look.items():
        part = whole_share(first[name] / (totals[0] or 1.0))
        entry = Line.assemble((glyph, color), f" {name} {duration(first[name])} ({part})")
        if legend and legend.cell_len + 3 + entry.cell_len > width:
            found.append(legend)
            legend = Line()
        legend = Line.assemble(legend, " " * 3, entry) if legend else entry
    return [*found, legend]


def _finding(at: int, finding: FindingText, width: int) -> list[Line]:
    costs = f": costs {finding.cost} of the time" if finding.cost else ""
    evidence = "; ".join(f"{label} {cell}" for label, cell in finding.facts)
    below = [
        finding.says,
        *(f"To do: {action}" for action in finding.do),
        *([f"Where: {finding.where}"] if finding.where else []),
        *([f"Measured: {evidence}."] if evidence else []),
        *([f"Source: {finding.source}."] if finding.source else []),
    ]
    title = _paragraph(f"{at}. {finding.name}{costs}", width, "bold")
    return title + [line for text in below for line in _paragraph(text, width, first="  ")]
