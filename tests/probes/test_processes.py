"""What is told of single processes, and which of them descend from one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from loadeval.probes.processes import Family, Usage, command_of, usage_of
from tests.probes.conftest import MakeChild

MEGABYTE = 2**20
HIGHEST_PID = 2**22


@pytest.fixture
def family() -> Family:
    """Our own."""
    return Family(os.getpid())


def seen(family: Family) -> dict[int, Usage]:
    """What those that are there now have used."""
    family.look()
    return family.usages()


def test_children_are_forgotten_when_they_end(family: Family, make_child: MakeChild) -> None:
    child, killed = make_child(), make_child()
    assert set(seen(family)) == {child.pid, killed.pid}
    child.end()
    os.kill(killed.pid, signal.SIGKILL)
    os.waitid(os.P_PID, killed.pid, os.WEXITED | os.WNOWAIT)
    assert not seen(family)


def test_grandchildren_belong(family: Family, make_child: MakeChild) -> None:
    """Workers may have processes of their own, which get another parent when the worker ends."""
    child = make_child()
    grandchild = int(child.ask("bear"))
    assert set(seen(family)) == {child.pid, grandchild}
    child.end()
    assert not seen(family)


HELPED = """
import multiprocessing, os, psutil, time
from loadeval.probes.processes import Family

if __name__ == "__main__":
    context = multiprocessing.get_context("forkserver")
    lock = context.Lock()
    worker = context.Process(target=time.sleep, args=(60,))
    worker.start()
    family = Family(os.getpid())
    family.look()
    print(len(psutil.Process().children(recursive=True)), list(family.usages()) == [worker.pid])
    worker.kill()
    worker.join()
"""


def test_helpers_of_multiprocessing_are_no_workers(tmp_path: Path) -> None:
    """Of the tracker, the forkserver and what it has forked, the last is one."""
    program = tmp_path / "program.py"
    program.write_text(HELPED)
    done = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == ["3", "True"]


def test_bytes_that_were_read(make_child: MakeChild, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(4 * MEGABYTE))
    child = make_child()
    before = usage_of(child.pid)
    child.ask(f"read {path}")
    after = usage_of(child.pid)
    assert before is not None
    assert after is not None
    assert (after.read_bytes or 0) - (before.read_bytes or 0) == pytest.approx(
        4 * MEGABYTE, abs=MEGABYTE / 2
    )


def test_what_psutil_tells_too_is_the_same(make_child: MakeChild) -> None:
    child = make_child()
    os.kill(child.pid, signal.SIGSTOP)  # so that nothing changes between the two
    os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
    ours, theirs = usage_of(child.pid), psutil.Process(child.pid)
    assert ours is not None
    times = theirs.cpu_times()
    assert (ours.parent, ours.cpu_s) == (theirs.ppid(), times.user + times.system)
    assert command_of(child.pid) == tuple(theirs.cmdline())


def test_of_a_process_that_is_over_nothing_is_known() -> None:
    """Nor of one that its parent has not asked about."""
    assert usage_of(HIGHEST_PID) is None
    assert command_of(HIGHEST_PID) == ()
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert usage_of(process.pid) is None
    process.wait()
