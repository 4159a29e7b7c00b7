"""`loadeval watch`: follow a run while it goes on."""

from __future__ import annotations

import dataclasses
import time
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.live import Live
from rich.text import Text

from loadeval.analysis.followed import FollowedRun
from loadeval.analysis.live import LiveJob
from loadeval.cli.console import errors_printed, new_console, print_json
from loadeval.cli.hangs import HangTeller
from loadeval.data.folder import logs_so_far
from loadeval.errors import RunLogError
from loadeval.report.terminal.live import live_job_line, live_job_screen, live_line, live_screen
from loadeval.report.wording.live import waiting_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import RenderableType

    from loadeval.analysis.live import LiveState

RUN = (
    "The run log that the training writes; one that is not there yet is waited for. Or the folder "
    "of the logs of its ranks, or of a `loadeval run`."
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
    iterations over twice the median; and why no batch comes, where none does. Ends when the run
    does, and with Ctrl-C.
    """
    if not SHORTEST_S <= interval <= LONGEST_S:
        raise typer.BadParameter(
            f"--interval is {interval:g}; expected seconds from {SHORTEST_S:g} to {LONGEST_S:,}"
        )
    if as_json and not once:
        raise typer.BadParameter("--json prints one state: give it with --once")
    with errors_printed():
        try:
            if once:
                _show_once(run, as_json)
            else:
                _follow(run, interval)
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
    followed = FollowedRun(path)
    while True:
        is_there = followed.read()
        state = followed.run.state(followed.quiet_ns(now_s())) if is_there else None
        yield state
        if state is not None and state.ended:
            return
        sleep(interval_s)


def job_states(
    folder: Path,
    interval_s: float,
    now_s: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[LiveJob | None]:
    """The state of the ranks whose logs are in `folder`, every `interval_s`, until all have ended.

    None where there is no log yet. Ranks that begin later are followed from then on.
    """
    following: dict[str, Iterator[LiveState | None]] = {}
    latest: dict[str, LiveState] = {}
    while True:
        # Which loader is the training one is known only once optimizers make steps.
        paths = logs_so_far(folder)
        for path in paths:
            if path.stem not in following:
                following[path.stem] = states(path, 0.0, now_s, _no_sleep)
            # A rank that has ended stays as it was.
            state = next(following[path.stem], None)
            if state is not None:
                latest[path.stem] = state
        names = [path.stem for path in paths if path.stem in latest]
        job = LiveJob(tuple((name, latest[name]) for name in names)) if names else None
        yield job
        if job is not None and job.ended and len(names) == len(paths):
            return
        sleep(interval_s)


def _no_sleep(_: float) -> None:
    """One of many logs does not wait: all are waited for at once."""


def _states(path: Path, interval_s: float) -> Iterator[LiveState | LiveJob | None]:
    if not path.is_dir():
        yield from states(path, interval_s)
        return
    for job in job_states(path, interval_s):
        # A folder with one rank is that run.
        yield job.ranks[0][1] if job is not None and len(job.ranks) == 1 else job


def _similar(path: Path) -> list[Path]:
    """Files and folders beside `path` with a name like it: it may be mistyped."""
    try:
        names = [beside.name for beside in path.parent.iterdir()]
    except OSError:
        return []
    return [path.with_name(name) for name in get_close_matches(path.name, names)]


def _screen(state: LiveState | LiveJob) -> RenderableType:
    return live_job_screen(state) if isinstance(state, LiveJob) else live_screen(state)


def _line(state: LiveState | LiveJob) -> str:
    return live_job_line(state) if isinstance(state, LiveJob) else live_line(state)


def _show_once(path: Path, as_json: bool) -> None:
    state = next(_states(path, 0.0))
    if state is None:
        raise RunLogError(
            f"there is no run log at {path} yet; expected one that log_file= writes; leave out "
            "--once to wait for it"
        )
    if as_json:
        content = dataclasses.asdict(state)
        if isinstance(state, LiveJob):
            ranks = [{"log": name, **dataclasses.asdict(rank)} for name, rank in state.ranks]
            content = {"ranks": ranks}
        print_json({"path": str(path), **content})
        return
    console = new_console()
    if console.is_terminal:
        console.print(_screen(state))
    else:
        typer.echo(_line(state))


def _follow(path: Path, interval_s: float) -> None:
    console, hangs = new_console(), HangTeller(path)
    if not console.is_terminal:
        _print_lines(path, interval_s, hangs)
        return
    with Live(console=console, auto_refresh=False) as live:
        for state in _states(path, interval_s):
            hangs.poll()
            shown = Text(waiting_for(path, _similar(path))) if state is None else _screen(state)
            live.update(shown, refresh=True)


def _print_lines(path: Path, interval_s: float, hangs: HangTeller) -> None:
    announced = False
    for state in _states(path, interval_s):
        hangs.poll()
        if state is not None:
            typer.echo(_line(state))
        elif not announced:
            typer.echo(waiting_for(path, _similar(path)))
        announced = state is None
