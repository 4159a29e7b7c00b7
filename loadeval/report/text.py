"""A report as text: a screen of some height, or all of it; rich prints it.

A number stays with its unit and an interval in one piece, nothing is cut off, and a path that is
longer than a line goes on behind one of its separators.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import zip_longest
from typing import TextIO

from rich.cells import cell_len, chop_cells
from rich.console import Console
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
NARROWEST, NARROWEST_NAME = 16, 24
"""Columns to which text in a table is wrapped, and names of rows are, at least."""
BLOCKS = "█░▓▒"
"""What the parts of a bar are drawn with, in their order."""
ASCII = str.maketrans(BLOCKS, "#.+=")
"""The same where the terminal, or a file, has no other characters."""
KEPT = "\ue000"
"""Stands for a space that no line ends at; `printable` lets none of it in."""
UNITS = "ns|us|ms|s|bytes|[kMGT]B|CPUs?|cores|batch(es)?|million|billion|CI|[^\\W\\d]+/s"
BEFORE_UNIT = re.compile(rf"(?<=[\d%)\]]) (?=({UNITS})\b)")
INTERVAL = re.compile(r"\[[^][]{1,40}\]")
BEFORE_INTERVAL = re.compile(r" (?=\[)")
SEPARATORS = (re.compile(rf"[/\\{KEPT}]"), re.compile(r"[._(,=-]"))
"""Behind these a longer word than a line is broken, behind the first ones if it has any."""


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
    room = min(width, LONGEST_LINE) - len(first)
    starts = [first, *[" " * len(first)] * len(text)]
    return [
        Line(start + line, style)
        for start, line in zip(starts, wrapped(printable(text), room), strict=False)
    ]


def wrapped(text: str, width: int) -> list[str]:
    """`text` in lines of at most `width`, and of no less than NARROWEST; one where it is empty."""
    width = max(width, NARROWEST)
    text = BEFORE_UNIT.sub(KEPT, text)
    text = INTERVAL.sub(lambda found: found[0].replace(" ", KEPT), text)
    rows = [""]
    for word in text.split():
        if rows[-1] and cell_len(rows[-1]) + 1 + cell_len(word) <= width:
            rows[-1] += f" {word}"
            continue
        rest = word
        if rows[-1]:
            rows.append("")
        while cell_len(rest) > width:
            start = chop_cells(rest, width)[0]
            ends = ([found.end() for found in kind.finditer(start)] for kind in SEPARATORS)
            end = next((each[-1] for each in ends if each), len(start))
            rows[-1] = rest[:end]
            rest = rest[end:]
            rows.append("")
        rows[-1] = rest
    return [row.replace(KEPT, " ").rstrip() for row in rows]


def _table(head: Sequence[str], rows: Sequence[Sequence[Cell]], width: int) -> list[Line]:
    """A table whose columns of text are wrapped where it is too wide.

    Columns for which there is still no room follow below, beside the first one again.
    """
    cells = [[printable(cell) for cell in row] for row in ((head, *rows) if head else rows)]
    if not cells:
        return []
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    least = [min(widths[0], NARROWEST_NAME)]
    for column in range(1, len(widths)):
        # An interval may stand below its value.
        pieces = [piece for row in cells for piece in BEFORE_INTERVAL.split(row[column])]
        is_text = any(isinstance(row[column], str) for row in rows)
        longest = NARROWEST if is_text else max(map(cell_len, pieces))
        least.append(min(widths[column], longest))
    parts: list[list[int]] = [[0]]
    for column in range(1, len(widths)):
        taken = sum(least[other] + GAP for other in parts[-1])
        if len(parts[-1]) > 1 and taken + least[column] > width:
            parts.append([0])
        parts[-1].append(column)
    found = []
    for part in parts:
        room = {column: widths[column] for column in part}
        while (over := sum(room.values()) + GAP * (len(part) - 1) - width) > 0:
            widest = max(part, key=lambda column: room[column] - least[column])
            if room[widest] <= least[widest]:
                break
            room[widest] = max(room[widest] - over, (room[widest] + least[widest]) // 2)
        for number, row in enumerate(cells):
            in_lines = [_wrapped_cell(row[column], room[column]) for column in part]
            for row_line in zip_longest(*in_lines, fillvalue=""):
                padded = (
                    text + " " * (room[column] - cell_len(text))
                    for column, text in zip(part, row_line, strict=True)
                )
                text = (" " * GAP).join(padded).rstrip()
                found.append(Line(text, "bold" if head and not number else ""))
    return found


def _wrapped_cell(text: str, room: int) -> list[str]:
    if cell_len(text) <= room:
        return [text]
    indent = text[: len(text) - len(text.lstrip(" "))]
    return [indent + line for line in wrapped(text, room - len(indent))]


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
