"""A training process and all below it, as they are seen from outside without a pause."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from loadeval.probes import looks
from loadeval.probes.looks import SHARED, look_at, thread_at
from loadeval.probes.stacks import NOT_PERMITTED, StacksError, py_spy
from tests.probes.conftest import MakeChild


def is_installed() -> bool:
    try:
        py_spy()
    except StacksError:
        return False
    return True


pytestmark = [
    pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="Linux tells it"),  # noqa: PTH110
    pytest.mark.skipif(not is_installed(), reason="py-spy reads stacks"),
]
WAITS = """
import os, socket, sys
def wait(index):
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    print("ready", flush=True)
    {wait}
wait(42)
"""


@contextmanager
def waiting(wait: str) -> Iterator[int]:
    """A program that waits in this line, its pid."""
    command = [sys.executable, "-S", "-c", WAITS.format(wait=wait)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.1)  # until it is in its call
        yield process.pid
        process.kill()


def test_what_it_waits_in_with_its_variables_and_connections() -> None:
    with waiting("client.recv(1)") as pid:
        look = look_at(pid)
    assert look is not None
    training = look.training
    main = training.main
    assert main is not None
    assert (main.state, main.call) == ("S", "recvfrom")
    assert " connected to 127.0.0.1:" in (main.path or "")
    assert training.stacks is not None
    stack = training.stacks.main
    assert stack is not None
    (frame,) = (frame for frame in stack.stacks[0] if frame.function == "wait")
    assert ("index", "42") in frame.variables
    assert any(not writes for _, writes in training.pipes)
    assert any(writes for _, writes in training.pipes)
    assert [*look.others, *look.killed] == []
    assert main.tid == pid
    assert (main.sleeps or 0) > 0


def test_the_path_that_it_opens(tmp_path: Path) -> None:
    path = tmp_path / "named pipe"
    os.mkfifo(path)
    with waiting(f"open({str(path)!r})") as pid:
        look = look_at(pid)
    assert look is not None
    assert look.training.main is not None
    main = look.training.main
    assert (main.call, main.path) == ("openat", str(path))


@pytest.mark.parametrize(("kind", "path"), [("multiprocessing", SHARED), ("threading", None)])
def test_a_lock_of_several_processes_is_told_apart(kind: str, path: str | None) -> None:
    with waiting(f"import {kind}; lock = {kind}.Lock(); lock.acquire(); lock.acquire()") as pid:
        time.sleep(0.3)  # until it has imported that
        main = thread_at(pid, pid)
    assert main is not None
    assert (main.call, main.path) == ("futex", path)


def test_a_process_that_was_stopped_is_read_too() -> None:
    with waiting("client.recv(1)") as pid:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.1)
        look = look_at(pid)
        os.kill(pid, signal.SIGCONT)
    assert look is not None
    assert look.training.main is not None
    assert look.training.main.state == "T"
    assert look.training.stacks is not None


def test_a_child_that_was_killed_and_not_asked_about() -> None:
    """Its signal is known as long as its parent has not."""
    with waiting("p = os.fork() or os.kill(os.getpid(), 9); client.recv(1)") as pid:
        look = look_at(pid)
    assert look is not None
    ((_, number),) = look.killed
    assert number == signal.SIGKILL


def test_stacks_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise StacksError(NOT_PERMITTED)

    monkeypatch.setattr(looks, "dump", refuse)
    look = look_at(os.getpid())
    assert look is not None
    training = look.training
    assert (training.stacks, training.problem) == (None, NOT_PERMITTED)


def test_a_thread_that_runs_is_in_no_call_and_uses_cpu(make_child: MakeChild) -> None:
    child = make_child()
    child.tell("burn")
    deadline_s = time.monotonic() + 10
    while time.monotonic() < deadline_s:
        state = thread_at(child.pid, child.pid)
        assert state is not None
        if state.state == "R" and state.call is None and (state.cpu_ns or 0) > 0:
            return
    raise AssertionError(state)
