"""`loadeval watch`: a run is followed while it goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from loadeval.cli import watch as command
from loadeval.cli.watch import Ranks, follow, screen, show
from loadeval.live import LiveState, Rates
from loadeval.report.text import lines
from tests.cli.commands import runner
from tests.runs.measured import record

MS = 1_000_000
SECOND = 1_000 * MS
run = runner("watch")
NOW = Rates(40, 58 * SECOND, 0.7, 264.0, 0.34)
STATE = LiveState(
    name="resnet",
    unit="images",
    epoch_batches=5_000,
    elapsed_ns=723 * SECOND,
    epoch=3,
    batch=1_234,
    batches=16_234,
    now=NOW,
    overall=Rates(900, 700 * SECOND, 1.3, 250.0, 0.25),
    epoch_start_ns=400 * MS,
    events=("the step changes its batch",),
)


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
        "running for 12 min 3 s; 16,234 batches",
        "",
        "                                      last minute   waiting  whole run     waiting",
        "rank0  epoch 3, batch 1,234 of 5,000  264 images/s  34.0%    250 images/s  25.0%",
        "",
        "epoch start: 400 ms",
        "event: the step changes its batch",
    ]


def test_batches_are_told_where_samples_are_not_known() -> None:
    without = of(replace(STATE, now=replace(NOW, samples_per_s=None), ended=True))
    assert "  0.700 batches/s  34.0%  " in shown(without)[3]
    assert shown(without)[0] == "ended after 12 min 3 s; 16,234 batches"


def test_before_the_first_batch() -> None:
    """Nothing that is not known is made up."""
    empty = of(LiveState(name="resnet", unit="images", elapsed_ns=SECOND))
    assert shown(empty)[0] == "running for 1 s; 0 batches"
    assert "no batch yet  no steady-state batches" in shown(empty)[3]
    assert shown(empty)[-1] == "epoch start: not measured"


def test_a_silent_run_says_so_first() -> None:
    silent = of(replace(STATE, silent_ns=93 * SECOND, now=None))
    status = "no batch for 93 s, 12 min 3 s after the start; 16,234 batches"
    assert shown(silent)[0] == f"Caution: {status}"


def test_text_of_a_log_cannot_steer_the_terminal() -> None:
    """Its unit and its events are text."""
    evil = "[red]\x1b[2J"
    state = replace(STATE, unit=evil, events=(evil,))
    text = "\n".join(shown(of(state), 200))
    assert "\x1b" not in text
    assert text.count(r"[red]\x1b[2J") == 3


def test_a_job_is_all_its_ranks() -> None:
    """Throughput adds up; who waits most comes first, and a rank without a batch is told."""
    waits = replace(STATE, now=Rates(40, 58 * SECOND, 0.6, 200.0, 0.5), batches=16_230)
    first, _, _, *rows = shown({"rank0": replace(STATE, ended=True), "rank1": waits}, 110)
    assert first == "2 ranks running for 12 min 3 s; 16,230 batches"
    assert [" ".join(row.split()) for row in rows] == [
        "all ranks 464 images/s 50.0% 500 images/s 25.0%",
        "rank1 epoch 3, batch 1,234 of 5,000 200 images/s 50.0% 250 images/s 25.0%",
        "rank0 ended, epoch 3, batch 1,234 of 5,000 264 images/s 34.0% 250 images/s 25.0%",
    ]
    silent = {"rank0": STATE, "rank1": replace(waits, now=None, silent_ns=93 * SECOND)}
    assert shown(silent)[0] == (
        "Caution: 2 ranks, 1 with no batch for 93 s, 12 min 3 s after the start; 16,230 batches"
    )
    many = {f"rank{rank}": STATE for rank in range(12)}
    assert len(shown(many)) == 3 + 1 + 10


def test_a_file_gets_the_screen_where_something_has_come(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not at each look at a training that takes long for a step; and what is waited for."""
    more = of(replace(STATE, batches=16_235))
    show(log, iter([{}, {}, of(STATE), of(replace(STATE, elapsed_ns=SECOND)), more]), Console())
    said = capsys.readouterr().out
    assert said.count("Waiting for a run log at") == 1
    assert (said.count("16,234 batches"), said.count("16,235 batches")) == (1, 1)


def test_a_run_that_has_ended_is_told_once(log: Path) -> None:
    """With nothing more to follow; --once tells the same."""
    code, out, err = run(log)
    assert (code, err) == (0, "")
    assert out.startswith("ended after 1 s; 30 batches\n")
    assert "epoch start: 30.0 ms" in out
    assert run(log, "--once") == (0, out, "")


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


def test_a_terminal_shows_a_screen_and_ctrl_c_ends_it(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one state, of a run that goes on, and of one that is waited for."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    for options in ((), ("--once",)):
        code, out, err = run(log, *options)
        assert (code, err) == (0, "")
        assert "100 images/s  75.0%" in out

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    log.unlink()
    monkeypatch.setattr(command, "follow", partial(follow, sleep=interrupt))
    code, out, err = run(log)
    assert (code, err) == (0, "")
    assert "Waiting for a run log" in " ".join(out.split())
