"""The `loadeval` command: one module for each of its subcommands, imported when it is asked for."""

from __future__ import annotations

import atexit
import errno
import gc
import io
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
import typer.core
import typer.main

from loadeval.cli.console import EXIT_CODES, FAILED, INTERRUPTED, say
from loadeval.errors import LoadevalError
from loadeval.words import printable

COMMANDS = (
    *("diagnose", "run", "compare", "report", "whatif", "tune", "attach", "watch", "backends"),
    *("doctor", "export", "demo"),
)
"""In the order of the help."""
OTHERS = ("diagnose", "run", "tune")
"""They run a command: what follows its first word is that command's."""
LOOKS: dict[str, Any] = {
    "add_completion": False,
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
}


class Commands(typer.core.TyperGroup):
    """Imports a command's module when it, or the help of all, is asked for.

    Its types are those of the click that typer has: its own, or the package, by its version.
    """

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - click's
        """Their names."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - click's
        """The command of this name."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"loadeval.cli.{cmd_name}")
        alone = typer.Typer(**LOOKS)
        options = {"allow_interspersed_args": cmd_name not in OTHERS}
        epilog = getattr(module, "EPILOG", EXIT_CODES)
        alone.command(cmd_name, epilog=epilog, context_settings=options)(getattr(module, cmd_name))
        return typer.main.get_command(alone)

    def invoke(self, ctx: Any) -> Any:
        """Run a command, which an error of loadeval's ends in one line on stderr, and Ctrl-C."""
        try:
            return super().invoke(ctx)
        except LoadevalError as error:
            typer.echo(f"Error: {printable(error)}", err=True)
            raise typer.Exit(FAILED) from None
        except OSError as error:  # what is printed into a file fills a disk
            if error.errno != errno.ENOSPC:
                raise
            say(f"Error: {error.strerror}")
            raise typer.Exit(FAILED) from None
        except KeyboardInterrupt:
            say("Interrupted.")
            raise typer.Exit(INTERRUPTED) from None


app = typer.Typer(cls=Commands, epilog=EXIT_CODES, no_args_is_help=True, **LOOKS)


def _version(asked: bool) -> None:
    if asked:
        # Importing importlib.metadata takes time.
        from loadeval.data.environment import installed_version  # noqa: PLC0415

        typer.echo(f"loadeval {installed_version('loadeval') or '(not installed)'}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[  # noqa: ARG001 - typer hands it to its callback
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """How much faster would training be if data loading were free?"""
    for stream in (sys.stdout, sys.stderr):  # what their encoding does not have is escaped
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    atexit.register(gc.freeze)  # to look for garbage at the end takes 0.13 s, and all ends anyway
