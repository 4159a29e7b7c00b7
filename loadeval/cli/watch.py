"""`loadeval watch`: what `compare` says of a run, while that goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, NewLine
from rich.live import Live

from loadeval.cli import console
from loadeval.data.folder import logs_so_far
from loadeval.data.run import SECOND_NS, Run
from loadeval.errors import RunLogError
from loadeval.launch.hangs import HangWatch
from loadeval.live import FollowedRun
from loadeval.report import text
from loadeval.report.blocks import Section, Text
from loadeval.report.build import headline, result_of
from loadeval.report.report import report_of
from loadeval.words import printable, span

RUN = "The log of a training, or its folder, maybe empty."
INTERVAL = "Seconds between two updates."
MINUTE_S = 60.0


def watch(
    run: Annotated[Path, typer.Argument(metavar="RUN", help=RUN)],
    interval: Annotated[float, typer.Option(metavar="SECONDS", min=0.1, help=INTERVAL)] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print its state now, and exit.")] = False,
    json: console.AsJson = False,
) -> None:
    """Follow the run log of a running training.

    The screen of `compare`, with throughput and time waiting of the last minute above it; and why
    no batch comes, where none does. Ends when the run does, and with Ctrl-C.
    """
    with suppress(KeyboardInterrupt):
        if json:
            console.print_json(report_of([run]).as_json())
        elif once:
            text.show(Watched(run).look()[0], height=console.SCREEN_LINES)
        else:
            follow(run, interval)


class Watched:
    """The log at `path`, or those in that folder, and for how long each has got no batch."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._logs: dict[Path, FollowedRun] = {}

    def silence(self) -> tuple[int, str]:
        """The longest one, and whose. Raises RunLogError where a file never becomes a log."""
        silences = [(0, "")]
        for path in logs_so_far(self._path) if self._path.is_dir() else [self._path]:
            followed = self._logs.setdefault(path, FollowedRun(path))
            if followed.read():
                silent_ns = followed.run.silent_ns(followed.quiet_ns(time.time()))
                silences.append((silent_ns or 0, path.name))
        return max(silences)

    def look(self) -> tuple[list[Section], bool]:
        """What is said of the run so far, and whether it has ended. Raises LoadevalError."""
        report = report_of([self._path])
        run = report.result.run if report.result else None
        if run is None:
            return report.screen(), False
        silent_ns, name = (0, "") if run.closed else self.silence()
        if silent_ns > MINUTE_S * SECOND_NS:
            recent = [Text(f"{name}: no batch for {span(silent_ns)}", "caution")]
            return [Section("", recent, priority=0), *report.screen()], False
        if not (run.closed or run.batches or report.job):
            return [Section("No batch so far", priority=0)], False
        return [*last_minute(run), *report.screen()], run.closed


def last_minute(run: Run) -> list[Section]:
    """How long training waited in it, and its throughput; nothing where no step ended in it."""
    if run.header.mode != "log" or not len(run.steps):
        return []
    end_s = float(run.steps.request_ns.max()) / SECOND_NS
    part = result_of(run.between(end_s - MINUTE_S, end_s))
    if part.gap.waiting is None:
        return []
    return [Section(f"The last minute: {headline(part).title}", priority=0)]


def follow(path: Path, interval_s: float, sleep: Callable[[float], None] = time.sleep) -> None:
    """Show it on a terminal again and again, in the place of the time before; in a file at last."""
    hangs, terminal, is_over = HangWatch(path), console.new_console(), False
    watched, is_told = Watched(path), terminal.is_terminal
    end = [] if terminal.is_terminal else [NewLine()]
    with Live(console=terminal, auto_refresh=False) as on:
        while not is_over:
            hangs.poll(console.say)
            began_s = time.monotonic()
            try:
                sections, is_over = watched.look()
            except RunLogError as error:
                if not path.exists() or any(path.glob("*/*.jsonl")):  # it never becomes one
                    raise
                watched.silence()
                waits = f"Waiting for a run log: {error}"
                sections = [Section(waits, priority=0)]
                if not is_told:
                    console.say(printable(waits))
                is_told = True
            lines = text.lines(sections, terminal.width, height=console.SCREEN_LINES)
            on.update(Group(*lines, *end), refresh=True)
            if not is_over:
                sleep(max(interval_s, console.LOOK_SHARE * (time.monotonic() - began_s)))
