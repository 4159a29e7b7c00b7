"""What a report is made of: sections of blocks, which text.py, html.py and charts.py lay out.

A block holds what it shows: who renders it decides how, and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from loadeval.data.columns import Columns
from loadeval.estimate.stats import Estimate
from loadeval.words import FORMATS, NOT_MEASURED, number

TextKind = Literal["plain", "entry", "caution", "note", "command"]
Kind = Literal["waits", "stages", "worker curve"]
"""The charts; charts.py says at each one's function which columns it is drawn from."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number or an estimate with its unit, a kind of words.FORMATS or what stands behind it.

    As text it is 2.45x [2.40x, 2.51x], or 727 images/s [701, 753]; None is "not measured".
    """

    value: float | Estimate | None
    unit: str

    def __str__(self) -> str:
        point = self.point
        if point is None or math.isnan(point):
            return NOT_MEASURED
        text = FORMATS.get(self.unit, number)
        end = ""
        if self.unit not in FORMATS:
            end = self.unit if self.unit in {"", "%"} else f" {self.unit}"
        interval = ""
        if isinstance(self.value, Estimate) and self.value.low is not None:
            interval = f" [{', '.join(map(text, self.value.bounds))}]"
        return f"{text(point)}{end}{interval}"

    @property
    def point(self) -> float | None:
        """The number without its interval."""
        return self.value.value if isinstance(self.value, Estimate) else self.value


Cell = str | Number
Row = tuple[Cell, ...]
Duration = partial(Number, unit="duration")
Share = partial(Number, unit="share")
Times = partial(Number, unit="times")


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph, an entry of a list, a caution, a note in small print, or a command to type."""

    text: str
    kind: TextKind = "plain"


@dataclass(frozen=True, slots=True)
class Facts:
    """Labels, and what belongs to each."""

    rows: Sequence[tuple[str, Cell]]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows whose first cell names the row; two spaces before it make the row a part of another.

    Where the head begins with "", text has the section's title there. A table with a `caption` is
    shown on demand, where that can be.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Bars:
    """Labelled bars on one scale, of parts under the names of colours.

    The parts of a row are durations that add up, and text draws them too; or, not `stacked`, they
    stand below each other, estimates in `unit`, and only figures have them. A figure has a title,
    and a caption that `says` what it shows.
    """

    rows: Sequence[tuple[str, Mapping[str, Any]]]
    title: str = ""
    says: str = ""
    unit: str = "duration"
    stacked: bool = True


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of a kind, drawn from `tables`; `says` is its caption, and tells what it shows.

    `unit` is that of its values. `readings` are a run's, by probe and subject, to be drawn below.
    """

    kind: Kind
    title: str
    says: str
    tables: Mapping[str, Columns]
    unit: str
    readings: Mapping[tuple[str, str], Columns] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FindingText:
    """What was found, what it costs, where in the code, what to do, and what that rests on."""

    name: str
    says: str
    cost: Cell = ""
    where: str = ""
    do: Sequence[str] = ()
    facts: Sequence[tuple[str, Cell]] = ()
    source: str = ""


@dataclass(frozen=True, slots=True)
class Findings:
    """Findings in their order: a line each on a screen, and all of them elsewhere."""

    found: Sequence[FindingText]


Block = Text | Facts | Table | Bars | Chart | Findings


@dataclass(frozen=True, slots=True)
class Section:
    """Blocks under a title; the first section's is the verdict.

    Of `priority` 1 it is the first to get a place on a screen; without one it gets none.
    """

    title: str
    blocks: Sequence[Block] = ()
    priority: int | None = None


def section(title: str, *blocks: Block, priority: int | None = None) -> Section:
    """A section of those blocks that have something to show."""

    def shows(block: Block) -> bool:
        match block:
            case Text():
                return bool(block.text)
            case Table() | Facts() | Bars():
                return bool(block.rows)
            case Chart():
                return any(map(len, block.tables.values()))
            case Findings():
                return bool(block.found)

    return Section(title, list(filter(shows, blocks)), priority)


def texts(said: Iterable[str], kind: TextKind = "plain") -> list[Text]:
    """A text for each of these."""
    return [Text(each, kind) for each in said]


def rows_of(items: Columns | Iterable[object], **cells: Callable[..., Cell]) -> list[Row]:
    """A row for each item: of each field, or column, that is named, the cell that is made of it."""
    if isinstance(items, Columns):
        columns = [map(cell, items[name].tolist()) for name, cell in cells.items()]
        return list(zip(*columns, strict=True))
    return [tuple(cell(getattr(each, name)) for name, cell in cells.items()) for each in items]


# Colours by what they stand for, in a light and a dark theme. Charts name colours; a figure has
# those of the light theme, and the page those of the reader's. Text has a contrast of 4.5 to 1 and
# more against the paper, lines and bars 3 to 1 (WCAG 2.2, 1.4.3 and 1.4.11).

_NAMED = {
    "paper": ("#ffffff", "#161718"),
    "raised": ("#f5f4f1", "#202224"),
    "ink": ("#1c1b19", "#eceae6"),
    "faint": ("#5d5a55", "#aeaba4"),
    "link": ("#00588c", "#7cc4f2"),
    "line": ("#87837c", "#7b7974"),
    "rule": ("#dedbd5", "#36383a"),
    "real": ("#0072b2", "#2f8ccb"),
    "ideal": ("#00805d", "#1f9773"),
    "loader alone": ("#7b68b3", "#8676c9"),
    "step": ("#75726a", "#85837d"),
    "waiting": ("#a86200", "#b87a08"),
    "contention": ("#b04f87", "#bd6299"),
    "epoch starts": ("#107c88", "#23929f"),
    "epoch start": ("#c04a00", "#d4713a"),
    "outlier": ("#1c1b19", "#eceae6"),
    "indices": ("#3f9e78", "#1f9773"),
    "fetch": ("#2f8ccb", "#2f8ccb"),
    "collate": ("#c26aa3", "#bd6299"),
    "pickle": ("#8f7fcb", "#8676c9"),
    "receive": ("#2d949f", "#23929f"),
    "pin": ("#c9752a", "#d4713a"),
    "not attributed": ("#8a877f", "#7d7b76"),
}
LIGHT = {name: light for name, (light, _) in _NAMED.items()}
DARK = {name: dark for name, (_, dark) in _NAMED.items()}
Dash = str | tuple[int, tuple[int, ...]]
DASHED: Dash = (0, (6, 3))
DASHES = ("-", DASHED, (0, (2, 2)))
"""How lines are dashed, as matplotlib has it."""
SERIES = ("real", "waiting", "ideal", "contention", "loader alone", "faint")
"""Colours for things without a colour of their own."""


def series(number: int) -> tuple[str, Dash]:
    """The colour of thing `number`, from 0, and how its line is dashed.

    A colour comes again after all of SERIES, with another dash.
    """
    count = len(SERIES)
    return SERIES[number % count], DASHES[number // count % len(DASHES)]


def css_variable(color: str) -> str:
    """The custom property of CSS that has a colour."""
    return f"--{color.replace(' ', '-')}"
