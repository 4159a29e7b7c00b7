"""`loadeval watch`: what `compare` says of a run, while that goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group
from rich.live import Live

from loadeval.cli import console
from loadeval.cli.compare import SCREEN_LINES
from loadeval.cli.hangs import HangTeller
from loadeval.data.run import SECOND_NS, Run
from loadeval.errors import RunLogError
from loadeval.report import text
from loadeval.report.blocks import Section
from loadeval.report.build import headline, result_of
from loadeval.report.report import report_of

RUN = "The run log that a training writes, or the folder of its logs; it is waited for."
MINUTE_S = 60.0
LOOK_SHARE = 20
"""Between two looks there is so many times as long as one takes."""


def watch(
    run: Annotated[Path, typer.Argument(metavar="RUN", help=RUN)],
    interval: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, help="Seconds between two updates.")
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print its state now, and exit.")] = False,
    as_json: console.AsJson = False,
) -> None:
    """Follow the run log of a running training.

    The screen of `compare`, with throughput and time waiting of the last minute above it; and why
    no batch comes, where none does. Ends when the run does, and with Ctrl-C.
    """
    with console.errors_printed(), suppress(KeyboardInterrupt):
        if as_json:
            console.print_json(report_of([run]).as_json())
        elif once:
            text.show(looked_at(run)[0], height=SCREEN_LINES)
        else:
            follow(run, interval)


def looked_at(path: Path) -> tuple[list[Section], bool]:
    """What is said of a run so far, and whether it has ended. Raises LoadevalError."""
    report = report_of([path])
    run = report.result.run if report.result else None
    if run is None or run.header.mode != "log" or not len(run.steps):
        return report.sections(), run is not None and run.closed
    recent = Section(f"The last minute: {last_minute(run)}", priority=0)
    return [recent, *report.sections()], run.closed


def last_minute(run: Run) -> str:
    """How long training waited in it, and its throughput."""
    end_s = float(run.steps.request_ns.max()) / SECOND_NS
    return headline(result_of(run.between(end_s - MINUTE_S, end_s))).title


def follow(path: Path, interval_s: float, sleep: Callable[[float], None] = time.sleep) -> None:
    """Show it on a terminal again and again, in the place of the time before; in a file at last."""
    teller, terminal, is_over = HangTeller(path), console.new_console(), False
    with Live(console=terminal, auto_refresh=False) as on:
        while not is_over:
            began_s = time.monotonic()
            teller.poll()
            try:
                sections, is_over = looked_at(path)
            except RunLogError as error:
                sections = [Section(f"Waiting for a run log: {error}", priority=0)]
            lines = text.lines(sections, terminal.width, height=SCREEN_LINES)
            on.update(Group(*lines), refresh=True)
            if not is_over:
                sleep(max(interval_s, LOOK_SHARE * (time.monotonic() - began_s)))
