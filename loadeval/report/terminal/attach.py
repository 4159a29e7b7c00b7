"""A training that runs already, for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.report.formatting import printable
from loadeval.report.tables import Table, wrapped
from loadeval.report.wording import attach as wording
from loadeval.report.wording.advice import finding_advice
from loadeval.report.wording.findings import finding_sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.attach.report import AttachedReport
    from loadeval.analysis.rules.finding import Finding
    from loadeval.report.tables import Rows

INDENT = "   "


def attached_screen(report: AttachedReport, width: int) -> list[str]:
    """All that is known of a training, in lines of `width`; commands are not folded."""
    lines = [*wrapped(wording.headline(report), width), "", *_rows(wording.about(report), width)]
    for table in (*wording.loading_tables(report), wording.process_table(report)):
        lines += ["", *table.lines(width)]
    lines += ["", *_rows(wording.kernel_rows(report), width)]
    lines += _findings(report.findings, width)
    lines += ["", *wrapped(wording.NOT_A_SPEEDUP, width)]
    lines += [f"{INDENT}{wording.to_measure(report.training)}", wording.cost(report)]
    return lines


def _rows(rows: Rows, width: int) -> list[str]:
    return Table("", (), [(label, printable(text)) for label, text in rows], wraps=(1,)).lines(
        width
    )


def _findings(findings: Sequence[Finding], width: int) -> list[str]:
    lines = [""] if findings else []
    for number, finding in enumerate(findings, 1):
        said = f"{number}. {finding.rule.value} ({finding.confidence}): "
        said += printable(f"{finding_sentence(finding)} {finding_advice(finding)}")
        first, *others = wrapped(said, width - len(INDENT))
        lines += [first, *(f"{INDENT}{line}" for line in others)]
    return lines
