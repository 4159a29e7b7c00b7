"""The page of `loadeval protocol`: that of the run to believe, and what the other steps found."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from loadeval.report.page.blocks import Code, Section, Text, listed
from loadeval.report.page.page import rendered, sections
from loadeval.report.page.text import top
from loadeval.report.tables import Table
from loadeval.report.wording import protocol as protocol_words
from loadeval.report.wording.doctor import check_text
from loadeval.runlog.run_folder.protocol_steps import FOLDERS, Step

if TYPE_CHECKING:
    from pathlib import Path

    from loadeval.report.page.blocks import Block
    from loadeval.report.terminal.protocol import ProtocolReport


def protocol_page(report: ProtocolReport, output: Path) -> str:
    """The page as text, to be written to `output`.

    Raises UsageError where a page cannot hold the installed plotly.
    """
    best = report.answers.best
    first: list[Block] = [
        Text(tuple(filter(None, map(protocol_words.why_nothing_measured, report.results))))
    ]
    parts: list[Section] = []
    if best is not None:
        first = [*top(best), Text((protocol_words.agreement(report.answers),))]
        # Another command makes this page again.
        parts = [
            section
            for section in sections(best, [report.folder], output)
            if section.name != "reproduce"
        ]
    whole = [_steps(report), *parts, _doctor(report), _not_measured(report), _reproduce(report)]
    return rendered(report.headline, [report.folder.name], first, whole)


def _steps(report: ProtocolReport) -> Section:
    rows = tuple(
        (result.step.value, protocol_words.outcome(result), protocol_words.counted_batches(result))
        for result in report.results
    )
    blocks: list[Block] = [Text((protocol_words.STEPS_SAY,))]
    answers = tuple(protocol_words.answer_rows(report.answers))
    if answers:
        blocks.append(
            Table("What each way to measure says, with 95% CI", protocol_words.HEAD, answers)
        )
    blocks += _phases(report)
    blocks.append(Table("The steps", ("step", "how it ended", "batches"), rows))
    if report.nsys is not None:
        quoted = shlex.quote(str(report.nsys))
        blocks += [
            Text((protocol_words.NSYS_SAYS,)),
            Code((f"nsys stats {quoted}", f"nsys-ui {quoted}")),
        ]
    return Section("protocol", "Steps", tuple(blocks))


def _phases(report: ProtocolReport) -> list[Block]:
    phases = report.phases
    dropped = next((result.dropped for result in report.results if result.dropped), None)
    if phases is None or dropped is None:
        return []
    said = (protocol_words.most_lost(phases), protocol_words.dropped_in_words(dropped))
    rows = tuple(protocol_words.phase_rows(phases))
    return [Text(said), Table(protocol_words.PHASES_CAPTION, protocol_words.PHASES_HEAD, rows)]


def _doctor(report: ProtocolReport) -> Section:
    rows = tuple((check.name, check.status.value, check_text(check)) for check in report.checks)
    table = Table(protocol_words.DOCTOR_CAPTION, ("check", "result", "what was found"), rows)
    return Section("doctor", "The machine", (table,))


def _not_measured(report: ProtocolReport) -> Section:
    table = listed("What was not measured", "why", report.not_measured)
    return Section("not-measured", "Not measured", (table,))


def _reproduce(report: ProtocolReport) -> Section:
    ran = {result.step for result in report.results if result.batches}
    logs = [report.folder / FOLDERS[log] for log in (Step.ALTERNATE, Step.REAL) if log in ran]
    commands = (
        report.command,
        *(f"loadeval show {shlex.quote(str(step))} --full" for step in logs),
    )
    return Section("reproduce", "Reproduce", (Code(commands),))
