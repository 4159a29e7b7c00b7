"""`loadeval attach`, at real programs; those that train are slow."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from tests.cli.commands import COMMAND, runner

TRAINING = Path(__file__).with_name("attached_training.py")
STUCK = Path(__file__).with_name("stuck_training.py")
UNSEEN = 0.05
run = runner("attach", columns=100)


class Program(NamedTuple):
    """A program that runs: it, and the file in which it counts."""

    pid: int
    counts: Path

    @property
    def waited_and_stepped(self) -> tuple[float, float]:
        waited, stepped = map(float, self.counts.read_text().split())
        return waited, stepped


@contextmanager
def training(folder: Path, workers: int) -> Iterator[Program]:
    """A training that has begun."""
    counts = folder / "counts"
    command = [sys.executable, str(TRAINING), str(counts), str(workers)]
    with subprocess.Popen(command) as process:
        try:
            while not (counts.exists() and counts.read_text().strip()):
                assert process.poll() is None
                time.sleep(0.1)
            yield Program(process.pid, counts)
        finally:
            process.send_signal(signal.SIGKILL)


@pytest.fixture
def sleeping() -> Iterator[int]:
    """A program of Python's that does nothing."""
    command = [sys.executable, "-S", "-c", "import time\nprint(flush=True)\ntime.sleep(600)"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


def test_without_the_right_to_read_stacks_it_is_said_what_to_allow(
    sleeping: int, stub_py_spy: Callable[[str], None]
) -> None:
    stub_py_spy("echo 'Permission Denied: Try running again' >&2\nexit 1")
    code, out, _ = run(sleeping, "--seconds", "1")
    assert code == 1
    first, text = out.splitlines()[0], " ".join(out.split())
    assert first.startswith(f"How long training process {sleeping} waits is not measured")
    for allowed in ("sudo", "--cap-add SYS_PTRACE", "kernel.yama.ptrace_scope=0"):
        assert allowed in text
    assert "loadeval diagnose -- " in text


def look(program: Program, *arguments: object) -> tuple[float, Any]:
    """The true share of waiting while it was looked at, and what was seen."""
    before = program.waited_and_stepped
    command = [str(COMMAND), "attach", *map(str, arguments), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    waited_s, stepped_s = (
        now - then for now, then in zip(program.waited_and_stepped, before, strict=True)
    )
    return waited_s / (waited_s + stepped_s), json.loads(done.stdout)["trainings"]


def holds(share: dict[str, float], true: float) -> bool:
    """Whether the interval has the true share, which is also of the command's start and end."""
    return share["low"] - UNSEEN <= true <= share["high"] + UNSEEN


@pytest.mark.check
def test_a_training_that_was_started_before(tmp_path: Path) -> None:
    """Looked at by the number of its worker; the truth is what it counts itself."""
    with training(tmp_path, workers=1) as program:
        (worker,) = psutil.Process(program.pid).children()
        true, (seen,) = look(program, worker.pid, "--seconds", "9")
        alive = Path(f"/proc/{program.pid}").exists()
    assert alive
    assert seen["pid"] == program.pid
    assert seen["loader"] == "DataLoader"
    assert holds(seen["wait_share"], true)
    assert seen["at_most"]["value"] == pytest.approx(1 / (1 - seen["wait_share"]["value"]))
    assert seen["callers"][0]["place"].startswith("cli/attached_training.py:")
    assert seen["callers"][0]["place"].endswith(" main")
    loading = seen["workers"]
    assert loading["count"] == loading["read"] == 1
    assert loading["stages"]["fetches"]["value"] > 0.8
    assert loading["lines"][0]["place"].endswith(" __getitem__")
    assert "nanosleep" in loading["blocked_in"]
    assert {finding["rule"] for finding in seen["findings"]} >= {"storage latency"}


@pytest.mark.check
def test_each_training_of_a_launcher(tmp_path: Path) -> None:
    """By --all, at the same time; they load in their own thread. Else their numbers are told."""
    launcher = "import subprocess, sys; [p.wait() for p in [*map(subprocess.Popen, {})]]"
    folders = [tmp_path / "0", tmp_path / "1"]
    for folder in folders:
        folder.mkdir()
    commands = [[sys.executable, str(TRAINING), str(folder / "counts"), "0"] for folder in folders]
    with subprocess.Popen([sys.executable, "-c", launcher.format(commands)]) as process:
        try:
            while not all((folder / "counts").exists() for folder in folders):
                time.sleep(0.1)
            ranks = [child.pid for child in psutil.Process(process.pid).children()]
            time.sleep(1)
            code, _, err = run(process.pid)
            assert (code, str(ranks[1]) in err) == (1, True)
            program = Program(ranks[0], folders[0] / "counts")
            true, everything = look(program, process.pid, "--all", "--seconds", "6")
        finally:
            for child in psutil.Process(process.pid).children():
                child.kill()
    assert sorted(each["pid"] for each in everything) == sorted(ranks)
    (seen,) = (training for training in everything if training["pid"] == program.pid)
    assert holds(seen["wait_share"], true)
    assert seen["workers"] is None
    assert seen["loads_itself_share"]["value"] > 0.4
    assert seen["own_lines"][0]["place"].endswith(" __getitem__")
    assert "zero workers" in {finding["rule"] for finding in seen["findings"]}


@pytest.mark.check
def test_a_worker_that_is_stuck_in_a_sample(tmp_path: Path) -> None:
    """The first line says which, where and since when; more workers would be stuck too."""
    command = [sys.executable, "-m", "tests.cli.stuck_training", str(tmp_path)]
    with subprocess.Popen(command) as process:
        try:
            while not (tmp_path / "stuck").exists():
                assert process.poll() is None
                time.sleep(0.1)
            time.sleep(1)  # until training has all batches before it
            code, out, _ = run(process.pid, "--seconds", "4")
        finally:
            process.kill()
    said = " ".join(out.split())
    assert code == 0
    assert said.startswith("No batch came in the ")
    assert " s: worker 1 is on sample 777, in stuck_training.py:" in said
    assert "since before the look began" in said
    assert "worker 0 done, waiting" in said
    assert "more of them" not in said
