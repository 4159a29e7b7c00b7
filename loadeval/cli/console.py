"""What every command shares: exit codes, printing and errors."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from loadeval.errors import LoadevalError
from loadeval.words import printable

REDACT = (
    "Put placeholders in place of paths, host and user names, names of runs and texts of "
    "exceptions."
)
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead.")]
COMMAND = "What to run, as you would without loadeval. Write -- before it."
Redact = Annotated[bool, typer.Option("--redact", help=REDACT)]
FAILED = 1
ABOVE_LIMIT = 3
UNDECIDED = 4
INTERRUPTED = 130
"""A shell gives this code, 128 + SIGINT, to a process that Ctrl-C ended."""
EXIT_CODES = (
    "Exit codes: 0 done; 1 a file could not be read or written, or the runs cannot be compared; "
    "2 wrong usage. With a limit: 3 loss above it (whole 95% CI); 4 undecided."
)


def _can_run(command: list[str]) -> list[str]:
    """The same; exits with a shell's code where there is no such program."""
    program = command[0]
    if shutil.which(program) is None:
        is_there = os.sep in program and Path(program).exists()
        code, error = (126, errno.EACCES) if is_there else (127, errno.ENOENT)
        why = os.strerror(error)
        if program.endswith(".py"):
            why = f"a script needs a Python; expected: -- python {program}"
        say(f"Error: cannot run {printable(program)}: {printable(why)}")
        raise typer.Exit(code)
    return command


Command = Annotated[
    list[str], typer.Argument(metavar="-- COMMAND...", help=COMMAND, callback=_can_run)
]


def new_console() -> Console:
    """A console that prints text as it is; it has 80 columns where nothing tells how many."""
    return Console(highlight=False, markup=False, emoji=False)


def print_json(content: Any) -> None:
    """Print `content` as JSON."""
    typer.echo(json.dumps(content, indent=2))


def say(line: str) -> None:
    """Print `line` on stderr, if it can be: stdout may be a command's."""
    with suppress(OSError, ValueError):
        typer.echo(line, err=True)


def shown_path(path: Path) -> str:
    """`path` as it is shortest from where we are."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):  # the folder that we are in may be gone
        return str(path)


@contextmanager
def ctrl_c_exits() -> Iterator[None]:
    """Exit with INTERRUPTED where Ctrl-C ends what is done."""
    try:
        yield
    except KeyboardInterrupt:
        say("Interrupted.")
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def errors_printed() -> Iterator[None]:
    """Print an error of loadeval's in one line on stderr, and exit with FAILED."""
    try:
        yield
    except LoadevalError as error:
        typer.echo(f"Error: {printable(error)}", err=True)
        raise typer.Exit(FAILED) from None


def escape_what_cannot_be_encoded() -> None:
    """Print a character that stdout's encoding does not have as its escape."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
