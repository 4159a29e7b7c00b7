"""Runs commands with `loadeval run`, in a folder of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from loadeval import Run, read_run
from loadeval.data.folder import LoaderRecord, ProcessRecord, processes_in
from tests.launch.installing import uninstall

Launch = Callable[..., "Launched"]

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("program.py")
COMMANDS = {"run", "diagnose", "tune", "watch", "report"}
LOADEVAL = ("-c", "from loadeval.cli.main import app; app(prog_name='loadeval')")


@dataclass(frozen=True)
class Launched:
    """How a command ended, what it said, and its logs."""

    code: int
    out: str
    err: str
    folder: Path

    @property
    def warnings(self) -> list[str]:
        """What was said of ours while the command ran."""
        lines = self.err.splitlines()
        return [line for line in lines if "LoadevalWarning: " in line or "not measured (" in line]

    @property
    def processes(self) -> list[ProcessRecord]:
        return processes_in(self.folder) if self.folder.exists() else []

    @property
    def main(self) -> LoaderRecord:
        """The training loader of the only process."""
        (process,) = self.processes
        assert process.main is not None
        return process.main

    def run(self, log: str = "rank0.jsonl") -> Run:
        return read_run(self.folder / log)

    @property
    def batches(self) -> dict[str, int]:
        """How many each log has."""
        return {path.name: read_run(path).batches for path in sorted(self.folder.glob("*.jsonl"))}


def environment() -> dict[str, str]:
    """One in which programs find loadeval, and `python` is the one that runs the tests."""
    here = os.pathsep.join([str(ROOT), str(ROOT / "adapters")])
    own = {name: value for name, value in os.environ.items() if name not in {"RANK", "WORLD_SIZE"}}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**own, "PATH": path, "PYTHONPATH": here, "OMP_NUM_THREADS": "1", "COLUMNS": "80"}


def launch_command(folder: Path, *options: str) -> list[str]:
    return [sys.executable, *LOADEVAL, "run", "--output", str(folder), *options, "--"]


def ran(
    folder: Path, *words: object, stdin: str = "", timeout_s: float = 550
) -> subprocess.CompletedProcess[str]:
    """A command that was run in `folder`, of loadeval if its first word is one of COMMANDS."""
    ours = (sys.executable, *LOADEVAL) if words[0] in COMMANDS else ()
    return subprocess.run(
        [*ours, *map(str, words)],
        cwd=folder,
        env=environment(),
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )


def launched(
    tmp_path: Path, command: Sequence[str], *options: str, stdin: str = "", timeout_s: float = 100
) -> Launched:
    """What comes of `command`, run with `loadeval run` and these options."""
    folder = tmp_path / "logs"
    words = [*launch_command(folder, *options), *command]
    done = ran(tmp_path, *words, stdin=stdin, timeout_s=timeout_s)
    return Launched(done.returncode, done.stdout, done.stderr, folder)


@pytest.fixture(autouse=True)
def _uninstalled() -> Iterator[None]:
    yield
    uninstall()


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    """Runs a command with `loadeval run`."""
    return partial(launched, tmp_path)
