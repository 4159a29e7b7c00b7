"""What every command shares: exit codes, arguments and printing."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from loadeval.data.folder import logs_in
from loadeval.errors import UsageError
from loadeval.words import printable

FAILED = 1
ABOVE_LIMIT = 3
UNDECIDED = 4
NOT_EXECUTABLE, NOT_FOUND = 126, 127
"""A shell gives these codes where a command cannot be started."""
INTERRUPTED = 130
"""And this one, 128 + SIGINT, where Ctrl-C ended it."""
SCREEN_LINES = 24
LOOK_SHARE = 20
"""Between two looks at a run that goes on there is so many times as long as one takes."""
FIGURE = "Also draw it: a .png, .svg or .pdf."
COMMAND = "What to run, as without loadeval."
EXIT_CODES = "Exit codes: 0 done; 1 failed; 2 wrong usage."


def _can_run(command: list[str]) -> list[str]:
    """The command; exits with a shell's code where there is no such program."""
    program = command[0]
    if shutil.which(program) is None:
        is_there = os.sep in program and Path(program).exists()
        why, script = "Permission denied" if is_there else "No such file or directory", "train.py"
        if program.endswith(".py"):
            why, script = "a script needs a Python", program
        expected = f"expected a command as in a shell, such as -- python {script}"
        say(printable(f"Error: cannot run {program}: {why}; {expected}"))
        raise typer.Exit(NOT_EXECUTABLE if is_there else NOT_FOUND)
    return command


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead.")]
Figure = Annotated[Path | None, typer.Option("--output", "-o", metavar="FIGURE", help=FIGURE)]
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


def log_at(path: Path) -> Path:
    """The log at `path`, or the one in that folder. Raises UsageError where it has several."""
    log, *others = logs_in(path) if path.is_dir() else [path]
    if others:
        raise UsageError(f"{path} has {1 + len(others)} run logs; give one, such as {log}")
    return log
