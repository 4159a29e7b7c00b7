"""`loadeval watch`: a run is followed while it goes on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from loadeval.cli import watch as command
from loadeval.cli.watch import Ranks, follow, line, screen, waiting_for
from loadeval.data.log import read_run
from loadeval.live import LiveState, Rates
from loadeval.report.text import lines
from tests.cli.commands import COMMAND, in_a_terminal, runner
from tests.runs.measured import record

MS = 1_000_000
SECOND = 1_000 * MS
WAIT_S = 60
run = runner("watch")
NOW = Rates(40, 58 * SECOND, 0.7, 264.0, 0.34)
STATE = LiveState(
    name="resnet",
    mode="log",
    unit="images",
    created="2026-01-31T12:00:00+00:00",
    epoch_batches=5_000,
    elapsed_ns=723 * SECOND,
    epoch=3,
    batch=1_234,
    batches=16_234,
    now=NOW,
    overall=Rates(900, 700 * SECOND, 1.3, 250.0, 0.25),
    epoch_start_ns=400 * MS,
    last_epoch_start_ns=300 * MS,
    events=("the step changes its batch",),
)
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


def of(state: LiveState) -> Ranks:
    return {"rank0": state}


def shown(job: Ranks, width: int = 100) -> list[str]:
    return [each.plain for each in lines(screen(job), width)]


@pytest.fixture(name="log")
def _log(tmp_path: Path) -> Path:
    return record(tmp_path / "run.jsonl")


@pytest.fixture(name="job")
def _job(tmp_path: Path) -> Path:
    folder = tmp_path / "job"
    folder.mkdir()
    for rank in range(3):
        record(folder / f"rank{rank}.jsonl", wait_ms=10 + 10 * rank)
    return folder


def test_the_screen_of_a_run() -> None:
    """Now beside the whole run, epoch starts, events."""
    assert shown(of(STATE)) == [
        "resnet (log)",
        "running for 12 min 3 s; epoch 3, batch 1,234 of 5,000; 16,234 batches in total",
        "",
        "              last 58 s     whole run",
        "throughput    264 images/s  250 images/s",
        "time waiting  34.0%         25.0%",
        "",
        "epoch start  400 ms in the first epoch, 300 ms in the last",
        "event: the step changes its batch",
    ]


def test_the_line_of_a_run() -> None:
    """For a file or another program: now, and once it has ended the whole run."""
    assert line(of(STATE)) == (
        "running for 12 min 3 s; epoch 3, batch 1,234 of 5,000; 264 images/s, waiting 34.0%"
    )
    assert line(of(replace(STATE, ended=True))) == (
        "ended after 12 min 3 s; epoch 3, batch 1,234 of 5,000; 250 images/s, waiting 25.0%"
    )


def test_before_the_first_batch() -> None:
    """Nothing that is not known is made up."""
    empty = of(LiveState(name="resnet", unit="images", elapsed_ns=SECOND))
    assert line(empty) == "running for 1 s; no batch yet"
    assert shown(empty) == [
        "resnet (log)",
        "running for 1 s; no batch yet; 0 batches in total",
        "",
        "              now                      whole run",
        "throughput    no steady-state batches  no steady-state batches",
        "time waiting  no steady-state batches  no steady-state batches",
        "",
        "epoch start  not measured",
    ]


def test_where_samples_are_not_known_batches_are_told() -> None:
    state = replace(STATE, now=replace(NOW, samples_per_s=None))
    assert line(of(state)).endswith("; 0.700 batches/s, waiting 34.0%")


def test_a_silent_run_says_so_first() -> None:
    silent = of(replace(STATE, silent_ns=93 * SECOND, now=None))
    status = "no batch for 93 s, 12 min 3 s after the start; epoch 3, batch 1,234 of 5,000"
    assert line(silent) == status
    assert shown(silent)[1].startswith(f"Caution: {status}")


def test_text_of_a_log_cannot_steer_the_terminal() -> None:
    """Its name, its unit and its events are text, and so is its path."""
    evil = "[red]\x1b[2J"
    state = replace(STATE, name=evil, unit=evil, events=(evil,))
    text = "\n".join([*shown(of(state), 200), line(of(state)), waiting_for(Path(evil))])
    assert "\x1b" not in text
    assert text.count(r"[red]\x1b[2J") == 6


def test_a_job_is_all_its_ranks() -> None:
    """Throughput adds up; who waits most comes first, and a rank without a batch is told."""
    waits = replace(STATE, now=Rates(40, 58 * SECOND, 0.6, 200.0, 0.5), batches=16_230)
    assert line({"rank0": STATE, "rank1": waits}) == (
        "2 ranks running for 12 min 3 s; 16,230 to 16,234 batches each; 464 images/s, waiting "
        "50.0%; rank1 waits most"
    )
    assert shown({"rank0": replace(STATE, ended=True), "rank1": waits}, 86) == [
        "2 ranks running for 12 min 3 s; 16,230 to 16,234 batches each",
        "",
        "                                          now           waiting  whole run     waiting",
        "all ranks                                 464 images/s  50.0%    500 images/s  25.0%",
        "rank1      epoch 3, batch 1,234 of 5,000  200 images/s  50.0%    250 images/s  25.0%",
        "rank0      ended after 12 min 3 s         264 images/s  34.0%    250 images/s  25.0%",
    ]
    silent = {"rank0": STATE, "rank1": replace(waits, now=None, silent_ns=93 * SECOND)}
    assert line(silent).endswith("16,230 to 16,234 batches each; silent: rank1")
    many = {f"rank{rank}": STATE for rank in range(12)}
    assert shown(many)[-1] == "and 2 more, which wait less"


def test_a_run_that_has_ended_is_told_once(log: Path) -> None:
    """In one line where there is no terminal, with nothing more to follow."""
    told = "ended after 1 s; epoch 0, batch 29 of 30; 100 images/s, waiting 75.0%\n"
    assert run(log) == (0, told, "")


def test_once_is_the_whole_screen(log: Path) -> None:
    """Without a terminal too."""
    code, out, err = run(log, "--once")
    assert (code, err) == (0, "")
    assert "epoch start  " in out


def test_json_has_the_fields_of_the_state(log: Path, job: Path) -> None:
    """One object, the path first; of a job a list of them."""
    code, out, err = run(log, "--once", "--json")
    document = json.loads(out)
    assert (code, err, document["path"]) == (0, "", str(log))
    assert document["overall"]["samples_per_s"] == pytest.approx(100)
    keys = [field.name for field in fields(LiveState)]
    assert list(document) == ["path", *keys]
    document = json.loads(run(job, "--once", "--json")[1])
    assert list(document) == ["path", "ranks"]
    assert [rank["log"] for rank in document["ranks"]] == ["rank0", "rank1", "rank2"]
    assert list(document["ranks"][0]) == ["log", *keys]


def test_once_does_not_wait(tmp_path: Path) -> None:
    """A log that is not there, or has no whole line yet, is an error."""
    path = tmp_path / "run.jsonl"
    for content in (None, "", '{"type":'):
        if content is not None:
            path.write_text(content)
        error = (
            f"Error: there is no run log at {path} yet; expected one that log_file= writes; leave "
            "out --once to wait for it\n"
        )
        assert run(path, "--once") == (1, "", error)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--interval", "0"), "'--interval'"),
        (("--json",), "give it with --once"),
    ],
)
def test_wrong_usage(log: Path, options: tuple[str, ...], error: str) -> None:
    """An interval is some seconds, and JSON is for one state."""
    code, out, err = run(log, *options)
    assert (code, out) == (2, "")
    assert error in " ".join(err.split())


def followed(path: Path, *actions: Callable[[], Any], quiet_s: float = 0.0) -> Iterator[Ranks]:
    """States of what is at `path`, an action after each; the log was written `quiet_s` ago."""
    todo = iter(actions)

    def sleep(seconds: float) -> None:
        assert seconds == 2.0
        next(todo)()

    return follow(path, 2.0, lambda: path.stat().st_mtime + quiet_s, sleep)


def test_a_log_is_followed_to_its_end(log: Path, tmp_path: Path) -> None:
    """It is waited for, each look tells what came since, and the last one that it has ended."""
    texts = log.read_bytes().splitlines(keepends=True)
    path = tmp_path / "followed.jsonl"

    def append(content: bytes) -> None:
        with path.open("ab") as file:
            file.write(content)

    actions = [partial(append, part) for part in (*texts[:-1], texts[-1][:9], texts[-1][9:])]
    first, *jobs = followed(path, *actions)
    assert first == {}
    states = [job["followed"] for job in jobs]
    assert [state.ended for state in states] == [False] * (len(actions) - 1) + [True]
    assert (states[0].batches, states[-2].batches, states[-1].batches) == (0, 30, 30)


def test_a_log_that_is_replaced_is_begun_anew(log: Path, tmp_path: Path) -> None:
    """Nothing of the old run is in the figures of the new one."""
    path = tmp_path / "followed.jsonl"
    path.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
    jobs = followed(path, path.unlink, partial(record, path, batches=3))
    batches = [{name: rank.batches for name, rank in job.items()} for job in jobs]
    assert batches == [{"followed": 30}, {}, {"followed": 3}]


def test_silence_is_told(log: Path) -> None:
    """A log that nobody wrote to for a while says so, also at the first look."""
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
    for quiet_s, silent_ns in ((93, pytest.approx(93 * SECOND, rel=0.01)), (-5, None)):
        assert next(followed(log, quiet_s=quiet_s))["run"].silent_ns == silent_ns


def test_ranks_that_begin_later_are_followed_too(job: Path) -> None:
    """Of a folder that is not there at first; what has not ended is waited for."""
    whole = {path: path.read_bytes() for path in sorted(job.iterdir())}
    first, second, third = whole
    for path in whole:
        path.unlink()
    job.rmdir()

    def begin() -> None:
        job.mkdir()
        first.write_bytes(whole[first])
        second.write_bytes(b"".join(whole[second].splitlines(keepends=True)[:-1]))

    def go_on() -> None:
        second.write_bytes(whole[second])
        third.write_bytes(whole[third])
        first.write_bytes(b"")

    todo = iter([begin, go_on])
    jobs = follow(job, 2.0, lambda: 0.0, lambda _: next(todo)())
    ended = [{name: rank.ended for name, rank in each.items()} for each in jobs]
    assert ended == [
        {},
        {"rank0": True, "rank1": False},
        {"rank0": True, "rank1": True, "rank2": True},
    ]


def test_waiting_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it takes, and then the run follows."""
    path, looks = tmp_path / "run.jsonl", list[float]()

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            record(path)

    monkeypatch.setattr(command, "follow", partial(follow, sleep=sleep))
    code, out, err = run(path)
    waiting, ended = out.splitlines()
    assert (code, err, looks) == (0, "", [2.0] * 3)
    assert waiting == f"Waiting for a run log at {path}; Ctrl-C ends it"
    assert ended.startswith("ended after 1 s; ")


def test_a_mistyped_name_is_told(log: Path) -> None:
    """What there is of that name is named, where the folder can be read."""
    mistyped = log.with_name(f"{log.stem}x{log.suffix}")
    assert waiting_for(mistyped) == (
        f"Waiting for a run log at {mistyped}; Ctrl-C ends it. There is {log}"
    )
    nowhere = log.parent / "no" / log.name
    assert waiting_for(nowhere) == f"Waiting for a run log at {nowhere}; Ctrl-C ends it"


def test_a_terminal_shows_a_screen_and_ctrl_c_ends_it(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one state, of a run that goes on, and of one that is waited for."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    for options in ((), ("--once",)):
        code, out, err = run(log, *options)
        assert (code, err) == (0, "")
        assert "time waiting  75.0%" in out

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    log.unlink()
    monkeypatch.setattr(command, "follow", partial(follow, sleep=interrupt))
    code, out, err = run(log)
    assert (code, err) == (0, "")
    assert "Waiting for a run log" in " ".join(out.split())


def test_a_job_in_a_terminal(job: Path) -> None:
    told = in_a_terminal("watch", str(job), "--once", columns=150)
    assert told.index("all ranks") < told.index("rank2 ") < told.index("rank0 ")


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
        deadline = time.monotonic() + WAIT_S
        while not path.exists() or not path.stat().st_size or read_run(path).batches < 50:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        code, out, errors = run(path, "--once", "--json")
        state = json.loads(out)
        assert (code, errors, state["ended"]) == (0, "", False)
        assert state["overall"]["samples_per_s"] > 0
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with started(COMMAND, "watch", path, "--interval", "0.2", **pipes) as follower:
            assert follower.stdout is not None
            told = [follower.stdout.readline() for _ in range(3)]
            follower.send_signal(signal.SIGINT)
            _, error = follower.communicate(timeout=WAIT_S)
        assert (follower.returncode, error) == (0, b"")
        assert all(each.startswith(b"running for") for each in told)
        with started(COMMAND, "watch", path, **pipes) as follower:
            training.communicate(b"\n", timeout=WAIT_S)
            printed, _ = follower.communicate(timeout=WAIT_S)
    last = printed.splitlines()[-1].decode()
    assert (training.returncode, follower.returncode) == (0, 0)
    assert last.startswith("ended after")
    assert f"batch {read_run(path).batches - 1:,};" in last
