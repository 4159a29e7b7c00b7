"""The stacks of Python processes that run already, read from outside by py-spy.

py-spy is a program of its own, of the optional extra `attach`. It reads the memory of a process:
nothing is put into it, and with `nonblocking` it is not even paused.
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
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from loadeval.errors import ProbeError

PROGRAM = "py-spy"
DUMP_TIMEOUT_S = 10.0
"""A dump takes some 20 ms; one with native frames, which reads symbols, half a second."""
STOP_TIMEOUT_S = 10.0
LONGER = 3
"""py-spy counts the samples of a recording, which take longer or shorter as chance has it: it is
told so many times as long, and is stopped by whoever began it. It ends by itself if that one dies.
"""
REFUSED = re.compile(r"os error 1\b|os error 13\b|Permission Denied", re.IGNORECASE)
GONE = re.compile(r"os error 3\b|No such (file|process)|Check that the process is running")
OTHER_PYTHON = re.compile(r"unsupported version of python", re.IGNORECASE)
NOT_PYTHON = re.compile(r"Failed to find (a )?python (version|interpreter)", re.IGNORECASE)
ERRORS = re.compile(r"Errors: (\d+)")
THREAD = re.compile(r'Thread (?P<tid>\d+)(?: "(?P<name>.*)")?$')


class StackProblem(Enum):
    """Why the stacks of a process cannot be read."""

    NOT_INSTALLED = "py-spy is not installed"
    NOT_PERMITTED = "not permitted"
    GONE = "no such process"
    NOT_PYTHON = "not Python"
    UNSUPPORTED_PYTHON = "unsupported Python"
    TIMEOUT = "timeout"
    FAILED = "failed"


class StacksError(ProbeError):
    """The stacks of a process cannot be read; `problem` is why."""

    def __init__(self, problem: StackProblem, message: str) -> None:
        super().__init__(message)
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Frame:
    """A function that has been called; `line` is where it is, None where that is not known.

    A function of compiled code is `native`, and its `file` is the library. `variables` are its
    local ones, where they were asked for: name and what py-spy prints of the value.
    """

    function: str
    file: str
    line: int | None
    native: bool = False
    variables: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ThreadStack:
    """One thread: `tid` is its number in the system, its frames begin with the innermost."""

    tid: int | None
    name: str
    frames: tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class ProcessStacks:
    """The threads of process `pid` that run Python code, at one moment."""

    pid: int
    threads: tuple[ThreadStack, ...]

    @property
    def main(self) -> ThreadStack | None:
        """The main thread: the one with the number of the process."""
        return next((thread for thread in self.threads if thread.tid == self.pid), None)


@dataclass(frozen=True, slots=True)
class ThreadSamples:
    """The stacks of one thread at random moments, in their order; innermost frame first."""

    tid: int
    name: str
    stacks: tuple[tuple[Frame, ...], ...]


@dataclass(frozen=True, slots=True)
class ProcessSamples:
    """The threads of process `pid` at random moments; at `failed` others it could not be read."""

    pid: int
    threads: tuple[ThreadSamples, ...]
    failed: int


def py_spy() -> str:
    """The path of py-spy: beside this Python, or on PATH.

    Raises StacksError where there is none.
    """
    beside = Path(sys.executable).with_name(PROGRAM)
    path = str(beside) if os.access(beside, os.X_OK) else shutil.which(PROGRAM)
    if path is None:
        raise StacksError(
            StackProblem.NOT_INSTALLED,
            'stacks are read by py-spy, which is not installed: pip install "loadeval[attach]"',
        )
    return path


def dump(
    pid: int,
    *,
    nonblocking: bool = False,
    native: bool = False,
    variables: bool = False,
    timeout_s: float = DUMP_TIMEOUT_S,
) -> ProcessStacks:
    """The stacks of process `pid` now.

    The process is paused meanwhile, for a millisecond or some; not if `nonblocking`, where frames
    that change meanwhile may be wrong. With `native` the functions of compiled code are among the
    frames, which py-spy cannot do without a pause, with `variables` the local ones of each.
    Raises StacksError where stacks cannot be read.
    """
    command = [py_spy(), "dump", "--json", "--full-filenames", "--pid", str(pid)]
    command += ["--nonblocking"] * (nonblocking and not native) + ["--native"] * native
    command += ["--locals"] * variables
    try:
        done = subprocess.run(  # noqa: S603 - the program that was found, and a number
            command, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise StacksError(
            StackProblem.TIMEOUT, f"py-spy did not read process {pid} within {timeout_s:g} s"
        ) from None
    except OSError as error:
        raise _cannot_start(error) from error
    if done.returncode:
        raise _error_of(pid, done.stderr)
    try:
        return ProcessStacks(pid, tuple(map(_thread_stack, json.loads(done.stdout))))
    except (ValueError, TypeError, KeyError) as error:
        raise _not_understood(pid, error) from error


class Recording:
    """py-spy, while it samples the stacks of one process at random moments.

    They are those of a Poisson process, `rate_hz` a second on average: nothing that is periodic in
    the training can fall in step with them. The process is not paused, unless `nonblocking` is
    False. Takes some 0.5 ms of CPU time a sample, and 15 ms to begin.
    """

    def __init__(
        self, pid: int, rate_hz: int, longest_s: float, *, nonblocking: bool = True
    ) -> None:
        """Begin. Raises StacksError where there is no py-spy."""
        program, self._pid = py_spy(), pid
        try:
            self._file = tempfile.NamedTemporaryFile(prefix="loadeval-", suffix=".json")  # noqa: SIM115 - it lives as long as this
        except OSError as error:
            raise StacksError(
                StackProblem.FAILED, f"cannot write a temporary file: {error.strerror}"
            ) from error
        command = [program, "record", "--pid", str(pid), "--rate", str(rate_hz), "--idle"]
        command += ["--duration", str(math.ceil(longest_s * LONGER)), "--format", "speedscope"]
        command += ["--output", self._file.name, "--full-filenames"]
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the program that was found, and numbers
                [*command, *(["--nonblocking"] if nonblocking else [])],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,  # Ctrl-C in the terminal is for whoever stops this
            )
        except OSError as error:
            self._file.close()
            raise _cannot_start(error) from error

    def interrupt(self) -> None:
        """Let it end, which takes until its next sample."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGINT)

    def stop(self) -> ProcessSamples:
        """End it. Returns what it has read. Raises StacksError where that is nothing."""
        self.interrupt()
        with self._file, self._process:
            try:
                said, complaint = self._process.communicate(timeout=STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                raise StacksError(
                    StackProblem.TIMEOUT,
                    f"py-spy did not end its recording of process {self._pid}",
                ) from None
            content = Path(self._file.name).read_bytes()
        if not content:
            raise _error_of(self._pid, complaint)
        failed = ERRORS.search(said + complaint)
        try:
            threads = _thread_samples(json.loads(content))
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise _not_understood(self._pid, error) from error
        return ProcessSamples(self._pid, threads, int(failed[1]) if failed else 0)


def _thread_stack(thread: dict[str, Any]) -> ThreadStack:
    return ThreadStack(
        tid=thread["os_thread_id"],
        name=thread["thread_name"] or "",
        frames=tuple(
            Frame(
                function=frame["name"],
                file=frame["filename"],
                line=frame["line"] or None,
                native=frame["module"] is not None,
                variables=tuple(
                    (variable["name"], variable["repr"]) for variable in frame["locals"] or ()
                ),
            )
            for frame in thread["frames"]
        ),
    )


def _thread_samples(content: dict[str, Any]) -> tuple[ThreadSamples, ...]:
    frames = [
        Frame(frame["name"], frame.get("file") or "", frame.get("line") or None)
        for frame in content["shared"]["frames"]
    ]
    threads = []
    for profile in content["profiles"]:
        thread = THREAD.match(profile["name"])
        if thread is None:
            raise ValueError(profile["name"])
        stacks = tuple(
            tuple(frames[index] for index in reversed(stack)) for stack in profile["samples"]
        )
        threads.append(ThreadSamples(int(thread["tid"]), thread["name"] or "", stacks))
    return tuple(threads)


def _error_of(pid: int, complaint: str) -> StacksError:
    if REFUSED.search(complaint):
        return StacksError(
            StackProblem.NOT_PERMITTED,
            f"reading the stacks of process {pid} is not permitted: try sudo, "
            "a container with --cap-add SYS_PTRACE, or sysctl kernel.yama.ptrace_scope=0",
        )
    if not _exists(pid) or (GONE.search(complaint) and not NOT_PYTHON.search(complaint)):
        return StacksError(StackProblem.GONE, f"there is no process {pid}, or it has ended")
    if OTHER_PYTHON.search(complaint):
        return StacksError(
            StackProblem.UNSUPPORTED_PYTHON,
            f"this py-spy does not know the Python of process {pid}: pip install -U py-spy",
        )
    if NOT_PYTHON.search(complaint):
        return StacksError(StackProblem.NOT_PYTHON, f"process {pid} runs no Python program")
    reason = next(iter(complaint.strip().splitlines()), "it said nothing")
    return StacksError(StackProblem.FAILED, f"py-spy cannot read process {pid}: {reason}")


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        pass
    return True


def _cannot_start(error: OSError) -> StacksError:
    return StacksError(StackProblem.FAILED, f"py-spy cannot be started: {error.strerror}")


def _not_understood(pid: int, error: Exception) -> StacksError:
    return StacksError(
        StackProblem.FAILED,
        f"what py-spy printed of process {pid} is not understood ({error}): pip install -U py-spy",
    )
