"""Runs programs in forks of a process that has imported loadeval: each starts within 10 ms."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
MODES = ("log", *(pytest.param(mode, marks=pytest.mark.check) for mode in ("alternate", "replay")))
"""Each mode; `make test` tries one."""
PREAMBLE = """
import os, sys, threading, time, warnings
from loadeval import LoaderEvaluator
MODE = {mode!r}
def measured(loader, **options):
    if MODE is None:
        return loader
    if MODE == "replay":
        options = {{"num_cached_batches": 3, **options}}
    return LoaderEvaluator(loader, MODE, **{{"log_file": "run.jsonl", **options}})
def epoch(batches, step_s=0.002):
    "One epoch, as a training reads it; what it was given."
    seen = []
    for batch in batches:
        seen.append(batch)
        time.sleep(step_s)
    return seen
class Loader:
    def __init__(self, batches=40, wait_s=0.0005):
        self.batches, self.wait_s = batches, wait_s
    def __len__(self):
        return self.batches
    def __iter__(self):
        for number in range(self.batches):
            time.sleep(self.wait_s)
            yield number
"""
LOOP = """
import json, os, sys
from loadeval import LoaderEvaluator
from loadeval.probes import NAMES, probes_named
from loadeval.data.environment import describe_environment
import multiprocessing.pool, psutil, loadeval.evaluator
describe_environment(), probes_named(NAMES, threads=True)  # what takes time at first
def main():
    for line in sys.stdin:
        asked = json.loads(line)
        if "wait" in asked:
            _, status = os.waitpid(asked["wait"], 0)
            answer = os.waitstatus_to_exitcode(status)
        else:
            pid = os.fork()
            if pid == 0:
                return asked
            answer = pid
        print(json.dumps([asked["number"], answer]), flush=True)
asked = main()
if asked is not None:
    os.chdir(asked["folder"])
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    for number, name in ((1, "out"), (2, "err")):
        file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        os.dup2(file, number)
        os.close(file)
    sys.argv = ["program.py"]
    exec(compile(asked["code"], "program.py", "exec"), {"__name__": "__main__"})
"""


@dataclass(frozen=True)
class Ended:
    """How a program ended, what it printed, and where."""

    code: int
    out: str
    err: str
    folder: Path

    @property
    def warnings(self) -> list[str]:
        """What loadeval warned of."""
        return [line for line in self.err.splitlines() if "LoadevalWarning: " in line]


class Program:
    """One that runs."""

    def __init__(self, zygote: Zygote, pid: int, folder: Path) -> None:
        self.pid = pid
        self.folder = folder
        self._zygote = zygote

    def send(self, number: int) -> None:
        os.kill(self.pid, number)

    def prints(self, text: str) -> None:
        """Wait until it has printed `text`."""
        deadline = time.monotonic() + 60
        while text not in (self.folder / "out").read_text():
            assert time.monotonic() < deadline, (self.folder / "err").read_text()
            time.sleep(0.005)

    def ended(self) -> Ended:
        """Wait for its end."""
        code = self._zygote.ask(wait=self.pid)
        out, err = ((self.folder / name).read_text() for name in ("out", "err"))
        return Ended(code, out, err, self.folder)


class Zygote:
    """The process that forks; another one once that was killed, as tests do that count children."""

    def __init__(self) -> None:
        self._process = self._started()
        self._plain: dict[str, Ended] = {}
        self._asking = Lock()
        self._questions = 0

    def _started(self) -> subprocess.Popen[str]:
        here = os.pathsep.join([str(ROOT), str(ROOT / "adapters")])
        variables = {**os.environ, "PYTHONPATH": here, "OMP_NUM_THREADS": "1"}
        variables["OPENBLAS_NUM_THREADS"] = "1"
        return subprocess.Popen(
            [sys.executable, "-c", LOOP],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=variables,
            text=True,
        )

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        with self._process as process:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(60)

    def ask(self, **question: Any) -> int:
        with self._asking:
            if self._process.poll() is not None:
                self._end()
                self._process = self._started()
            stdin, stdout = self._process.stdin, self._process.stdout
            assert stdin is not None
            assert stdout is not None
            self._questions += 1
            stdin.write(json.dumps({**question, "number": self._questions}) + "\n")
            stdin.flush()
            number, answer = json.loads(stdout.readline())
            # A number of another question, taken for a process, would be killed.
            assert number == self._questions
        return int(answer)

    def start(self, code: str, folder: Path, mode: str | None = "log") -> Program:
        """Start `code` in `folder`; `measured(loader)` is in `mode`, or bare where that is None."""
        folder.mkdir(exist_ok=True)
        for name in ("out", "err"):
            (folder / name).touch()
        pid = self.ask(code=PREAMBLE.format(mode=mode) + code, folder=str(folder))
        return Program(self, pid, folder)

    def run(self, code: str, folder: Path, mode: str | None = "log") -> Ended:
        return self.start(code, folder, mode).ended()

    def run_plain(self, code: str, folder: Path) -> Ended:
        """The same without loadeval, once for all tests."""
        if code not in self._plain:
            self._plain[code] = self.run(code, folder / "plain", None)
        return self._plain[code]

    def check(self, code: str, folder: Path, mode: str = "log", most_warnings: int = 0) -> Ended:
        """What comes of `code`, which is to end and to print as it does without loadeval."""
        plain, ended = self.run_plain(code, folder), self.run(code, folder / mode, mode)
        assert (ended.code, ended.out) == (plain.code, plain.out), ended.err
        assert len(ended.warnings) <= most_warnings, ended.err
        return ended


def kill(program: Program) -> None:
    """End it at once, as kill -9 does."""
    program.send(signal.SIGKILL)
    program.ended()
