"""`loadeval watch`: follow a run while it goes on."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path  # noqa: TC003 - typer reads the annotations when it runs
from typing import TYPE_CHECKING, Annotated

import typer
from rich.live import Live
from rich.text import Text

from loadeval.analysis.live import LiveRun
from loadeval.cli.console import errors_printed, new_console, print_json
from loadeval.errors import RunLogError
from loadeval.launch.folder import training_logs
from loadeval.report.live import live_line, live_screen
from loadeval.report.wording.live import waiting_for
from loadeval.runlog.model import SECOND_NS
from loadeval.runlog.reader import Follower

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from loadeval.analysis.live import LiveState

RUN = (
    "The run log that the training writes, or the folder of a `loadeval run`; one that is not "
    "there yet is waited for."
)
INTERVAL = "Seconds between two updates."
SHORTEST_S = 0.1
LONGEST_S = 86_400


def watch(
    run: Annotated[Path, typer.Argument(metavar="RUN", help=RUN)],
    interval: Annotated[float, typer.Option(metavar="SECONDS", help=INTERVAL)] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print its state now, and exit.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --once: print one JSON object instead.")
    ] = False,
) -> None:
    """Follow the run log of a running training.

    Throughput and time waiting, over the last minute and the whole run, epoch start, and the last
    iterations over twice the median. Ends when the run does, and with Ctrl-C.
    """
    if not SHORTEST_S <= interval <= LONGEST_S:
        raise typer.BadParameter(
            f"--interval is {interval:g}; expected seconds from {SHORTEST_S:g} to {LONGEST_S:,}"
        )
    if as_json and not once:
        raise typer.BadParameter("--json prints one state: give it with --once")
    with errors_printed():
        try:
            run = _log_in(run, interval, wait=not once)
            _show_once(run, as_json) if once else _follow(run, interval)
        except KeyboardInterrupt:
            return


def states(
    path: Path,
    interval_s: float,
    now_s: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[LiveState | None]:
    """The state of the run at `path`, every `interval_s`, until it has ended.

    None where there is no log yet, or not even its first line.
    """
    follower, run = Follower(path), LiveRun()
    while True:
        appended = follower.read()
        if appended is not None and appended.anew:
            run = LiveRun()
        for line in () if appended is None else appended.lines:
            run.take(line)
        if appended is not None and appended.more:
            continue
        quiet_s = 0.0 if appended is None else max(now_s() - appended.written_s, 0.0)
        state = None if appended is None else run.state(round(quiet_s * SECOND_NS))
        yield state
        if state is not None and state.ended:
            return
        sleep(interval_s)


def _log_in(
    run: Path, interval_s: float, *, wait: bool, sleep: Callable[[float], None] = time.sleep
) -> Path:
    """`run`, or the log of the first training loader in that folder, which may come yet."""
    while True:
        try:
            return training_logs(run)[0]
        except RunLogError:
            if not wait:
                raise
        sleep(interval_s)


def _show_once(path: Path, as_json: bool) -> None:
    state = next(states(path, 0.0))
    if state is None:
        raise RunLogError(
            f"there is no run log at {path} yet; expected one that log_file= writes; leave out "
            "--once to wait for it"
        )
    if as_json:
        print_json({"path": str(path), **dataclasses.asdict(state)})
        return
    console = new_console()
    if console.is_terminal:
        console.print(live_screen(state))
    else:
        typer.echo(live_line(state))


def _follow(path: Path, interval_s: float) -> None:
    console = new_console()
    if not console.is_terminal:
        _print_lines(path, interval_s)
        return
    with Live(console=console, auto_refresh=False) as live:
        for state in states(path, interval_s):
            shown = Text(waiting_for(path)) if state is None else live_screen(state)
            live.update(shown, refresh=True)


def _print_lines(path: Path, interval_s: float) -> None:
    announced = False
    for state in states(path, interval_s):
        if state is not None:
            typer.echo(live_line(state))
        elif not announced:
            typer.echo(waiting_for(path))
        announced = state is None
