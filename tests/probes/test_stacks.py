"""Stacks of other processes: what py-spy reads of real ones, and what it says where it cannot."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loadeval.probes import stacks
from loadeval.probes.stacks import (
    FAILED,
    GONE,
    NOT_INSTALLED,
    NOT_PERMITTED,
    NOT_PYTHON,
    Recording,
    StacksError,
    dump,
    py_spy,
)

WAITING = textwrap.dedent(
    """
    import ctypes, threading, time

    def read_a_file():
        time.sleep(600)

    def main():
        print("ready", flush=True)
        read_a_file()
    ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)  # any process may read it
    threading.Thread(target=read_a_file, name="beside", daemon=True).start()
    main()
    """
)
REFUSED = """Error: Failed to get process executable name. Check that the process is running.

Caused by:
    0: Permission denied (os error 13)
"""


@pytest.fixture
def program() -> Iterator[int]:
    """A program that waits in a function of its own, in two threads."""
    command = [sys.executable, "-S", "-c", WAITING]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


def problem_of(read: Callable[[], object]) -> str:
    with pytest.raises(StacksError) as error:
        read()
    assert "\n" not in str(error.value)
    return error.value.problem


def test_a_dump_has_functions_and_lines_of_each_thread(program: int) -> None:
    read = dump(program)
    assert read.main is not None
    assert read.main.tid == program
    names = [(frame.function, frame.file, frame.line) for frame in read.main.stacks[0]]
    expected = [("read_a_file", 5), ("main", 9), ("<module>", 12)]
    assert names == [(function, "<string>", line) for function, line in expected]
    (beside,) = (thread for thread in read.threads if thread.name == "beside")
    assert beside.stacks[0][0].function == "read_a_file"


def test_a_recording_has_each_thread_at_the_same_number_of_moments(program: int) -> None:
    recording = Recording(program, rate_hz=50, longest_s=5)
    assert recording._process is not None
    assert recording._process.stdout is not None
    recording._process.stdout.readline()  # that it samples now
    time.sleep(0.3)  # some 15 samples
    samples, problem = recording.stop()
    assert samples is not None
    assert (samples.failed, problem) == (0, None)
    by_name = {thread.name: thread for thread in samples.threads}
    assert set(by_name) == {"MainThread", "beside"}
    main = by_name["MainThread"]
    assert main.tid == program
    assert len(main.stacks) == len(by_name["beside"].stacks) > 1
    assert {stack[0].function for stack in main.stacks} == {"read_a_file"}


def test_a_process_that_is_none_is_said_to_be_gone() -> None:
    assert problem_of(lambda: dump(2**22 + 1)) == GONE


@pytest.mark.parametrize(
    ("complaint", "problem"),
    [
        (REFUSED, NOT_PERMITTED),
        ("Permission Denied: Try running again with elevated permissions", NOT_PERMITTED),
        ("Error: No such file or directory (os error 2)", GONE),
        ("Error: Failed to find python version from target process", NOT_PYTHON),
        ("Error: something else", FAILED),
    ],
    ids=["not permitted", "no ptrace", "gone", "not Python", "other"],
)
def test_each_complaint_of_py_spy_is_told_apart(
    stub_py_spy: Callable[[str], None], complaint: str, problem: str
) -> None:
    stub_py_spy(f"cat >&2 <<'END'\n{complaint}\nEND\nexit 1")
    assert problem_of(lambda: dump(os.getpid())) == problem
    recording = Recording(os.getpid(), rate_hz=5, longest_s=1)
    assert recording._process is not None
    recording._process.wait()
    assert recording.stop() == (None, problem)


def test_a_py_spy_that_hangs_is_given_up(
    stub_py_spy: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    stub_py_spy("exec sleep 60")
    monkeypatch.setattr(stacks, "TIMEOUT_S", 0.1)
    assert problem_of(lambda: dump(1)) == FAILED


def test_a_recording_that_does_not_end_is_killed(
    stub_py_spy: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    stub_py_spy("trap '' INT\necho deaf\nwhile true; do sleep 0.05; done")
    monkeypatch.setattr(stacks, "TIMEOUT_S", 0.2)
    recording = Recording(1, rate_hz=5, longest_s=1)
    assert recording._process is not None
    assert recording._process.stdout is not None
    recording._process.stdout.readline()
    assert recording.stop() == (None, FAILED)
    assert recording._process.returncode is not None


@pytest.mark.parametrize("printed", ["[]x", '[{"frames": []}]', "[1]"])
def test_what_another_version_prints_is_an_error(
    stub_py_spy: Callable[[str], None], printed: str
) -> None:
    stub_py_spy(f"echo '{printed}'")
    assert problem_of(lambda: dump(1)) == FAILED


def test_without_py_spy_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert problem_of(py_spy) == NOT_INSTALLED
    with pytest.raises(StacksError, match=r'pip install "py-spy>=0\.4\.2"'):
        py_spy()


def test_a_py_spy_that_cannot_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "py_spy", lambda: str(tmp_path / "py-spy"))
    assert problem_of(lambda: dump(1)) == FAILED
    assert Recording(1, rate_hz=5, longest_s=1).stop() == (None, FAILED)
