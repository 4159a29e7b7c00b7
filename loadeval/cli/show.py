"""`loadeval show`: the figures of runs."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations when it runs
from typing import Annotated

import typer

from loadeval.cli.console import AsJson, errors_printed, print_json, print_report, reports_of
from loadeval.report.json import shown_as_dict
from loadeval.report.terminal.findings import diagnosis_report
from loadeval.report.terminal.plan import plan_report
from loadeval.report.terminal.stages import StagesReport
from loadeval.report.terminal.text import job_text, runs_report

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
    summaries = [run for report in reports for run in report.runs]
    if as_json:
        print_json({"runs": list(map(shown_as_dict, reports))})
        return
    inside = [StagesReport(run, full=full) for run in summaries]
    if stages and not full:
        print_report(*inside)
        return
    named = [(run.run.header.name, run.diagnosis, run.plan) for run in summaries]
    print_report(
        *(job_text(report, report.job) for report in reports if report.job is not None),
        runs_report(summaries),
        *(plan_report(plan, name) for name, _, plan in named if plan and plan.actions),
        *(diagnosis_report(diagnosis, name) for name, diagnosis, _ in named if diagnosis),
        *(inside if full else []),
    )
