"""The stacks of Python processes that run already, read from outside by py-spy.

py-spy is a program of its own, of the optional extra `attach`. It reads the memory of a process:
nothing is put into it, and it is not even paused.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from loadeval.errors import ProbeError

PROGRAM = "py-spy"
TIMEOUT_S = 10.0
"""A dump takes some 20 ms."""
LONGER = 3
"""py-spy counts the samples of a recording, which take longer or shorter as chance has it: it is
told so many times as long, and is stopped by whoever began it. It ends by itself if that one dies.
"""
NOT_INSTALLED, NOT_PERMITTED, GONE = "py-spy is not installed", "not permitted", "no such process"
NOT_PYTHON, FAILED = "not Python", "failed"
NO_STACKS = {
    NOT_INSTALLED: 'py-spy is not installed: pip install "py-spy>=0.4.2"',
    NOT_PERMITTED: (
        "reading the stacks of another process is not permitted here: use sudo, start the "
        "container with --cap-add SYS_PTRACE, or set sysctl kernel.yama.ptrace_scope=0"
    ),
    GONE: "the process ended before its stack was read",
    NOT_PYTHON: "the process runs no Python program",
    FAILED: "py-spy could not read its stacks; a newer one may: pip install -U py-spy",
}
"""Why the stacks of a process cannot be read, and the words for it."""
COMPLAINTS = {
    NOT_PERMITTED: r"os error 1\b|os error 13\b|Permission Denied",
    NOT_PYTHON: r"Failed to find (a )?python (version|interpreter)",
    GONE: r"os error 3\b|No such (file|process)|Check that the process is running",
}
"""By what py-spy says they are told apart; the first that matches."""
ERRORS = re.compile(r"Errors: (\d+)")
THREAD = re.compile(r'Thread (?P<tid>\d+)(?: "(?P<name>.*)")?$')
UNREADABLE = (OSError, ValueError, TypeError, KeyError, IndexError, subprocess.TimeoutExpired)
"""It cannot be started, does not answer, or prints something else than it does today."""


class StacksError(ProbeError):
    """The stacks of a process cannot be read; `problem`, a key of NO_STACKS, is why."""

    def __init__(self, problem: str) -> None:
        super().__init__(NO_STACKS[problem])
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Frame:
    """A function that has been called; `line` is where it is, None where that is not known.

    `variables` are its local ones, where they were asked for: name and what py-spy prints of it.
    """

    function: str
    file: str
    line: int | None
    variables: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ThreadStacks:
    """One thread at one moment or more, in their order; innermost frame first."""

    tid: int | None
    name: str
    stacks: Sequence[tuple[Frame, ...]]


@dataclass(frozen=True, slots=True)
class ProcessStacks:
    """The threads that run Python code of process `pid`; it could not be read `failed` times."""

    pid: int
    threads: Sequence[ThreadStacks]
    failed: int = 0

    @property
    def main(self) -> ThreadStacks | None:
        """The main thread: the one with the number of the process."""
        return next((thread for thread in self.threads if thread.tid == self.pid), None)


def py_spy() -> str:
    """The path of py-spy: beside this Python, or on PATH.

    Raises StacksError where there is none.
    """
    beside = Path(sys.executable).with_name(PROGRAM)
    path = str(beside) if os.access(beside, os.X_OK) else shutil.which(PROGRAM)
    if path is None:
        raise StacksError(NOT_INSTALLED)
    return path


def dump(pid: int) -> ProcessStacks:
    """The stacks of process `pid` now, with local variables. Raises StacksError without any.

    The process is not paused: a call that writes to a pipe, for one, would return early.
    """
    options = ["--json", "--full-filenames", "--locals", "--nonblocking"]
    command = [py_spy(), "dump", "--pid", str(pid), *options]
    try:
        done = subprocess.run(  # noqa: S603 - the program that was found, and a number
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        if done.returncode:
            raise StacksError(_problem_of(pid, done.stderr))
        threads = []
        for thread in json.loads(done.stdout):
            frames = tuple(
                Frame(
                    frame["name"],
                    frame["filename"],
                    frame["line"] or None,
                    tuple((each["name"], each["repr"]) for each in frame["locals"] or ()),
                )
                for frame in thread["frames"]
            )
            name = thread["thread_name"] or ""
            threads.append(ThreadStacks(thread["os_thread_id"], name, (frames,)))
    except UNREADABLE as error:
        raise StacksError(FAILED) from error
    return ProcessStacks(pid, threads)


class Recording:
    """py-spy, while it samples the stacks of one process at random moments.

    They are those of a Poisson process, `rate_hz` a second on average: nothing that is periodic in
    the training can fall in step with them. Takes some 0.5 ms of CPU time a sample, and 15 ms to
    begin.
    """

    def __init__(self, pid: int, rate_hz: int, longest_s: float) -> None:
        self._pid, self._problem = pid, FAILED
        self._process: subprocess.Popen[str] | None = None
        self._file = tempfile.NamedTemporaryFile(prefix="loadeval-", suffix=".json")  # noqa: SIM115 - it lives as long as this
        options = ["--rate", str(rate_hz), "--duration", str(math.ceil(longest_s * LONGER))]
        options += ["--idle", "--full-filenames", "--nonblocking"]
        options += ["--format", "speedscope", "--output", self._file.name]
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the program that was found, and numbers
                [py_spy(), "record", "--pid", str(pid), *options],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,  # Ctrl-C in the terminal is for whoever stops this
            )
        except StacksError as error:
            self._problem = error.problem
        except OSError:
            pass

    def interrupt(self) -> None:
        """Let it end, which takes until its next sample."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGINT)

    def stop(self) -> tuple[ProcessStacks | None, str | None]:
        """End it. Returns what it has read; or, where that is nothing, why."""
        self.interrupt()
        if self._process is None:
            return None, self._problem
        with self._file, self._process:
            try:
                said, complaint = self._process.communicate(timeout=TIMEOUT_S)
                content = Path(self._file.name).read_bytes()
                if not content:
                    return None, _problem_of(self._pid, complaint)
                failed = ERRORS.search(said + complaint)
                threads = list(_recorded(json.loads(content)))
            except UNREADABLE:
                self._process.kill()
                return None, FAILED
        return ProcessStacks(self._pid, threads, int(failed[1]) if failed else 0), None


def _recorded(content: dict[str, Any]) -> Iterator[ThreadStacks]:
    frames = [
        Frame(frame["name"], frame.get("file") or "", frame.get("line") or None)
        for frame in content["shared"]["frames"]
    ]
    for profile in content["profiles"]:
        thread = THREAD.match(profile["name"])
        if thread is None:
            raise ValueError(profile["name"])
        stacks = [tuple(frames[index] for index in stack[::-1]) for stack in profile["samples"]]
        yield ThreadStacks(int(thread["tid"]), thread["name"] or "", stacks)


def _problem_of(pid: int, complaint: str) -> str:
    for problem, pattern in COMPLAINTS.items():
        if re.search(pattern, complaint, re.IGNORECASE):
            return problem
    return FAILED if psutil.pid_exists(pid) else GONE
