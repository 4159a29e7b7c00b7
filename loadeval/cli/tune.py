"""`loadeval tune`: the settings with which training is fastest, of a loader or a program."""

from __future__ import annotations

import ast
from pathlib import Path
from shutil import which
from typing import Annotated, Any

import typer

from loadeval.analysis.predict.tuning import Stop
from loadeval.cli.console import (
    INTERRUPTED,
    AsJson,
    ctrl_c_exits,
    errors_printed,
    named,
    print_json,
    print_lines,
    screen_width,
)
from loadeval.cli.outputs import check_writable, is_page, say_written
from loadeval.cli.tune_program import tune_program
from loadeval.launch.settings import TuneOptions
from loadeval.report.formatting import printable
from loadeval.report.terminal.tuning import tuning_lines

MAKE = (
    "What to tune: a command that trains, after --; or a function that makes the loader, with "
    "settings by keyword, or a loader: module:make_loader. "
    "The working folder is searched for the module, as by python -m."
)
STEP = "The training step, called with each batch: module:step. Without it the loader alone counts."
SET = "A present setting, such as num_workers=2; as often as there are some."
SPACE = "Values to choose from: num_workers=2,4,8. Others are chosen by loadeval."
STOP_AFTER = "Of a command: end it once it is tuned, as Ctrl-C does."
WRITE = "Of a command: change its source, where the DataLoader is made."
ROUNDS = 4
OUTPUT = (
    "Write a page with all that was found, tune.html, or draw throughput against num_workers, as "
    "PNG, SVG or PDF by the extension: tune.png. May be given several times."
)


def tune(  # noqa: PLR0913 - an option for each setting
    target: Annotated[list[str], typer.Argument(metavar="MODULE:NAME | -- COMMAND", help=MAKE)],
    *,
    step: Annotated[str | None, typer.Option(metavar="MODULE:NAME", help=STEP)] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help=SET)
    ] = None,
    space: Annotated[
        list[str] | None, typer.Option("--space", metavar="NAME=VALUE,...", help=SPACE)
    ] = None,
    batches: Annotated[int, typer.Option(min=1, help="Batches to measure per setting.")] = 80,
    trials: Annotated[int, typer.Option(min=1, help="Settings to measure at most.")] = 6,
    output: Annotated[
        list[Path] | None, typer.Option("--output", "-o", metavar="FILE", help=OUTPUT)
    ] = None,
    stop_after: Annotated[
        str | None, typer.Option("--stop-after", metavar="tuned", help=STOP_AFTER)
    ] = None,
    write: Annotated[bool, typer.Option("--write", help=WRITE)] = False,
    as_json: AsJson = False,
) -> None:
    """Find the settings of a loader with which training is fastest.

    Predicts other settings from what happens inside the loader, then measures the best of them in
    turns with the present ones. With -- COMMAND it tunes the training loader of an unedited
    program while it trains: settings take turns within its epochs, and the rest is trained with
    the best. Ctrl-C ends it with what is known until then.
    """
    if stop_after not in {None, "tuned"}:
        raise typer.BadParameter(f"--stop-after is {printable(stop_after or '')!r}; expected tuned")
    if _is_command(target):
        if step or settings or output:
            raise typer.BadParameter(
                "--step, --set and --output are for MODULE:NAME; a command has its own step and "
                "settings"
            )
        options = TuneOptions(_space(space), batches, ROUNDS, trials, stop_after is not None)
        tune_program(target, options, write=write, as_json=as_json)
        return
    if stop_after or write:
        raise typer.BadParameter("--stop-after and --write are for a command: -- COMMAND")
    (make,) = target
    present = dict(_pair(text, "--set") for text in settings or [])
    files = output or []
    chosen = _space(space)
    with ctrl_c_exits(), errors_printed():
        for path in files:  # before it is measured for minutes
            check_writable(path)
        made, trained = named(make), None if step is None else named(step)
        from loadeval.tuning import tune as tuned  # noqa: PLC0415 - reads the machine

        tuning = tuned(
            made,
            trained,
            settings={name: _value(text) for name, text in present.items()},
            space=chosen,
            batches=batches,
            max_trials=trials,
        )
    if as_json:
        print_json(tuning.as_dict())
    else:
        print_lines(tuning_lines(tuning, screen_width()))
    for path in files:
        with errors_printed():
            written = tuning.page(path) if is_page(path) else tuning.plot(path)
        if not as_json:
            say_written(written)
    if tuning.stopped is Stop.INTERRUPTED:
        raise typer.Exit(INTERRUPTED)


def _is_command(target: list[str]) -> bool:
    """Whether it is a command, and not the name of a function in a module."""
    return len(target) > 1 or Path(target[0]).is_file() or which(target[0]) is not None


def _space(space: list[str] | None) -> dict[str, list[Any]]:
    pairs = [_pair(values, "--space") for values in space or []]
    return {name: _list(value) for name, value in pairs}


def _pair(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip().isidentifier():
        raise typer.BadParameter(
            f"{option} is {printable(text)!r}; expected a name and a value: num_workers=2"
        )
    return name.strip(), value


def _list(text: str) -> list[Any]:
    return [_value(item) for item in text.split(",")]


def _value(text: str) -> Any:
    """A number, True, False, None or a quoted text; other text is itself."""
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError):
        return text.strip()
