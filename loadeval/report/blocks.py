"""What a report is made of: sections of blocks, which text.py, html.py and charts.py lay out.

A block holds what it shows: who renders it decides how, and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from loadeval.data.columns import Columns
from loadeval.estimate.stats import Estimate
from loadeval.words import FORMATS, NOT_MEASURED, number

TextKind = Literal["plain", "entry", "caution", "note", "command"]
Kind = Literal["real beside ideal", "waits", "stages", "worker curve"]
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
    """Labelled bars on one scale, of durations that add up, under the names of the palette.

    In a figure they have a title, and a caption that `says` what they show.
    """

    rows: Sequence[tuple[str, Mapping[str, float]]]
    title: str = ""
    says: str = ""


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


def beside_each_other(
    title: str, says: str, bars: Sequence[tuple[str, str, Estimate]], unit: str
) -> Chart:
    """A chart of bars, each of which has its row's name, its colour's and its length."""
    table = Columns.of_rows(("row", "series", "length"), bars)
    return Chart("real beside ideal", title, says, {"bars": table}, unit)
