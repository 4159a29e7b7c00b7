"""Commands, run in this process and beside it, and the runs that they are given."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from typer.testing import CliRunner

from loadeval.cli.main import app
from loadeval.evaluator import LoaderEvaluator
from loadeval.testing import FakeClock, ScriptedLoader

if TYPE_CHECKING:
    from collections.abc import Callable

    Run = Callable[..., tuple[int, str, str]]

MS = 1_000_000
COMMAND = Path(sys.executable).with_name("loadeval")


def runner(*command: str, columns: int = 80) -> Run:
    """What gives exit code, stdout and stderr of a command, run in this process."""

    def run(*arguments: object) -> tuple[int, str, str]:
        words = [*command, *map(str, arguments)]
        done = CliRunner().invoke(app, words, env={"COLUMNS": str(columns)})
        return done.exit_code, done.stdout, done.stderr

    return run


def record(
    path: Path,
    mode: str = "log",
    *,
    epochs: int = 1,
    batches: int = 30,
    wait_ms: int = 30,
    **options: Any,
) -> Path:
    """The log of a run of four images a batch, with steps of 10 ms."""
    clock = FakeClock()
    loader = ScriptedLoader([np.zeros((4, 2))] * batches, [wait_ms * MS] * batches, clock)
    options = {"num_cached_batches": 2, "unit": "images", **options}
    with LoaderEvaluator(loader, mode, log_file=path, clock=clock, **options) as evaluator:
        for _ in range(epochs):
            for _ in evaluator:
                clock.advance(10 * MS)
    return path


def imported_by(*arguments: object) -> set[str]:
    """The packages that a process has imported when it ends a command."""
    script = (
        "import sys\nfrom loadeval.cli.main import app\n"
        "try: app(standalone_mode=False)\nexcept SystemExit: pass\n"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    command = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def in_a_terminal(*arguments: str, columns: int) -> str:
    """What the installed command shows there."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"COLUMNS": str(columns), "TERM": "xterm"}
    shown = b""
    with subprocess.Popen([COMMAND, *arguments], stdout=theirs, env=environment):
        os.close(theirs)
        while chunk := _read(ours):
            shown += chunk
    os.close(ours)
    return shown.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux' way to say that the other end is closed
        return b""
