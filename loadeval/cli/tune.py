"""`loadeval tune`: the settings of a loader with which training is fastest."""

from __future__ import annotations

import ast
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from loadeval.analysis.predict.tuning import Stop
from loadeval.cli.console import (
    INTERRUPTED,
    AsJson,
    ctrl_c_exits,
    errors_printed,
    print_json,
    print_lines,
    screen_width,
)
from loadeval.errors import LoadevalError
from loadeval.report.figure.figure import figure_path
from loadeval.report.formatting import printable
from loadeval.report.page.page import EXTENSION, check_replaceable
from loadeval.report.terminal.tuning import tuning_lines

MAKE = (
    "A function that makes the loader, with settings by keyword, or a loader: module:make_loader. "
    "The working folder is searched for the module, as by python -m."
)
STEP = "The training step, called with each batch: module:step. Without it the loader alone counts."
SET = "A present setting, such as num_workers=2; as often as there are some."
SPACE = "Values to choose from: num_workers=2,4,8. Others are chosen by loadeval."
OUTPUT = (
    "Write a page with all that was found, tune.html, or draw throughput against num_workers, as "
    "PNG, SVG or PDF by the extension: tune.png. May be given several times."
)


def tune(  # noqa: PLR0913 - an option for each setting
    make: Annotated[str, typer.Argument(metavar="MODULE:NAME", help=MAKE)],
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
    as_json: AsJson = False,
) -> None:
    """Find the settings of a loader with which training is fastest.

    Predicts other settings from what happens inside the loader, then measures the best of them in
    turns with the present ones. Ctrl-C ends it with what is known until then.
    """
    present = dict(_pair(text, "--set") for text in settings or [])
    files = output or []
    chosen = {
        name: _list(value) for name, value in (_pair(values, "--space") for values in space or [])
    }
    with ctrl_c_exits(), errors_printed():
        for path in files:  # before it is measured for minutes
            _check_writable(path)
        made, trained = _named(make), None if step is None else _named(step)
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
            written = tuning.page(path) if _is_page(path) else tuning.plot(path)
        if not as_json:
            what = "Page" if _is_page(path) else "Figure"
            typer.echo(f"\n{what} written to {printable(written)}")
    if tuning.stopped is Stop.INTERRUPTED:
        raise typer.Exit(INTERRUPTED)


def _is_page(path: Path) -> bool:
    return path.suffix.lower() == EXTENSION


def _check_writable(path: Path) -> None:
    """Raises UsageError for an extension that nothing is written in, or a file of others."""
    if _is_page(path):
        check_replaceable(path)
    else:
        figure_path(path)


def _named(place: str) -> Any:
    """What a module has under a name. Raises LoadevalError where there is no such thing."""
    module, _, name = place.partition(":")
    if not module or not name:
        raise typer.BadParameter(
            f"{printable(place)!r} names nothing; expected MODULE:NAME, such as train:make_loader"
        )
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        named: Any = import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise LoadevalError(
            f"there is no module {module!r} in {folder}, nor installed; expected MODULE:NAME"
        ) from error
    for part in name.split("."):
        if not hasattr(named, part):
            raise LoadevalError(f"module {module!r} has no {name!r}; expected MODULE:NAME")
        named = getattr(named, part)
    return named


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
