"""`loadeval run`: run a command, and measure the data loaders of its Python programs."""

from __future__ import annotations

import shlex
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from loadeval.cli.compare import straggler_command
from loadeval.cli.console import (
    Command,
    Redact,
    errors_printed,
    report_of_training,
    say,
    shown_path,
)
from loadeval.cli.hangs import HANG_ENDED, HangAfter, HangTeller
from loadeval.errors import LoadevalError, UsageError, in_words
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
from loadeval.launch.folder import loaders_in, new_folder, trainings_in
from loadeval.launch.refused import is_shown
from loadeval.launch.settings import RunSettings, check, settings_in
from loadeval.report.formatting import printable
from loadeval.report.terminal.launch import launch_screen
from loadeval.report.wording.launch import LOGS_ARE_GONE, STOPPED, nothing_measured

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loadeval.analysis.report import Report
    from loadeval.launch.command import Ended
    from loadeval.report.tables import Rows

RUN_EXIT_CODES = (
    "Exit code: the command's own, also where a signal ended it; 0 where --stop-after ended it, "
    "5 where --abort-on-hang did. 126 and 127: it could not be started."
)
MODE = (
    "log: record what was waited. alternate: real and ideal loading in turn, which gives the "
    "verdict."
)
BATCHES = (
    "Measure no more of a loader after this many of its batches; with --mode alternate, start no "
    "new pair of blocks then. The program goes on."
)
STOP_AFTER = "End the program, as Ctrl-C does, once the training loader has served N batches."
SET = (
    "Run with another setting of the training loader, such as num_workers=4; "
    "validation.num_workers=2 is for the other loaders. Can be given several times."
)
ALLOW_CHANGES = "Let --set change what is trained on: batch_size, drop_last, the order of samples."
TRACK = (
    "Pass throughput and waits on to this tracker while it trains: to the run that the program has "
    "begun there, or to one of its own."
)
ABORT_ON_HANG = "End the program where it hangs, with exit code 5."
MOST_TRAININGS = 4
ABORTED = 5
OUTPUT = "The folder of the logs, new or empty; by default one in loadeval-runs."


def run(  # noqa: PLR0913, PLR0917 - the options of the command
    command: Command,
    mode: Annotated[str, typer.Option("--mode", metavar="log|alternate", help=MODE)] = "log",
    batches: Annotated[int | None, typer.Option("--batches", metavar="N", help=BATCHES)] = None,
    stop_after: Annotated[
        int | None, typer.Option("--stop-after", metavar="N", min=1, help=STOP_AFTER)
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help=SET)
    ] = None,
    allow_changes: Annotated[bool, typer.Option("--allow-changes", help=ALLOW_CHANGES)] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help=OUTPUT)
    ] = None,
    track: Annotated[
        str | None, typer.Option("--track", metavar="mlflow|wandb|tensorboard", help=TRACK)
    ] = None,
    redact: Redact = False,
    hang_after: HangAfter = None,
    abort_on_hang: Annotated[bool, typer.Option("--abort-on-hang", help=ABORT_ON_HANG)] = False,
) -> None:
    """Run a command unchanged, and measure the loaders that its programs iterate.

    With --set it runs as if its author had changed these settings.

    The loader that is iterated with gradients on is the training loader; validation and other
    loaders get logs of their own. Works with python, torchrun, accelerate launch and scripts. All
    that loadeval says is on stderr.
    """
    if mode not in {"log", "alternate"}:
        raise typer.BadParameter(f"--mode is {mode!r}; expected log or alternate")
    if batches is not None and stop_after is not None and batches < stop_after:
        raise typer.BadParameter(
            f"--stop-after {stop_after} counts measured batches, of which --batches allows "
            f"{batches}; leave one of them out"
        )
    with errors_printed():
        run_settings = RunSettings(
            "",
            "alternate" if mode == "alternate" else "log",
            batches,
            redact,
            settings_in(settings or ()),
            allow_changes,
            track=track,
        )
        check(run_settings)
        name = "run" if redact else name_of(command)
        folder = new_folder(name, time.strftime("%Y%m%d-%H%M%S"), output)
    place = shown_path(folder)
    say(f"loadeval: logs in {place}; to follow them: loadeval watch {shlex.quote(place)}")
    most = batches or (stop_after if mode == "alternate" else None)
    run_settings = replace(run_settings, folder=str(folder), batches=most)
    hangs = HangTeller(folder, hang_after, redact=redact)
    ended = _run(command, run_settings, stop_after, hangs.poll, aborts=abort_on_hang)
    if ended.was_stopped:
        say(STOPPED.format(stop_after=stop_after))
    if ended.was_aborted:  # what its time went to was said
        remove_marks(folder)
        end_like(ended.code)
    try:
        _report(run_settings, folder, 0 if ended.was_stopped else ended.code)
    except LoadevalError as error:
        say(f"loadeval: {printable(error)}")
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the command has ended as it has
        say(f"loadeval: there is no report: {printable(in_words(error))}; the logs are in {place}")
    end_like(0 if ended.was_stopped else ended.code)


def _run(
    command: list[str],
    settings: RunSettings,
    stop_after: int | None,
    poll: Callable[[], bool],
    *,
    aborts: bool,
) -> Ended:
    def is_hanging() -> bool:
        return poll() and aborts

    try:
        ended = run_command(command, settings, stop_after, is_hanging=is_hanging)
    except CannotStartError as error:
        remove_marks(Path(settings.folder))
        say(f"Error: {printable(error)}")
        raise typer.Exit(error.code) from None
    if ended.was_aborted:
        say(HANG_ENDED)
    return replace(ended, code=ABORTED) if ended.was_aborted else ended


def _report(settings: RunSettings, folder: Path, code: int) -> None:
    """Print what the logs in `folder` say. Raises LoadevalError if one cannot be read."""
    if not folder.exists():
        say(LOGS_ARE_GONE.format(folder=folder))
        return
    why, what = why_nothing(folder, code)
    is_said = is_shown(folder)
    loaders = loaders_in(folder)
    remove_marks(folder)
    if not loaders:
        if not is_said:
            say(nothing_measured(why, what))
        return
    reports = [
        training_report
        for logs in trainings_in(folder)[:MOST_TRAININGS]
        for training_report in _reports_of(folder, logs)
    ]
    lines = launch_screen(
        [(logs[0].name, report) for logs, report in reports],
        loaders,
        _more(folder, reports, loaders[0][0].log),
        Console(stderr=True).width,
        alternates=settings.mode == "alternate",
        overrides=bool(settings.settings),
    )
    for line in lines:
        say(line)


def _reports_of(folder: Path, logs: list[Path]) -> list[tuple[list[Path], Report]]:
    """What is said of a training; of each rank by itself where they are of no one job."""
    try:
        return [(logs, report_of_training(logs, folder))]
    except UsageError:
        return [([log], report_of_training([log], folder)) for log in logs]


def _more(folder: Path, reports: Sequence[tuple[list[Path], Report]], first_log: str) -> Rows:
    """Where the logs are, and the commands that say more of each training."""
    short = shown_path(folder)
    more = [("logs", short)]
    if not reports:
        log = shlex.quote(str(Path(short) / first_log))
        return [*more, ("everything", f"loadeval compare {log} --full")]
    for logs, report in reports:
        names = [str(Path(short) / log.name) for log in logs]
        place = shlex.quote(short) if len(reports) == 1 else shlex.join(names)
        more += [
            *straggler_command(report),
            ("everything", f"loadeval compare {place} --full"),
            ("page", f"loadeval report {place}"),
        ]
    return more
