"""`loadeval show`: the figures of runs."""

from __future__ import annotations

import dataclasses
from pathlib import Path  # noqa: TC003 - typer reads the annotations when it runs
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loadeval.analysis.rules.diagnosis import diagnose
from loadeval.cli.console import errors_told, print_json, print_report
from loadeval.report.comparison import columns
from loadeval.report.findings import diagnosis_as_dict, diagnosis_report
from loadeval.report.readings import readings_as_dict
from loadeval.report.text import RunsReport
from loadeval.runlog.model import ARMS
from loadeval.runlog.reader import read_run

if TYPE_CHECKING:
    from loadeval.runlog.model import Run


def show(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="Run logs, files of save_metrics(), or JSON of DALI's LoaderEvaluator.",
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Print the figures of runs side by side, of an alternating one those of each arm.

    Throughput, iteration, waits and epoch start, what the loader was, and what happened meanwhile.
    """
    with errors_told():
        read = [read_run(path) for path in runs]
    if as_json:
        print_json({"runs": [_as_json(run) for run in read]})
    else:
        found = [diagnosis_report(diagnose(run), run.header.name) for run in read if _loads(run)]
        print_report(RunsReport([side for run in read for side in columns(run)]), *found)


def _loads(run: Run) -> bool:
    return run.header.mode != "replay"


def _as_json(run: Run) -> dict[str, Any]:
    header = run.header
    # Of an alternating run the one figure of both arms would mean nothing.
    summaries = [dataclasses.asdict(summary) for _, summary in columns(run)]
    named = {"summary": summaries[0]}
    if len(summaries) > 1:
        named = {"summaries": dict(zip(ARMS, summaries, strict=True))}
    return {
        "path": str(run.path),
        "name": header.name,
        "mode": header.mode,
        "unit": header.unit,
        "created": header.created,
        "warmup": header.warmup,
        "loader": dataclasses.asdict(header.loader),
        "cache": None if header.cache is None else dataclasses.asdict(header.cache),
        "closed": run.closed,
        "notes": list(run.notes),
        "events": [dataclasses.asdict(event) for event in run.events],
        "readings": readings_as_dict(run),
        "diagnosis": diagnosis_as_dict(diagnose(run)),
        **named,
    }
