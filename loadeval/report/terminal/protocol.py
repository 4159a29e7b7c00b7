"""The screen at the end of `loadeval protocol`, and what it and the page are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loadeval.report.formatting import printable
from loadeval.report.tables import labelled, wrapped
from loadeval.report.terminal.plan import found_and_to_do
from loadeval.report.terminal.screen import screen
from loadeval.report.wording import protocol as wording
from loadeval.report.wording.runs import report_headline
from loadeval.runlog.run_folder.protocol_steps import Step

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from loadeval.analysis.doctor import MachineCheck
    from loadeval.analysis.phases import Phases
    from loadeval.analysis.protocol import Answers
    from loadeval.report.tables import Rows
    from loadeval.runlog.run_folder.protocol_steps import StepResult


@dataclass(frozen=True, slots=True)
class ProtocolReport:
    """All that the protocol found.

    `command` is as it is typed into a shell, with loadeval before it; `problems` say what could not
    be compared, and why. `phases` are None where no run had cold files.
    """

    command: str
    folder: Path
    results: Sequence[StepResult]
    checks: Sequence[MachineCheck]
    answers: Answers
    problems: Sequence[str] = ()
    phases: Phases | None = None

    @property
    def headline(self) -> str:
        """The verdict, in one sentence."""
        best = self.answers.best
        return wording.NO_ANSWER if best is None else report_headline(best)

    @property
    def not_measured(self) -> Rows:
        """What was not measured, and why."""
        problems = [*self.problems, *wording.why_no_phases(self.results, self.phases)]
        return wording.all_not_measured(self.results, self.checks, self.answers, problems)

    @property
    def nsys(self) -> Path | None:
        """What nsys wrote."""
        written = next(
            (result.profile for result in self.results if result.step is Step.NSYS), None
        )
        return None if written is None else self.folder / written


def protocol_screen(protocol: ProtocolReport, more: Rows, width: int) -> list[str]:
    """The verdict with what the page has below it in short, and `more`: where to look."""
    missing = wording.names_in_short(protocol.not_measured)
    rows = [
        *wording.agreement_in_short(protocol.answers),
        *(
            (f"step {result.step.value}", wording.outcome(result))
            for result in protocol.results
            if result.failed or result.signal
        ),
        *wording.phases_in_short(protocol.phases),
        ("doctor", wording.changes_in_short(protocol.checks)),
        *([("not measured", missing)] if missing else []),
        *more,
    ]
    best = protocol.answers.best
    if best is not None and best.comparison is not None:
        return screen(best, rows, width)
    lines = wrapped(printable(protocol.headline), width)
    for why in dict.fromkeys(filter(None, map(wording.why_nothing_measured, protocol.results))):
        lines += wrapped(why, width)
    found = [] if best is None else zip(best.diagnoses, best.plans, strict=True)
    for (_, diagnosis), (_, plan) in found:
        if diagnosis.findings:
            lines += ["", *found_and_to_do(diagnosis, plan, width)]
    return [*lines, "", *labelled(rows)]
