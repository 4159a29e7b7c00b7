"""`loadeval run`: run a command, and measure the data loaders of its Python programs."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from loadeval.cli.compare import straggler
from loadeval.cli.console import errors_printed, report_of
from loadeval.errors import LoadevalError
from loadeval.launch.command import (
    CannotStartError,
    end_like,
    name_of,
    remove_marks,
    why_nothing,
)
from loadeval.launch.command import (
    run as run_command,
)
from loadeval.launch.folder import new_folder
from loadeval.launch.session import Settings, check
from loadeval.report.formatting import printable
from loadeval.report.launch import launch_screen
from loadeval.report.wording.launch import nothing_measured
from loadeval.runlog.processes import processes_in
from loadeval.runlog.reader import read_run

if TYPE_CHECKING:
    from loadeval.launch.command import Ended
    from loadeval.runlog.model import Mode, Run
    from loadeval.runlog.processes import LoaderRecord

RUN_EXIT_CODES = (
    "Exit code: the command's own, also where a signal ended it; 0 where --stop-after ended it. "
    "126 and 127: it could not be started."
)
COMMAND = "What to run, as you would without loadeval. Write -- before it."
MODE = (
    "log: record what was waited. alternate: real and ideal loading in turn, which gives the "
    "verdict."
)
REPLAY = "Run the command twice: as it is, and then with a few batches served over and over."
BATCHES = "With --mode alternate: start no new pair of blocks after this many batches."
STOP_AFTER = "End the program, as Ctrl-C does, once the training loader has served N batches."
OUTPUT = "The folder of the logs, new or empty; by default one in loadeval-runs."


def run(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help=COMMAND)],
    mode: Annotated[str, typer.Option("--mode", metavar="log|alternate", help=MODE)] = "log",
    batches: Annotated[int | None, typer.Option("--batches", metavar="N", help=BATCHES)] = None,
    replay: Annotated[bool, typer.Option("--replay", help=REPLAY)] = False,
    stop_after: Annotated[
        int | None, typer.Option("--stop-after", metavar="N", min=1, help=STOP_AFTER)
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help=OUTPUT)
    ] = None,
) -> None:
    """Run a command unchanged, and measure the loaders that its programs iterate.

    The loader that is iterated with gradients on is the training loader; validation and other
    loaders get logs of their own. Works with python, torchrun, accelerate launch and scripts. All
    that loadeval says is on stderr.
    """
    if mode not in {"log", "alternate"}:
        raise typer.BadParameter(
            f"--mode is {mode!r}; expected log or alternate; for a replay pass --replay"
        )
    if replay and mode != "log":
        raise typer.BadParameter("--replay compares a logged run: leave out --mode")
    first: Mode = "alternate" if mode == "alternate" else "log"
    with errors_printed():
        check(Settings("", first, batches))
        folder = new_folder(name_of(command), time.strftime("%Y%m%d-%H%M%S"), output)
    say(f"loadeval: logs in {folder}")
    modes: list[Mode] = [first, "replay"] if replay else [first]
    for one in modes:
        most = (batches or stop_after) if one == "alternate" else None
        ended = _run(command, Settings(str(folder), one, most), stop_after)
        if ended.code and not ended.was_stopped:
            break
    try:
        _report(folder)
    except LoadevalError as error:
        say(f"loadeval: {printable(error)}")
    end_like(0 if ended.was_stopped else ended.code)


def _run(command: list[str], settings: Settings, stop_after: int | None) -> Ended:
    try:
        return run_command(command, settings, stop_after)
    except CannotStartError as error:
        remove_marks(Path(settings.folder))
        say(f"Error: {printable(error)}")
        raise typer.Exit(error.code) from None


def _report(folder: Path) -> None:
    """Print what the logs in `folder` say. Raises LoadevalError if they cannot be compared."""
    why, what = why_nothing(folder)
    loaders = _loaders(folder)
    remove_marks(folder)
    if not loaders:
        say(nothing_measured(why, what))
        return
    report = report_of([folder])
    quoted = shlex.quote(_short(folder))
    more = [
        ("logs", _short(folder)),
        *straggler(report),
        ("everything", f"loadeval show {quoted} --full"),
        ("page", f"loadeval report {quoted}"),
    ]
    for line in launch_screen(report, loaders, more, Console(stderr=True).width):
        say(line)


def _loaders(folder: Path) -> list[tuple[LoaderRecord, Run]]:
    """The loaders that served something, of each process the training loader first."""
    found: list[tuple[LoaderRecord, Run]] = []
    for replayed in (False, True):
        for process in processes_in(folder, replayed=replayed):
            main = process.main
            first = sorted(process.loaders, key=lambda one: one is not main)
            runs = ((one, read_run(folder / one.log)) for one in first)
            found += [(one, run) for one, run in runs if run.batches]
    return found


def _short(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def say(line: str) -> None:
    """Print `line` on stderr: stdout is the command's."""
    typer.echo(line, err=True)
