"""`loadeval run`: run a command, and measure the data loaders of its Python programs."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from loadeval.cli import console
from loadeval.cli.console import Command, say, shown_path
from loadeval.data.folder import (
    LoaderRecord,
    ProcessRecord,
    loaders_in,
    new_folder,
    trainings_in,
)
from loadeval.data.run import Run
from loadeval.errors import UsageError, in_words
from loadeval.launch.command import (
    IsEnough,
    ServedBatches,
    end_like,
    name_of,
    remove_marks,
    why_nothing,
)
from loadeval.launch.command import run as run_command
from loadeval.launch.hangs import HangWatch
from loadeval.launch.loadeval_inject import REFUSED_MARK
from loadeval.launch.settings import RunSettings, check, settings_in
from loadeval.launch.why_ended import why_ended
from loadeval.report import text
from loadeval.report.blocks import Section, Table, Text
from loadeval.report.build import Result
from loadeval.report.report import report_of_training
from loadeval.words import printable

EPILOG = (
    "Exit code: the command's own, also where a signal ended it; 0 where loadeval ended it, 5 "
    "where --abort-on-hang did. 126 and 127: it could not be started."
)
MODE = "Record waits, or the speed-up too."
BATCHES = "Measure no more after N batches of a loader."
STOP_AFTER = "End the program after N training batches."
SET = "Change a loader's setting: num_workers=4."
ALLOW_CHANGES = "Let that change batches, or their order."
OUTPUT = "The folder of the logs, new or empty."
TRACK = "Send figures to mlflow, wandb or tensorboard."
REDACT = "Hide paths, hosts, users and texts of errors."
ANNOTATE = "Make waits and steps NVTX ranges, for Nsight."
HANG_AFTER = "Look for a hang after so long; 0: never."
ABORT = "End the program where it hangs."
Set = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help=SET)]
AllowChanges = Annotated[bool, typer.Option("--allow-changes", help=ALLOW_CHANGES)]
Output = Annotated[Path | None, typer.Option("--output", "-o", metavar="DIR", help=OUTPUT)]
MOST_TRAININGS = 4
ABORTED = 5
NEARLY_WHOLE = 0.02
"""Batches to a step: where they are no whole number, the program or its last epoch was cut off."""


def run(  # noqa: PLR0913, PLR0917 - the options of the command
    command: Command,
    mode: Annotated[str, typer.Option(metavar="log|alternate", help=MODE)] = "log",
    batches: Annotated[int | None, typer.Option(metavar="N", help=BATCHES)] = None,
    stop_after: Annotated[int | None, typer.Option(metavar="N", min=1, help=STOP_AFTER)] = None,
    settings: Set = None,
    allow_changes: AllowChanges = False,
    output: Output = None,
    track: Annotated[str | None, typer.Option(metavar="TRACKER", help=TRACK)] = None,
    redact: Annotated[bool, typer.Option("--redact", help=REDACT)] = False,
    annotate: Annotated[bool, typer.Option("--annotate", help=ANNOTATE)] = False,
    hang_after: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0, help=HANG_AFTER)
    ] = None,
    abort_on_hang: Annotated[bool, typer.Option("--abort-on-hang", help=ABORT)] = False,
) -> None:
    """Run a program, and record how long it waits for data.

    The loader that is iterated with gradients on is the training loader; validation and other
    loaders get logs of their own. Works with python, torchrun, accelerate launch and scripts.
    loadeval prints on stderr only. What faster loading would give: loadeval diagnose.
    """
    if mode not in {"log", "alternate"}:
        raise typer.BadParameter(f"--mode is {mode!r}; expected log or alternate")
    if batches is not None and stop_after is not None and batches < stop_after:
        raise typer.BadParameter(
            f"--stop-after {stop_after} counts measured batches, of which --batches allows "
            f"{batches}; leave one of them out"
        )
    if batches is None and mode == "alternate":
        batches = stop_after
    options = {"mode": mode, "batches": batches, "redact": redact, "track": track}
    if annotate:
        options["annotate"] = "nvtx"
    of_run = RunSettings(options, settings_in(settings or ()), allow_changes)
    folder = folder_for(command, of_run, output)
    measure(
        command,
        of_run,
        folder,
        ServedBatches(folder, stop_after) if stop_after else None,
        hang_after_s=hang_after,
        abort_on_hang=abort_on_hang,
    )


def folder_for(command: Sequence[str], settings: RunSettings, output: Path | None) -> Path:
    """A new folder for the logs of a command, once its settings are checked.

    Raises UsageError or RunLogError.
    """
    check(settings)
    name = "run" if settings.options.get("redact") else name_of(command)
    return new_folder(name, time.strftime("%Y%m%d-%H%M%S"), output)


def measure(
    command: list[str],
    settings: RunSettings,
    folder: Path,
    is_enough: IsEnough | None,
    *,
    hang_after_s: float | None = None,
    abort_on_hang: bool = False,
    must_measure: bool = False,
) -> NoReturn:
    """Run a command, say what its logs say, and end as it has ended; with 0 where we ended it.

    Where it `must_measure`, and nothing was measured, with FAILED.
    """
    place = shown_path(folder)
    say(f"loadeval: logs in {place}; to follow them: loadeval watch {shlex.quote(place)}")
    hangs = HangWatch(folder, hang_after_s, redact=bool(settings.options.get("redact")))

    def is_over(recorded: Sequence[ProcessRecord]) -> bool:
        if is_enough is None or not is_enough(recorded):
            return False
        say("loadeval: enough is measured: ending the program, as Ctrl-C does")
        return True

    try:
        ended = run_command(
            command,
            settings,
            folder,
            is_enough and is_over,
            is_hanging=lambda: hangs.poll(say) and abort_on_hang,
        )
    except UsageError as error:
        remove_marks(folder)
        say(f"Error: {printable(error)}")
        raise typer.Exit(console.NOT_EXECUTABLE) from None
    if ended.was_aborted:  # what its time went to was said
        say("loadeval: ended the program, which hung, for --abort-on-hang")
        remove_marks(folder)
        end_like(ABORTED)
    code = 0 if ended.was_stopped else ended.code
    try:
        if not tell(settings, folder, code) and must_measure:
            code = code or console.FAILED
    except SystemExit:  # of rich, where nobody reads stderr any more
        end_like(code)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the command has ended as it has
        say(f"loadeval: there is no report: {printable(in_words(error))}; the logs are in {place}")
    end_like(code)


def tell(settings: RunSettings, folder: Path, code: int) -> bool:
    """Print what the logs in `folder` say of a command that ended with `code`.

    False if no loader served a batch. Raises LoadevalError if a log cannot be read, OSError if the
    folder is gone.
    """
    why, place = why_nothing(folder, code), Path(shown_path(folder))
    is_said = code == 1 and (folder / REFUSED_MARK).exists()  # in the program's last line
    loaders = loaders_in(folder)
    if error := why_ended(folder, [run for _, run in loaders]):
        say(printable(f"loadeval: {error}"))
    remove_marks(folder)
    if not loaders and not is_said and not error:
        say(why)
    if not loaders or sys.stderr is None:  # the program's descriptor 2 is closed
        return bool(loaders)
    trainings = [
        (logs, report_of_training(logs, folder)) for logs in trainings_in(folder)[:MOST_TRAININGS]
    ]
    for number, (logs, report) in enumerate(trainings, 1):
        named, head = replace(report, paths=(place,)), list[Section]()
        if len(trainings) > 1:
            title = f"Training {number} of {len(trainings)}: {logs[0].name}"
            head.append(Section(title, priority=0))
            named = replace(report, paths=tuple(place / log.name for log in logs))
        shown = [*head, *named.screen(named.commands())]
        text.show(shown, file=sys.stderr, height=console.SCREEN_LINES)
        say("")
    results = [report.result for _, report in trainings if report.result]
    notes = [Text(note) for note in _notes(settings, results, loaders)]
    text.show([Section("", [*notes, loaders_table(loaders)])], file=sys.stderr)
    say(f"\nLogs: {place}")
    return True


def _notes(
    settings: RunSettings,
    trainings: Sequence[Result],
    loaders: Sequence[tuple[LoaderRecord, Run]],
) -> list[str]:
    """What did not go as asked."""
    notes = []
    if not trainings:
        notes.append(
            "No training was seen: no data loader was iterated with gradients on, or none with "
            "optimizer steps between its batches. What was iterated was logged:"
        )
    if settings.options["mode"] == "alternate" and any(
        result.run.header.mode == "log" and not result.gap.ideal for result in trainings
    ):
        notes.append(
            "Logged, not alternated: this loader's state_dict would run ahead of the training, or "
            "another loader alternated at the same time. For the gain, wrap it: "
            "loadeval.LoaderEvaluator(loader, mode='replay', log_file='ideal.jsonl'), and compare: "
            "loadeval compare THIS.jsonl ideal.jsonl"
        )
    if settings.settings and not any(run.loader.overrides for _, run in loaders):
        notes.append(
            "The settings of --set reached no loader: none of those that were iterated was "
            "recognised in its role when its iterator was asked for"
        )
    return notes


def loaders_table(loaders: Sequence[tuple[LoaderRecord, Run]]) -> Table:
    """What each loader served, and how many optimizer steps were made of it."""
    rows: list[tuple[str, ...]] = []
    for record, run in loaders:
        steps = "none seen"
        if record.optimizer_steps:
            steps = f"{record.optimizer_steps:,}"
            each, samples = run.batches / record.optimizer_steps, run.steps.samples
            is_whole = round(each) >= 1 and abs(each - round(each)) < NEARLY_WHOLE
            if is_whole and (samples >= 0).all():
                steps += f" x {samples.mean() * round(each):.4g} samples"
        served = f"{run.batches:,}", f"{len(set(run.steps.epoch.tolist())):,}"
        overrides = (run.loader.overrides or {}).items()
        changed = ", ".join(f"{name}={value!r}" for name, value in overrides)
        rows.append((record.log, record.role, *served, steps, changed))
    head = ["loader", "role", "batches", "epochs", "optimizer steps", "set"]
    if not any(row[-1] for row in rows):
        head, rows = head[:-1], [row[:-1] for row in rows]
    return Table(head, rows)
