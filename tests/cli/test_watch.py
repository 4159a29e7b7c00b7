"""`loadeval watch`: a run is followed while it goes on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest

from loadeval.analysis.live import LiveState
from loadeval.cli import watch as command
from loadeval.cli.watch import states
from loadeval.data.log import read_run
from tests.cli.commands import COMMAND, runner
from tests.runs.given import MS
from tests.runs.measured import record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SECOND = 1_000 * MS
WAIT_S = 60
run = runner("watch")
SCRIPT = """
import select, sys, time
from loadeval import LoaderEvaluator

def batches():
    for number in range(10**9):
        time.sleep(0.002)
        yield bytes(4)

options = {"log_file": sys.argv[1], "samples": len, "unit": "images"}
with LoaderEvaluator(batches(), **options) as evaluator:
    for batch in evaluator:
        time.sleep(0.003)
        if select.select([sys.stdin], [], [], 0)[0]:
            break
"""


@pytest.fixture(name="log")
def _log(tmp_path: Path) -> Path:
    return record(tmp_path / "run.jsonl")


@pytest.mark.parametrize("options", [(), ("--once",)])
def test_a_run_that_has_ended_is_told_once(log: Path, options: tuple[str, ...]) -> None:
    """In one line where there is no terminal, with nothing more to follow."""
    code, out, err = run(log, *options)
    assert (code, err, out.count("\n")) == (0, "", 1)
    assert out.startswith("ended after 1 s; epoch 0, batch 29 of 30; 30 batches in total; now 100 ")
    assert "whole run 100 images/s, waiting 75.0%; epoch start 30.0 ms in the first epoch" in out


def test_json_has_the_fields_of_the_state(log: Path) -> None:
    """One object, the path first."""
    code, out, err = run(log, "--once", "--json")
    document = json.loads(out)
    assert (code, err, document["path"]) == (0, "", str(log))
    assert document["overall"]["samples_per_s"] == pytest.approx(100)
    assert list(document) == ["path", *LiveState.__slots__]


def test_once_does_not_wait(tmp_path: Path) -> None:
    """A log that is not there, or has no whole line yet, is an error."""
    path = tmp_path / "run.jsonl"
    for content in (None, "", '{"type":'):
        if content is not None:
            path.write_text(content)
        code, out, err = run(path, "--once")
        assert (code, out) == (1, "")
        assert err.startswith(f"Error: there is no run log at {path} yet")
        assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "error"),
    [
        *(
            (("--interval", text), "from 0.1 to 86,400")
            for text in ("0", "-1", "nan", "inf", "1e9")
        ),
        (("--json",), "give it with --once"),
    ],
)
def test_wrong_usage(log: Path, options: tuple[str, ...], error: str) -> None:
    """An interval is some seconds, and JSON is for one state."""
    code, out, err = run(log, *options)
    assert (code, out) == (2, "")
    assert error in " ".join(err.split())


def followed(path: Path, *actions: Callable[[], Any], quiet_s: float = 0.0) -> Iterator[Any]:
    """States of the log at `path`, an action after each; the log was written `quiet_s` ago."""
    todo = iter(actions)

    def sleep(seconds: float) -> None:
        assert seconds == 2.0
        next(todo)()

    def now_s() -> float:
        return path.stat().st_mtime + quiet_s

    return states(path, 2.0, now_s, sleep)


def test_a_log_is_followed_to_its_end(log: Path, tmp_path: Path) -> None:
    """It is waited for, each look tells what came since, and the last one that it has ended."""
    lines = log.read_bytes().splitlines(keepends=True)
    path = tmp_path / "followed.jsonl"

    def append(content: bytes) -> None:
        with path.open("ab") as file:
            file.write(content)

    actions = [partial(append, part) for part in (*lines[:-1], lines[-1][:9], lines[-1][9:])]
    states = list(followed(path, *actions))
    assert len(states) == len(actions) + 1
    assert states[0] is None
    assert (states[1].batches, states[1].ended) == (0, False)
    assert [state.ended for state in states[1:]] == [False] * (len(actions) - 1) + [True]
    assert states[-2].batches == states[-1].batches == 30
    assert states[-1].overall.samples_per_s == pytest.approx(100)


def test_a_log_that_is_replaced_is_begun_anew(log: Path, tmp_path: Path) -> None:
    """Nothing of the old run is in the figures of the new one."""
    path = tmp_path / "followed.jsonl"
    path.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
    replaced = partial(record, path, batches=3, overwrite=True)
    old, new = islice(followed(path, replaced), 2)
    assert (old.batches, old.ended) == (30, False)
    assert (new.batches, new.ended) == (3, True)


def test_a_log_that_was_read_in_parts_is_told_whole(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No state is told in between."""
    expected = next(states(log, 1))
    monkeypatch.setattr("loadeval.data.log.PART_BYTES", 10)
    assert list(states(log, 1)) == [expected]


def test_silence_is_told(log: Path) -> None:
    """A log that nobody wrote to for a while says so, also at the first look."""
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
    state = next(followed(log, quiet_s=93))
    assert state.silent_ns == pytest.approx(93 * SECOND, rel=0.01)
    assert next(followed(log, quiet_s=-5)).silent_ns is None


def test_waiting_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told once however long it takes, and then the run follows."""
    path = tmp_path / "run.jsonl"
    looks = []

    def sleep(_: float) -> None:
        looks.append(path)
        if len(looks) == 3:
            record(path)

    monkeypatch.setattr(command, "states", partial(states, sleep=sleep))
    code, out, err = run(path)
    assert (code, err) == (0, "")
    waiting, ended = out.splitlines()
    assert waiting == f"Waiting for a run log at {path}; Ctrl-C ends it"
    assert ended.startswith("ended after")


def test_a_mistyped_name_is_told(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What there is of that name is named, where the folder can be read."""

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "states", partial(states, sleep=interrupt))
    mistyped = log.with_name(f"{log.stem}x{log.suffix}")
    _, out, _ = run(mistyped)
    assert out == f"Waiting for a run log at {mistyped}; Ctrl-C ends it. There is {log}\n"
    nowhere = log.parent / "no" / log.name
    assert run(nowhere)[1] == f"Waiting for a run log at {nowhere}; Ctrl-C ends it\n"


def test_a_terminal_shows_a_screen(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It shows a run that goes on, and one state alone."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    for options in ((), ("--once",)):
        code, out, err = run(log, *options)
        assert (code, err) == (0, "")
        assert "time waiting" in out
        assert "whole run" in out
    log.unlink()

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "states", partial(states, sleep=interrupt))
    code, out, err = run(log)
    assert (code, err) == (0, "")
    assert "Waiting for a run log" in " ".join(out.split())


@contextmanager
def started(*command: object, **pipes: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A process, which does not outlive the test, whatever happens in that."""
    process = subprocess.Popen([*map(str, command)], **pipes)
    try:
        with process:
            yield process
    finally:
        process.kill()


@pytest.mark.check
def test_a_training_is_followed_while_it_runs(tmp_path: Path) -> None:
    """Another process reads what a training writes, and Ctrl-C ends the reader quietly."""
    path = tmp_path / "run.jsonl"
    with started(sys.executable, "-c", SCRIPT, path, stdin=subprocess.PIPE) as training:
        until_it_has_batches(path)
        code, out, errors = run(path, "--once", "--json")
        state = json.loads(out)
        assert (code, errors) == (0, "")
        assert state["batches"] > 0
        assert not state["ended"]
        assert state["overall"]["samples_per_s"] > 0
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with started(COMMAND, "watch", path, "--interval", "0.2", **pipes) as follower:
            assert follower.stdout is not None
            lines = [follower.stdout.readline() for _ in range(3)]
            follower.send_signal(signal.SIGINT)
            rest, error = follower.communicate(timeout=WAIT_S)
        assert (follower.returncode, error) == (0, b"")
        assert all(line.startswith(b"running for") for line in lines)
        assert b"Traceback" not in rest
        with started(COMMAND, "watch", path, **pipes) as follower:
            training.communicate(b"\n", timeout=WAIT_S)
            printed, _ = follower.communicate(timeout=WAIT_S)
    last = printed.splitlines()[-1].decode()
    assert (training.returncode, follower.returncode) == (0, 0)
    assert last.startswith("ended after")
    assert f"{read_run(path).batches:,} batches in total" in last


def until_it_has_batches(path: Path) -> None:
    deadline = time.monotonic() + WAIT_S
    while not path.exists() or not path.stat().st_size or read_run(path).batches < 50:
        assert time.monotonic() < deadline
        time.sleep(0.05)
