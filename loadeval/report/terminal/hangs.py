"""Why no batch comes: the lines for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.report.tables import Table, wrapped
from loadeval.report.wording import hangs as wording

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.hangs.hang import Hang


def hang_lines(
    hang: Hang, width: int, ranks: Sequence[Hang] = (), path: str | None = None
) -> list[str]:
    """What all wait for, at most `width` wide; `path` is the file with all stacks."""
    rows = [(f"  {label}", text) for label, text in wording.rows(hang, ranks, path)]
    table = Table("", (), rows, wraps=(1,)) if rows else None
    return [
        *wrapped(f"loadeval: {wording.headline(hang)}", width),
        *(() if table is None else table.lines(width)),
    ]
