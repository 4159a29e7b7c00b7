"""Commands, run in this process and beside it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
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


def imported_by(*commands: Sequence[object]) -> set[str]:
    """The packages that a process has imported when it ends the last of these commands."""
    script = (
        "import json, sys\nfrom loadeval.cli.main import app\n"
        "for arguments in json.loads(sys.argv[1]):\n"
        "  try: app(arguments, standalone_mode=False)\n  except SystemExit: pass\n"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    arguments = json.dumps([[str(word) for word in command] for command in commands])
    command = [sys.executable, "-c", script, arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())
