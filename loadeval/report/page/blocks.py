"""What a page is made of, as plain data: its template draws each kind of block in its way.

No text here is escaped for HTML: the template does that. Text that a figure draws is the
exception, see `escaping`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from loadeval.report.page.escaping import literal
from loadeval.report.tables import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.report.tables import Rows

Json = dict[str, Any]
LIGHT_OPACITY = 0.4
"""Opacity of a bar that is lighter than others of its colour."""
MOST_ROWS = 100
"""Rows of a table whose length a run's file decides."""


@dataclass(frozen=True, slots=True)
class Text:
    """Paragraphs; `kind` is a class of the stylesheet."""

    lines: tuple[str, ...]
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading below that of the section."""

    text: str


@dataclass(frozen=True, slots=True)
class Keys:
    """The few figures to read first: label, value, and what belongs to it."""

    items: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class Code:
    """Lines to type into a shell or a program."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Advised:
    """A finding: its sentence, tags, evidence, places, and what to change.

    `level` is that of its heading.
    """

    sentence: str
    tags: tuple[str, ...]
    severity: str
    evidence: Table | None
    places: tuple[str, ...]
    advice: str
    source: str
    level: int = 3


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of a legend: how things look, by the names of shapes and colours, and what it is."""

    shapes: tuple[str, ...]
    color: str
    text: str


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure for plotly.js, with what is to be seen in it in words.

    Figures with the same `time_axis` show the same stretch of time.
    """

    name: str
    caption: str
    data: list[Json]
    layout: Json
    notes: tuple[str, ...] = ()
    time_axis: str = ""

    @property
    def legend(self) -> tuple[Entry, ...]:
        """An entry for each kind of thing in it; none where there is but one."""
        named = [trace for trace in self.data if trace.get("showlegend", True)]
        return tuple(map(_entry, named)) if len(named) > 1 else ()

    @property
    def unit(self) -> str:
        """What stands behind the numbers of its axis of time."""
        return str(self.layout["xaxis"].get("ticksuffix", ""))

    @property
    def height(self) -> int:
        """The height in pixels, which the page keeps free: nothing moves when it is drawn."""
        return int(self.layout["height"])


Block = Text | Heading | Table | Keys | Code | Advised | Figure


def _entry(trace: Json) -> Entry:
    """How the things of `trace` look, and their name, which is text on the page and not drawn."""
    marker, line = trace.get("marker", {}), trace.get("line", {})
    mode, shapes = trace.get("mode", ""), []
    if trace["type"] == "bar":
        shapes.append(_bar(marker))
    if "lines" in mode:
        shapes.append(f"line-{line.get('dash', 'solid')}")
    if "markers" in mode:
        shapes.append(marker.get("symbol", "circle"))
    color = marker.get("color") or line["color"]
    return Entry(tuple(shapes), color, literal(trace["name"]))


def _bar(marker: Json) -> str:
    if "pattern" in marker:
        return "bar-hatched"
    return "bar-light" if marker.get("opacity") == LIGHT_OPACITY else "bar"


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page with a heading, which `name` links to."""

    name: str
    heading: str
    blocks: tuple[Block, ...] = field(default=())


def headed(name: str) -> list[Heading]:
    """The heading over what is of one run of several, whose name it is; none over a single run."""
    return [Heading(name)] if name else []


def side_by_side(
    caption: str, names: Sequence[str], columns: Sequence[Rows], *, folded: bool = False
) -> Table:
    """A column for each of `names`; `columns` have the same labels in the same order."""
    rows = [(cells[0][0], *(value for _, value in cells)) for cells in zip(*columns, strict=True)]
    if len(rows) > MOST_ROWS:
        rows[MOST_ROWS:] = [(f"and {len(rows) - MOST_ROWS:,} more", *("" for _ in names))]
    return Table(caption, ("", *names), rows, folded)


def listed(caption: str, head: str, rows: Rows, *, folded: bool = False) -> Table:
    """Labels and what belongs to each, in words."""
    return Table(caption, ("", head), rows, folded)
