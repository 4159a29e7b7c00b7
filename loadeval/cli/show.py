"""`loadeval show`: the figures of runs."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations when it runs
from typing import Annotated

import typer

from loadeval.cli.console import AsJson, errors_printed, print_json, print_report, reports_of
from loadeval.report.findings import diagnosis_report
from loadeval.report.json import shown_as_dict
from loadeval.report.stages import StagesReport
from loadeval.report.text import JobText, RunsReport

RUNS = (
    "Run logs, files of save_metrics(), or JSON of DALI's LoaderEvaluator; or the folder of a "
    "`loadeval run` or of the logs of a job's ranks."
)
STAGES = (
    "Print what happens inside the loader instead: stages, transforms, slowest samples, operators."
)
FULL = "Print what happens inside the loader too."


def show(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help=RUNS,
        ),
    ],
    as_json: AsJson = False,
    stages: Annotated[bool, typer.Option("--stages", help=STAGES)] = False,
    full: Annotated[bool, typer.Option("--full", help=FULL)] = False,
) -> None:
    """Print the figures of runs side by side, with both arms of an alternating one.

    Throughput, iteration, waits and epoch start, system metrics, the loader, and notes.
    """
    with errors_printed():
        reports = reports_of(runs)
    found = [one for report in reports for one in report.runs]
    if as_json:
        print_json({"runs": list(map(shown_as_dict, reports))})
        return
    inside = [StagesReport(one, full=full) for one in found]
    if stages and not full:
        print_report(*inside)
        return
    named = [(one.run.header.name, one.diagnosis) for one in found]
    print_report(
        *(JobText(one, one.job) for one in reports if one.job is not None),
        RunsReport(found),
        *(diagnosis_report(diagnosis, name) for name, diagnosis in named if diagnosis),
        *(inside if full else []),
    )
