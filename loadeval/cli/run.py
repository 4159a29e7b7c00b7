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
from loadeval.cli.hangs import HangAfter, HangTeller
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
from loadeval.launch.folder import TrainingLogs, new_folder, trainings_in
from loadeval.launch.refused import is_shown
from loadeval.launch.settings import RunSettings, check, settings_in
from loadeval.probes.page_cache import drop, files_below
from loadeval.report.formatting import printable
from loadeval.report.terminal.launch import launch_screen
from loadeval.report.wording.hangs import ABORTED as HANG_ENDED
from loadeval.report.wording.launch import LOGS_ARE_GONE, STOPPED, nothing_measured
from loadeval.report.wording.protocol import dropped_in_words
from loadeval.runlog.log_file.reader import read_run
from loadeval.runlog.run_folder.processes import processes_in

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loadeval.analysis.report import Report
    from loadeval.launch.command import Ended
    from loadeval.report.tables import Rows
    from loadeval.runlog.model import Mode, Run
    from loadeval.runlog.run_folder.processes import LoaderRecord

RUN_EXIT_CODES = (
    "Exit code: the command's own, also where a signal ended it; 0 where --stop-after ended it, "
    "5 where --abort-on-hang did. 126 and 127: it could not be started."
)
MODE = (
    "log: record what was waited. alternate: real and ideal loading in turn, which gives the "
    "verdict."
)
REPLAY = "Run the command twice: as it is, and then with a few batches served over and over."
BATCHES = "With --mode alternate: start no new pair of blocks after this many batches."
STOP_AFTER = "End the program, as Ctrl-C does, once the training loader has served N batches."
SET = (
    "Run with another setting of the training loader, such as num_workers=4; "
    "validation.num_workers=2 is for the other loaders. Can be given several times."
)
THREADS = "Run with so many threads of torch in the process that trains."
ALLOW_CHANGES = "Let --set change what is trained on: batch_size, drop_last, the order of samples."
TRACK = (
    "Pass throughput and waits on to this tracker while it trains, and the page at the end: to the "
    "run that the program has begun there, or to one of its own."
)
ABORT_ON_HANG = "End the program where it hangs, with exit code 5."
MOST_TRAININGS = 4
ABORTED = 5
COLD = (
    "Drop the files in this folder from the page cache first, so that they are read from the disk. "
    "Can be given several times."
)
OUTPUT = "The folder of the logs, new or empty; by default one in loadeval-runs."


def run(  # noqa: PLR0913, PLR0917 - the options of the command
    command: Command,
    mode: Annotated[str, typer.Option("--mode", metavar="log|alternate", help=MODE)] = "log",
    batches: Annotated[int | None, typer.Option("--batches", metavar="N", help=BATCHES)] = None,
    replay: Annotated[bool, typer.Option("--replay", help=REPLAY)] = False,
    stop_after: Annotated[
        int | None, typer.Option("--stop-after", metavar="N", min=1, help=STOP_AFTER)
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help=SET)
    ] = None,
    threads: Annotated[
        int | None, typer.Option("--threads", metavar="N", min=1, help=THREADS)
    ] = None,
    allow_changes: Annotated[bool, typer.Option("--allow-changes", help=ALLOW_CHANGES)] = False,
    cold: Annotated[list[Path] | None, typer.Option("--cold", metavar="DIR", help=COLD)] = None,
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

    With --set and --threads it runs as if its author had changed these settings.

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
    if batches is not None and mode != "alternate":
        raise typer.BadParameter(
            "--batches limits an alternating run: pass --mode alternate, or omit it"
        )
    first: Mode = "alternate" if mode == "alternate" else "log"
    with errors_printed():
        run_settings = RunSettings(
            "",
            first,
            batches,
            redact,
            settings_in(settings or ()),
            threads,
            allow_changes,
            track=track,
        )
        check(run_settings)
        _drop(cold or ())
        name = "run" if redact else name_of(command)
        folder = new_folder(name, time.strftime("%Y%m%d-%H%M%S"), output)
    place = shown_path(folder)
    say(f"loadeval: logs in {place}; to follow them: loadeval watch {shlex.quote(place)}")
    modes: list[Mode] = [first, "replay"] if replay else [first]
    for mode_of_run in modes:
        most = (batches or stop_after) if mode_of_run == "alternate" else None
        of_run = replace(run_settings, folder=str(folder), mode=mode_of_run, batches=most)
        hangs = HangTeller(folder, hang_after, redact=redact, replayed=bool(of_run.suffix))
        ended = _run(command, of_run, stop_after, hangs.poll, aborts=abort_on_hang)
        if ended.was_stopped:
            say(STOPPED.format(stop_after=stop_after))
        elif ended.code:
            break
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


def _drop(folders: Sequence[Path]) -> None:
    """Drop the files below from the page cache, and say so. Raises UsageError."""
    if folders:
        say(f"loadeval: {dropped_in_words(drop(files_below(folders)))}")


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
    loaders = _loaders(folder)
    remove_marks(folder)
    if not loaders:
        if not is_said:
            say(nothing_measured(why, what))
        return
    trainings = trainings_in(folder)[:MOST_TRAININGS]
    reports = [
        training_report
        for training in trainings
        for training_report in _reports_of(folder, training)
    ]
    lines = launch_screen(
        [(training.logs[0], report) for training, report in reports],
        loaders,
        _more(folder, reports, loaders[0][0].log, " --redact" if settings.redact else ""),
        Console(stderr=True).width,
        alternates=settings.mode == "alternate",
        overrides=bool(settings.settings) or settings.threads is not None,
    )
    for line in lines:
        say(line)


def _reports_of(folder: Path, training: TrainingLogs) -> list[tuple[TrainingLogs, Report]]:
    """What is said of a training; of each rank by itself where they are of no one job."""
    logs = [folder / log for log in training.logs]
    replayed = [folder / log for log in training.replayed]
    try:
        return [(training, report_of_training(logs, replayed, folder))]
    except UsageError:
        alone = (*training.logs, *training.replayed)
        return [
            (TrainingLogs((log,)), report_of_training([folder / log], [], folder)) for log in alone
        ]


def _more(
    folder: Path, reports: Sequence[tuple[TrainingLogs, Report]], first_log: str, redact: str
) -> Rows:
    """Where the logs are, and the commands that say more of each training."""
    short = shown_path(folder)
    more = [("logs", short)]
    if not reports:
        log = shlex.quote(str(Path(short) / first_log))
        return [*more, ("everything", f"loadeval show {log} --full")]
    for training, report in reports:
        logs = [str(Path(short) / log) for log in (*training.logs, *training.replayed)]
        place = shlex.quote(short) if len(reports) == 1 else shlex.join(logs)
        more += [
            *straggler_command(report),
            ("everything", f"loadeval {_command_for(report)} {place} --full"),
            ("page", f"loadeval report {place}{redact}"),
        ]
    return more


def _command_for(report: Report) -> str:
    """The command that says all of it: the verdict is of `compare`."""
    return "show" if report.comparison is None else "compare"


def _loaders(folder: Path) -> list[tuple[LoaderRecord, Run]]:
    """The loaders that served something, of each process the training loader first."""
    served: list[tuple[LoaderRecord, Run]] = []
    for replayed in (False, True):
        for process in processes_in(folder, replayed=replayed):
            main = process.main
            first = sorted(process.loaders, key=lambda record: record is not main)
            runs = ((record, read_run(folder / record.log)) for record in first)
            served += [(record, run) for record, run in runs if run.batches]
    return served
