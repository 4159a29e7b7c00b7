"""The page of `loadeval protocol`: that of the run to believe, and what the other steps found."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from loadeval.launch.steps import FOLDERS, Step
from loadeval.report.html.blocks import Code, Section, Table, Text, listed
from loadeval.report.html.page import rendered, sections
from loadeval.report.html.text import top
from loadeval.report.wording.doctor import check_text
from loadeval.report.wording.protocol import (
    DOCTOR_CAPTION,
    HEAD,
    NSYS_SAYS,
    STEPS_SAY,
    agreement,
    answer_rows,
    counted_batches,
    outcome,
    why_nothing_measured,
)

if TYPE_CHECKING:
    from pathlib import Path

    from loadeval.report.html.blocks import Block
    from loadeval.report.protocol import ProtocolReport


def protocol_page(found: ProtocolReport, output: Path) -> str:
    """The page as text, to be written to `output`.

    Raises UsageError where a page cannot hold the installed plotly.
    """
    best = found.answers.best
    first: list[Block] = [Text(tuple(filter(None, map(why_nothing_measured, found.results))))]
    told: list[Section] = []
    if best is not None:
        first = [*top(best), Text((agreement(found.answers),))]
        # Another command makes this page again.
        told = [one for one in sections(best, [found.folder], output) if one.name != "reproduce"]
    whole = [_steps(found), *told, _doctor(found), _not_measured(found), _reproduce(found)]
    return rendered(found.headline, [found.folder.name], first, whole)


def _steps(found: ProtocolReport) -> Section:
    rows = tuple((one.step.value, outcome(one), counted_batches(one)) for one in found.results)
    blocks: list[Block] = [Text((STEPS_SAY,))]
    answers = tuple(answer_rows(found.answers))
    if answers:
        blocks.append(Table("What each way to measure says, with 95% CI", HEAD, answers))
    blocks.append(Table("The steps", ("step", "how it ended", "batches"), rows))
    if found.nsys is not None:
        quoted = shlex.quote(str(found.nsys))
        blocks += [Text((NSYS_SAYS,)), Code((f"nsys stats {quoted}", f"nsys-ui {quoted}"))]
    return Section("protocol", "Steps", tuple(blocks))


def _doctor(found: ProtocolReport) -> Section:
    rows = tuple((one.name, one.status.value, check_text(one)) for one in found.checks)
    table = Table(DOCTOR_CAPTION, ("check", "result", "what was found"), rows)
    return Section("doctor", "The machine", (table,))


def _not_measured(found: ProtocolReport) -> Section:
    table = listed("What was not measured", "why", found.not_measured)
    return Section("not-measured", "Not measured", (table,))


def _reproduce(found: ProtocolReport) -> Section:
    ran = {one.step for one in found.results if one.batches}
    logs = [found.folder / FOLDERS[one] for one in (Step.ALTERNATE, Step.REAL) if one in ran]
    commands = (found.command, *(f"loadeval show {shlex.quote(str(one))} --full" for one in logs))
    return Section("reproduce", "Reproduce", (Code(commands),))
