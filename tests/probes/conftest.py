"""Real child processes that do as they are told."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import Any

import psutil
import pytest

from loadeval.probes import limits

OBEY = """
import os, subprocess, sys
held = []
for line in sys.stdin:
    word, _, rest = line.strip().partition(" ")
    if word == "burn":
        while True:
            pass
    elif word == "hold":
        held.append(bytearray(os.urandom(1024)) * (int(rest) // 1024))
    elif word == "read":
        with open(rest, "rb") as file:
            while file.read(1 << 20):
                pass
    elif word == "bear":
        held.append(subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=-1))
        rest = held[-1].pid
    print(rest, flush=True)
"""


@pytest.fixture(autouse=True, scope="module")
def _no_other_children() -> None:
    """What other tests have left running, Python's own helpers among it, is no worker of ours."""
    children = psutil.Process().children(recursive=True)
    # torch raises where a worker of a DataLoader that still lives ends before it.
    handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for child in children:
        child.kill()
    # They wait for their process to end, which it does not while a child holds its pipe.
    for helper in (resource_tracker._resource_tracker, forkserver._forkserver):
        stop: Any = getattr(helper, "_stop")  # noqa: B009 - typeshed does not know it
        stop()
    for child in children:
        child.wait()
    signal.signal(signal.SIGCHLD, handler)


@pytest.fixture
def machine_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control groups and interfaces are those of a machine whose files are in `tmp_path`."""
    monkeypatch.setattr(limits, "ROOT", tmp_path)


class Child:
    """A process that obeys: hold BYTES, read PATH, bear (a child of its own), burn."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-c", OBEY],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid
        self.ask("wake")

    def tell(self, order: str) -> None:
        assert self._process.stdin is not None
        print(order, file=self._process.stdin, flush=True)

    def ask(self, order: str) -> str:
        """Its answer, once it is done."""
        self.tell(order)
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def end(self) -> None:
        with self._process as process:
            process.kill()


MakeChild = Callable[[], Child]


@pytest.fixture
def make_child() -> Iterator[MakeChild]:
    """Makes children, which end with the test at the latest."""
    children: list[Child] = []

    def make() -> Child:
        children.append(Child())
        return children[-1]

    yield make
    for child in children:
        child.end()
