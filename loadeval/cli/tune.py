"""`loadeval tune`: the settings with which an unedited program trains fastest."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import typer

from loadeval.cli import run
from loadeval.cli.console import AsJson, Command, print_json, say, shown_path
from loadeval.launch.settings import RunSettings, check, settings_in, value_in
from loadeval.report.as_json import as_json
from loadeval.report.text import show
from loadeval.tuning import tune_command

SPACE = "Values to try, the cheapest first: num_workers=2,4."
STOP_AFTER = "End each run after N batches, not some 5 s."


def tune(
    command: Command,
    fixed: run.Set = None,
    space: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE,...", help=SPACE)] = None,
    allow_changes: run.AllowChanges = False,
    stop_after: Annotated[int | None, typer.Option(metavar="N", min=1, help=STOP_AFTER)] = None,
    output: run.Output = None,
    json: AsJson = False,
) -> None:
    """Find the settings with which an unedited program is fastest.

    Runs the command for a short while with each setting: once to see what happens inside the
    loader, and then the settings that are predicted to be fastest, four at most, alternating with
    the present ones. Ctrl-C ends it with what is known until then.
    """
    settings = RunSettings(settings=settings_in(fixed or ()), allow_changes=allow_changes)
    values: dict[str, list[Any]] = {}
    for word in space or ():
        name, _, texts = word.partition("=")
        values[name] = list(map(value_in, texts.split(",")))
        for value in values[name]:
            check(replace(settings, settings={name: value}))
    folder = run.folder_for(command, settings, output)
    say(f"loadeval: logs in {shown_path(folder)}")
    result = tune_command(command, settings, folder, values, stop_after, say)
    print_json(as_json(result)) if json else show(result.sections())
