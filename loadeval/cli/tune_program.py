"""`loadeval tune -- COMMAND`: tunes the training loader of a program that nobody edited."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from loadeval.cli.console import errors_printed, print_json, say
from loadeval.errors import LoadevalError, in_words
from loadeval.launch.command import (
    CannotStartError,
    end_like,
    name_of,
    remove_marks,
    run,
    why_nothing,
)
from loadeval.launch.folder import new_folder
from loadeval.launch.settings import RunSettings
from loadeval.launch.tuned import RESULT
from loadeval.report.formatting import printable
from loadeval.report.tables import wrapped
from loadeval.report.wording import tuning as wording
from loadeval.report.wording.launch import nothing_measured
from loadeval.runlog.run_folder.processes import processes_in
from loadeval.tuning.change import changed, unified_diff

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loadeval.launch.settings import TuneOptions


def tune_program(command: list[str], options: TuneOptions, *, write: bool, as_json: bool) -> None:
    """Run `command`, tuning its training loader, and print what was found.

    With `as_json` on stdout, where else only the program writes. Ends as the command does; with
    exit code 0 where it was to be ended, and was.
    """
    width = Console(stderr=True).width
    with errors_printed():
        folder = new_folder(name_of(command), time.strftime("%Y%m%d-%H%M%S"))
    settings = RunSettings(str(folder), tune=replace(options, width=width))
    try:
        ended = run(command, settings)
    except CannotStartError as error:
        remove_marks(folder)
        say(f"Error: {printable(error)}")
        raise typer.Exit(error.code) from None
    result = _result(folder, ended.code)
    remove_marks(folder)
    tuning, lines = result.pop("tuning", {}), result.pop("lines", [])
    if tuning:
        result = _change(result["changes"], result["made_at"], write=write)
        lines += ["", *result.pop("lines")]
    else:
        lines = wrapped(wording.not_tuned(result["why_not"]), width)
    say("\n".join(["", *lines]))
    if as_json:
        print_json({**tuning, **result})
    end_like(0 if options.stops and tuning else ended.code)


def _result(folder: Path, code: int) -> dict[str, Any]:
    """What the program found, or `why_not`."""
    with suppress(OSError, ValueError):
        result: dict[str, Any] = json.loads((folder / RESULT).read_text(encoding="utf-8"))
        return result
    if any(process.loaders for process in processes_in(folder)):
        return {"why_not": wording.NO_STEPS}
    return {"why_not": nothing_measured(*why_nothing(folder, code))}


def _change(settings: Mapping[str, Any], place: str | None, *, write: bool) -> dict[str, Any]:
    """The change to the program: its `lines` on the screen, and what JSON says of it."""
    if not settings:
        return {"diff": None, "made_at": place, "lines": [wording.NOTHING_TO_CHANGE]}
    diff, why = None, wording.PLACE_UNKNOWN
    if place is not None:
        name, _, line = place.rpartition(":")
        file = Path(name)
        try:
            before = file.read_text(encoding="utf-8")
            after = changed(before, int(line), settings)
            diff = unified_diff(before, after, file)
            if write:
                file.write_text(after, encoding="utf-8")
        except LoadevalError as error:
            why = str(error)
        except (OSError, ValueError) as error:
            why = in_words(error)
    if diff is None:
        lines = wording.by_hand(settings, place, why)
    else:
        head = wording.WRITTEN if write else wording.APPLY
        lines = [head, "", *map(printable, diff.splitlines())]
    return {"diff": diff, "made_at": place, "lines": lines}
