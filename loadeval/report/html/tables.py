"""Labels and values of several runs, or arms, as one table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.report.html.blocks import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.report.facts import Rows


MOST_ROWS = 100
"""Of a table whose rows a run's file decides."""


def side_by_side(
    caption: str, names: Sequence[str], columns: Sequence[Rows], *, folded: bool = False
) -> Table:
    """A column for each of `names`; `columns` have the same labels in the same order."""
    rows = [(cells[0][0], *(value for _, value in cells)) for cells in zip(*columns, strict=True)]
    if len(rows) > MOST_ROWS:
        rows[MOST_ROWS:] = [(f"and {len(rows) - MOST_ROWS:,} more", *("" for _ in names))]
    return Table(caption, ("", *names), tuple(rows), folded)


def listed(caption: str, head: str, rows: Rows, *, folded: bool = False) -> Table:
    """Labels and what belongs to each, in words."""
    return Table(caption, ("", head), tuple(rows), folded)
