"""The `loadeval` command: one module for each of its subcommands."""

from __future__ import annotations

import atexit
import gc
from typing import Annotated

import typer

from loadeval.cli.attach import attach
from loadeval.cli.backends import backends
from loadeval.cli.compare import compare
from loadeval.cli.console import EXIT_CODES, escape_what_cannot_be_encoded
from loadeval.cli.demo import demo
from loadeval.cli.diagnose import diagnose
from loadeval.cli.doctor import doctor
from loadeval.cli.export import export
from loadeval.cli.report import report
from loadeval.cli.run import RUN_EXIT_CODES, run
from loadeval.cli.tune import tune
from loadeval.cli.watch import watch
from loadeval.cli.whatif import whatif
from loadeval.data.environment import own_version

app = typer.Typer(
    epilog=EXIT_CODES,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"loadeval {own_version()}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[  # noqa: ARG001 - typer hands it to its callback
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """How much faster would training be if data loading were free?"""
    escape_what_cannot_be_encoded()
    atexit.register(gc.freeze)  # to look for garbage at the end takes 0.13 s, and all ends anyway


# What follows the command's first word is the command's.
OPTIONS_FIRST = {"allow_interspersed_args": False}
app.command(epilog=RUN_EXIT_CODES, context_settings=OPTIONS_FIRST)(diagnose)
app.command(epilog=RUN_EXIT_CODES, context_settings=OPTIONS_FIRST)(run)
app.command(epilog=EXIT_CODES)(compare)
app.command(epilog=EXIT_CODES)(report)
app.command(epilog=EXIT_CODES)(whatif)
app.command(epilog=EXIT_CODES, context_settings=OPTIONS_FIRST)(tune)
for command in (attach, watch, backends, doctor, export, demo):
    app.command(epilog=EXIT_CODES)(command)
