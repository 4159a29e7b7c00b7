"""A training that runs already, for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.report.formatting import printable
from loadeval.report.tables import Table, wrapped
from loadeval.report.wording import attach as wording
from loadeval.report.wording import hangs
from loadeval.report.wording.advice import finding_advice
from loadeval.report.wording.findings import finding_sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.attach.report import AttachedReport
    from loadeval.analysis.hangs.hang import Hang
    from loadeval.analysis.rules.finding import Finding
    from loadeval.report.tables import Rows

INDENT = "   "


def attached_screen(report: AttachedReport, width: int, hang: Hang | None = None) -> list[str]:
    """All that is known of a training, in lines of `width`; commands are not folded.

    `hang` is why it got no batch, or whom it waits for, where it waited all the time.
    """
    lines, about = list[str](), wording.about(report)
    is_stuck = hang is not None and hang.is_stuck
    if hang is not None and is_stuck:
        lines += [*wrapped(hangs.no_batch_came(hang), width), *_rows(hangs.rows(hang), width), ""]
    elif hang is not None and hang.worker is not None and hang.idle:
        about.append(("waits for", hangs.owed_by(hang)))
    lines += [*wrapped(wording.headline(report), width), "", *_rows(about, width)]
    for table in (*wording.loading_tables(report), wording.process_table(report)):
        lines += ["", *table.lines(width)]
    lines += ["", *_rows(wording.kernel_rows(report), width)]
    lines += _findings(report.findings, width)
    if not is_stuck:
        lines += ["", *wrapped(wording.NOT_A_SPEEDUP, width)]
        lines.append(f"{INDENT}{wording.to_measure(report.training)}")
    return [*lines, wording.cost(report)]


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
