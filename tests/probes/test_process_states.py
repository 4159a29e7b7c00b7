"""What the kernel tells of a process and its threads: what each does and waits for."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from loadeval.probes.processes import (
    CALLS,
    children_of,
    process_state,
    thread_state,
    threads_of,
)
from loadeval.probes.processes import call_named as name_of
from loadeval.probes.usage import command_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.probes.conftest import Child

NOBODY = 2**22 + 1
pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="Linux tells it")  # noqa: PTH110


def test_a_process_has_its_parent_and_its_command(make_child: Callable[[], Child]) -> None:
    child = make_child()
    state = process_state(child.pid)
    assert state is not None
    assert state.parent == os.getpid()
    assert state.command is not None
    assert state.command[:2] == (sys.executable, "-S")
    assert state.main is not None
    assert state.main.tid == child.pid


def test_children_are_those_of_the_process_alone(make_child: Callable[[], Child]) -> None:
    child = make_child()
    grandchild = int(child.ask("bear"))
    assert children_of(child.pid) == (grandchild,)
    assert child.pid in children_of(os.getpid())
    assert grandchild not in children_of(os.getpid())


def test_a_thread_that_reads_a_pipe_says_which(make_child: Callable[[], Child]) -> None:
    """It is asleep in the system call, of which the file is told."""
    child = make_child()
    deadline_s, state = time.monotonic() + 10, None
    # Until it has gone back to its pipe.
    while (state is None or state.state != "S") and time.monotonic() < deadline_s:
        state = thread_state(child.pid, child.pid)
    assert state is not None
    assert state.call is not None
    assert (state.call.name, state.call.descriptor) == ("read", 0)
    assert state.call.path is not None
    assert state.call.path.startswith("pipe:")


def test_a_thread_that_runs_is_in_no_call_and_uses_cpu(make_child: Callable[[], Child]) -> None:
    child = make_child()
    child.tell("burn")
    deadline_s = time.monotonic() + 10
    while time.monotonic() < deadline_s:
        state = thread_state(child.pid, child.pid)
        assert state is not None
        if state.state == "R" and state.call is None and (state.cpu_ns or 0) > 0:
            return
    raise AssertionError(state)


def test_threads_come_with_their_numbers() -> None:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        states = {state.tid: state for state in threads_of(os.getpid())}
    finally:
        stop.set()
        thread.join()
    assert thread.native_id in states


def test_of_a_process_that_is_over_nothing_is_known() -> None:
    assert process_state(NOBODY) is None
    assert thread_state(NOBODY, NOBODY) is None
    assert threads_of(NOBODY) == ()
    assert command_of(NOBODY) is None
    assert children_of(NOBODY) == ()


def test_a_zombie_is_over() -> None:
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert process_state(process.pid) is None
    process.wait()


@pytest.mark.parametrize(
    ("number", "machine", "name"),
    [
        (0, "x86_64", "read"),
        (63, "aarch64", "read"),
        (202, "x86_64", "futex"),
        (98, "aarch64", "futex"),
        (9999, "x86_64", None),
        (0, "riscv64", None),
    ],
)
def test_a_call_is_named_by_its_number_on_that_machine(
    number: int, machine: str, name: str | None
) -> None:
    assert name_of(number, machine) == name


def test_no_number_has_two_names() -> None:
    for column in (0, 1):
        numbers = [numbers[column] for numbers in CALLS.values() if numbers[column] is not None]
        assert len(numbers) == len(set(numbers))
