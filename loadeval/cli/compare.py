"""`loadeval compare`: what one run says, or two, or several backends."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from loadeval.cli import console
from loadeval.estimate.before_after import before_after
from loadeval.estimate.verdict import gate_of
from loadeval.report import text
from loadeval.report.report import Report, report_of
from loadeval.words import printable

EPILOG = f"{console.EXIT_CODES} With a limit: 3 above it (whole 95% CI); 4 undecided."
RUNS = "Logs of runs, or folders of logs."
BETWEEN = "Look at a window, in seconds: 120s 180s."
FAIL_ABOVE = "Exit 3 if more is lost, 4 if undecided."
FAIL_SLOWER = "Exit 3 if it is slower, 4 if undecided."


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help=RUNS)],
    output: console.Figure = None,
    full: Annotated[bool, typer.Option("--full", help="Print everything, not a screen.")] = False,
    json: console.AsJson = False,
    between: Annotated[
        tuple[str, str] | None, typer.Option("--between", metavar="BEGIN END", help=BETWEEN)
    ] = None,
    fail_above: Annotated[
        float | None, typer.Option(metavar="PERCENT", min=0, max=100, help=FAIL_ABOVE)
    ] = None,
    fail_slower: Annotated[
        float | None, typer.Option(metavar="PERCENT", min=0, max=100, help=FAIL_SLOWER)
    ] = None,
) -> None:
    """Show what runs measured, on one screen.

    Of a run of mode log: how long training waited, and for what; beside a replay: what loading
    costs. Of two runs of one program: whether the second is slower, and what changed. Of several
    backends: which is fastest. Of a folder: the run, or the ranks, whose logs it has.
    """
    window = None if between is None else (seconds(between[0]), seconds(between[1]))
    report = report_of(runs, window)
    outcomes = gates(report, fail_above, fail_slower)
    if output is not None:
        report.plot(output)
    if json:
        console.print_json(report.as_json())
    else:
        made = report.sections if full else report.screen
        text.show(made(report.commands()), height=None if full else console.SCREEN_LINES)
        if output is not None:
            typer.echo(f"\nFigure written to {printable(output)}")
    code = 0
    for is_above, says in outcomes:
        typer.echo(printable(says), err=True)
        if is_above:
            code = console.ABOVE_LIMIT
        elif is_above is None:
            code = code or console.UNDECIDED
    raise typer.Exit(code)


def seconds(given: str) -> float:
    """A time since the run's start: 120s, or 120."""
    found = re.fullmatch(r"(\d+(\.\d*)?|\.\d+)s?", given)
    if found is None:
        raise typer.BadParameter(f"{given!r} is no time; expected seconds, such as 120s")
    return float(found[1])


def gates(
    report: Report, fail_above: float | None, fail_slower: float | None
) -> list[tuple[bool | None, str]]:
    """Whether the runs are above the limits, None if undecided, and that in words."""
    result, before, found = report.result, report.before, []
    if fail_above is not None:
        if result is None or (result.run.header.mode == "log" and result.ideal is None):
            raise typer.BadParameter(
                "--fail-above needs the share of time lost to data loading; expected a run of "
                "mode alternate, or one of mode log and one of mode replay"
            )
        found.append(gate_of(result.verdict, result.gap.lost_share, fail_above / 100))
    if fail_slower is not None:
        if result is None or before is None:
            raise typer.BadParameter(
                "--fail-slower compares a run with an earlier one; expected two runs of the same "
                "loader in the same mode, the earlier one first"
            )
        found.append(before_after(before.run, result.run).gate(fail_slower / 100))
    return found
