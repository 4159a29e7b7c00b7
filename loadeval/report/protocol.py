"""The screen at the end of `loadeval protocol`, and what it and the page are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loadeval.launch.steps import Step
from loadeval.report.findings import SHORT_HEADING, findings_in_short
from loadeval.report.formatting import printable
from loadeval.report.screen import screen
from loadeval.report.tables import table_lines, wrapped
from loadeval.report.wording.protocol import (
    NO_ANSWER,
    agreement_in_short,
    all_not_measured,
    changes_in_short,
    names_in_short,
    outcome,
    why_nothing_measured,
)
from loadeval.report.wording.runs import report_headline

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from loadeval.analysis.doctor import MachineCheck
    from loadeval.analysis.protocol import Answers
    from loadeval.launch.steps import StepResult
    from loadeval.report.tables import Rows


@dataclass(frozen=True, slots=True)
class ProtocolReport:
    """All that the protocol found.

    `command` is as it is typed into a shell, with loadeval before it; `problems` say what could not
    be compared, and why.
    """

    command: str
    folder: Path
    results: Sequence[StepResult]
    checks: Sequence[MachineCheck]
    answers: Answers
    problems: Sequence[str] = ()

    @property
    def headline(self) -> str:
        """The verdict, in one sentence."""
        best = self.answers.best
        return NO_ANSWER if best is None else report_headline(best)

    @property
    def not_measured(self) -> Rows:
        """What was not measured, and why."""
        return all_not_measured(self.results, self.checks, self.answers, self.problems)

    @property
    def nsys(self) -> Path | None:
        """What nsys wrote."""
        written = next((one.profile for one in self.results if one.step is Step.NSYS), None)
        return None if written is None else self.folder / written


def protocol_screen(found: ProtocolReport, more: Rows, width: int) -> list[str]:
    """The verdict with what the page has below it in short, and `more`: where to look."""
    missing = names_in_short(found.not_measured)
    rows = [
        *agreement_in_short(found.answers),
        *(
            (f"step {one.step.value}", outcome(one))
            for one in found.results
            if one.failed or one.signal
        ),
        ("doctor", changes_in_short(found.checks)),
        *([("not measured", missing)] if missing else []),
        *more,
    ]
    best = found.answers.best
    if best is not None and best.comparison is not None:
        return screen(best, rows, width)
    lines = wrapped(printable(found.headline), width)
    for why in dict.fromkeys(filter(None, map(why_nothing_measured, found.results))):
        lines += wrapped(why, width)
    for _, diagnosis in [] if best is None else best.diagnoses:
        if diagnosis.findings:
            table = [SHORT_HEADING, *findings_in_short(diagnosis, width)]
            lines += ["", *table_lines(table, width)]
    widest = max(len(label) for label, _ in rows)
    return [*lines, "", *(f"{label:<{widest}}  {printable(told)}" for label, told in rows)]
