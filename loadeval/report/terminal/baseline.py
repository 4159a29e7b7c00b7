"""The screen of a run against its baseline."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from loadeval.report.baseline import changes_table, measured_table
from loadeval.report.formatting import printable
from loadeval.report.tables import NO_LIMIT, labelled, wrapped
from loadeval.report.wording import baseline as words

if TYPE_CHECKING:
    from loadeval.analysis.baseline import BaselineReport
    from loadeval.report.tables import Rows

MOST_CHANGES, MOST_FINDINGS = 6, 4


def baseline_screen(
    baseline: BaselineReport, more: Rows, width: int, *, full: bool = False
) -> list[str]:
    """Whether the run is slower, by how much, what changed, and where there is more.

    With `full` everything that changed.
    """
    most_changes, most_findings = (NO_LIMIT, NO_LIMIT) if full else (MOST_CHANGES, MOST_FINDINGS)
    changes = changes_table(baseline).lines(width)
    findings = list(map(printable, words.finding_changes(baseline)))
    cautions = " ".join(words.baseline_cautions(baseline))
    parts = [
        wrapped(printable(words.baseline_headline(baseline)), width, 3),
        measured_table(baseline).lines(width),
        _at_most(changes, 1 + most_changes) if baseline.changes else [words.NOTHING_CHANGED],
        _at_most(findings, most_findings),
        wrapped(f"Caution: {cautions}", width),
        labelled(more),
    ]
    return list(chain.from_iterable(["", *part] for part in parts if part))[1:]


def _at_most(lines: list[str], most: int) -> list[str]:
    return lines if len(lines) <= most else [*lines[:most], f"and {len(lines) - most:,} more"]
