"""What a report is made of: sections of blocks, which text.py, html.py and charts.py lay out.

A block holds what it shows, and no analysis type: who renders it decides how, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from loadeval.data.columns import Columns
from loadeval.words import Interval

TextKind = Literal["plain", "entry", "caution", "note", "command"]
Kind = Literal["real beside ideal", "waits", "stages", "worker curve"]
"""The charts; charts.py says at each one's function which columns it is drawn from."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number or an estimate with its unit, a kind of words.FORMATS or what stands behind it.

    None is "not measured".
    """

    value: float | Interval | None
    unit: str

    @property
    def point(self) -> float | None:
        """The number without its interval."""
        if self.value is None or isinstance(self.value, int | float):
            return self.value
        return self.value.value


Cell = str | Number


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

    Where the head begins with "", text has the section's title there. A `folded` table is shown
    on demand, where that can be.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    folded: bool = False


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
    unit: str = ""
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
    blocks: Sequence[Block] = field(default=())
    priority: int | None = None
