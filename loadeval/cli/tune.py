"""`loadeval tune`: the settings of a loader with which an unedited program trains fastest."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from loadeval.cli import console
from loadeval.launch.command import name_of
from loadeval.launch.folder import new_folder
from loadeval.launch.settings import RunSettings, check, settings_in
from loadeval.report.as_json import as_json as plain
from loadeval.report.text import show
from loadeval.tuning import DEFAULTS, tune_command

SET = "Run with another setting each time, such as num_workers=2. Can be given several times."
SPACE = "Values to choose from, the cheapest first: num_workers=2,4,8. Can be given several times."
ALLOW_CHANGES = (
    "Let --set and --space change what is trained on: batch_size, drop_last, the order of samples."
)
STOP_AFTER = "End each run after N batches; by default after some 5 s of training."
OUTPUT = "The folder of the logs and of what each run prints; by default one in loadeval-runs."


def tune(
    command: console.Command,
    fixed: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help=SET)
    ] = None,
    space: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE,...", help=SPACE)] = None,
    allow_changes: Annotated[bool, typer.Option("--allow-changes", help=ALLOW_CHANGES)] = False,
    stop_after: Annotated[int | None, typer.Option(metavar="N", min=1, help=STOP_AFTER)] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help=OUTPUT)
    ] = None,
    as_json: console.AsJson = False,
) -> None:
    """Find the settings with which an unedited program is fastest.

    Runs the command for a short while with each setting: once to see what happens inside the
    loader, and then the settings that are predicted to be fastest, four at most, in turns with the
    present ones. Ctrl-C ends it with what is known until then.
    """
    with console.errors_printed():
        of_runs = RunSettings("", settings=settings_in(fixed or ()), allow_changes=allow_changes)
        check(of_runs)
        choices: dict[str, list[Any]] = {}
        for text in space or ():
            name, _, values = text.partition("=")
            choices[name] = [settings_in([f"{name}={value}"])[name] for value in values.split(",")]
            for value in choices[name]:
                check(replace(of_runs, settings={name: value}))
        folder = new_folder(name_of(command), time.strftime("%Y%m%d-%H%M%S"), output)
        console.say(f"loadeval: logs, and what the runs print, in {console.shown_path(folder)}")
        of_runs = replace(of_runs, folder=str(folder))
        tuning = tune_command(command, of_runs, choices or DEFAULTS, stop_after, console.say)
    if as_json:
        console.print_json(plain(tuning))
    else:
        show(tuning.sections())
