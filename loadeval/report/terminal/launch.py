"""The screen at the end of `loadeval run`: what its logs say, and where they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.report.formatting import printable
from loadeval.report.tables import labelled, wrapped
from loadeval.report.terminal.plan import found_and_to_do
from loadeval.report.terminal.screen import screen
from loadeval.report.wording import launch as wording
from loadeval.report.wording.ranks import OF_ONE_RANK
from loadeval.report.wording.runs import overridden, report_headline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.report import Report
    from loadeval.data.folder import LoaderRecord
    from loadeval.data.run import Run
    from loadeval.report.tables import Rows

MOST_LOADERS = 8


def launch_screen(
    reports: Sequence[tuple[str, Report]],
    loaders: Sequence[tuple[LoaderRecord, Run]],
    more: Rows,
    width: int,
    *,
    alternates: bool = False,
    overrides: bool = False,
) -> list[str]:
    """What is said of each training, then the loaders and `more`.

    `reports` are those of the trainings, with the first log of each. `alternates` tells whether
    they should have alternated, and `overrides` whether loaders should have got other settings.
    """
    lines: list[str] = [] if reports else [*wrapped(wording.NO_TRAINING, width), ""]
    for number, (log, report) in enumerate(reports, 1):
        if len(reports) > 1:
            lines.append(
                printable(wording.TRAINING.format(number=number, count=len(reports), log=log))
            )
        lines += [*_training_lines(report, width), ""]
    if any(report.comparison is None for _, report in reports):
        lines += [
            *wrapped(wording.NOT_ALTERNATED if alternates else wording.LOG_MODE_SAYS, width),
            "",
        ]
    if overrides and not any(run.header.loader.overrides for _, run in loaders):
        lines += [*wrapped(wording.NOT_OVERRIDDEN, width), ""]
    for record, run in loaders[:MOST_LOADERS]:
        named = f"{record.log} ({record.role}): {_facts(record, run)}"
        lines += wrapped(printable(named), width)
    if len(loaders) > MOST_LOADERS:
        lines.append(f"and {len(loaders) - MOST_LOADERS} more")
    return [*lines, *([""] if loaders else []), *labelled(more)]


def _training_lines(report: Report, width: int) -> list[str]:
    """The verdict or, of a run that logged alone, what was waited, and the findings."""
    job, comparison = report.job, report.comparison
    if comparison is not None and job is None:
        return screen(report, [], width)
    lines = wrapped(report_headline(report), width) if job is None else screen(report, [], width)
    for (_, diagnosis), (_, plan) in zip(report.diagnoses, report.plans, strict=True):
        if diagnosis.findings:
            of_rank = [] if job is None else wrapped(OF_ONE_RANK.format(rank=job.shown), width)
            lines += ["", *of_rank, *found_and_to_do(diagnosis, plan, width)]
    return lines


def _facts(record: LoaderRecord, run: Run) -> str:
    samples = run.steps.samples
    are_known = len(samples) and bool((samples >= 0).all())
    facts = wording.loader_facts(record, run.batches, int(samples.sum()) if are_known else None)
    overrides = run.header.loader.overrides
    return facts if not overrides else f"{facts}, {overridden(overrides)}"
