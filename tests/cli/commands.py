"""Commands, run in this process and beside it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from typer.testing import CliRunner

from loadeval.cli.main import app

Run = Callable[..., tuple[int, str, str]]

COMMAND = Path(sys.executable).with_name("loadeval")


def runner(*command: str, columns: int = 80) -> Run:
    """What gives exit code, stdout and stderr of a command, run in this process."""

    def run(*arguments: object) -> tuple[int, str, str]:
        words = [*command, *map(str, arguments)]
        done = CliRunner().invoke(app, words, env={"COLUMNS": str(columns)})
        return done.exit_code, done.stdout, done.stderr

    return run
