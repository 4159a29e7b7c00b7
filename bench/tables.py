"""How instruments print what they measured: tables for a terminal or for documents."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from loadeval import Estimate

WIDTH = 190
"""Of a table that goes into a file."""


def ratio_of(before: Sequence[float], after: Sequence[float]) -> Estimate:
    """The median of the turns' ratios, and from where to where they go."""
    ratios = [first / second for first, second in zip(before, after, strict=True)]
    return Estimate(statistics.median(ratios), min(ratios), max(ratios))


def in_words(estimate: Estimate | None) -> str:
    """A ratio with its interval."""
    return "-" if estimate is None else f"{estimate:times}"


def show(heads: Sequence[str], rows: Iterable[Sequence[str]], *, markdown: bool = False) -> None:
    """Print a table; where it is `markdown`, each row as it comes."""
    if markdown:
        for cells in (heads, ["---"] * len(heads)):
            print(f"| {' | '.join(cells)} |")
        for cells in rows:
            print(f"| {' | '.join(cells)} |", flush=True)
        return
    table = Table(*heads)
    for cells in rows:
        table.add_row(*(escape(cell) for cell in cells))
    Console(width=None if sys.stdout.isatty() else WIDTH).print(table)
