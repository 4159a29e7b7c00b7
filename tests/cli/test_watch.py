"""`loadeval watch`: a run is followed while it goes on."""

from __future__ import annotations

import json
import os
import time
from functools import partial
from pathlib import Path

import pytest

from loadeval.cli import watch as command
from loadeval.cli.watch import follow
from loadeval.data.log import read_run
from loadeval.errors import RunLogError
from tests.cli.commands import runner
from tests.recordings import laid_out
from tests.runs.measured import record

MS = 1_000_000
run = runner("watch")
compare = runner("compare")


@pytest.fixture(name="log")
def _log(tmp_path: Path) -> Path:
    """A run of 30 batches: waits of 30 ms, steps of 10 ms."""
    return record(tmp_path / "run.jsonl")


@pytest.fixture(name="job")
def _job(tmp_path: Path) -> Path:
    return tmp_path / laid_out("ranks", tmp_path)[0]


def test_the_last_minute_stands_above_the_whole_run(tmp_path: Path) -> None:
    """Below it is what `compare` says."""
    waits_ns = [30 * MS] * 4_000 + [90 * MS] * 1_000
    log = record(tmp_path / "run.jsonl", waits_ns=waits_ns, probes=())
    code, out, err = run(log, "--once")
    assert (code, err) == (0, "")
    recent, whole = out.split("\n\n")[:2]
    assert recent.startswith("The last minute: Training waited for batches 90.0% of the time")
    assert whole.startswith("Training waited for batches ")
    assert compare(log)[1].startswith(whole)


def test_a_run_that_alternated_has_no_last_minute(tmp_path: Path) -> None:
    log = record(tmp_path / "run.jsonl", "alternate", epochs=4)
    assert run(log, "--once")[1].startswith("Highly input-bound")


def test_where_no_batch_comes_there_is_no_last_minute(log: Path) -> None:
    """It is told for how long."""
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
    then_s = time.time() - 3_600
    os.utime(log, (then_s, then_s))
    assert run(log, "--once")[1].startswith("Caution: run.jsonl: no batch for 1 h")


def test_before_the_first_batch_nothing_is_said_of_the_run(log: Path) -> None:
    log.write_bytes(log.read_bytes().splitlines(keepends=True)[0])
    assert run(log, "--once") == (0, "No batch so far\n", "")


def test_a_job_is_followed_as_one(job: Path) -> None:
    assert "3 ranks of one job waited for batches " in run(job, "--once")[1]


def test_json_is_that_of_compare(log: Path, job: Path) -> None:
    for path in (log, job):
        assert json.loads(run(path, "--json")[1]) == json.loads(compare(path, "--json")[1])


def test_once_does_not_wait(tmp_path: Path) -> None:
    """A log that is not there, or has no whole line yet, is an error."""
    path = tmp_path / "run.jsonl"
    for content in (None, "", '{"type":'):
        if content is not None:
            path.write_text(content)
        code, out, err = run(path, "--once")
        assert (code, out) == (1, "")
        assert err.startswith("Error: ")


def test_a_log_is_waited_for_and_followed_to_its_end(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = log.read_bytes()
    *lines, last = content.splitlines(keepends=True)
    todo = iter([b"".join(lines), b"".join(lines)[:-7], b"".join([*lines, last])])
    log.write_bytes(b"")
    with pytest.raises(RunLogError) as missing:
        read_run(log)
    follow(log, 2.0, lambda seconds: None if seconds < 2.0 else log.write_bytes(next(todo)))
    assert next(todo, None) is None
    out, err = capsys.readouterr()
    assert err == f"Waiting for a run log: {missing.value}\n"
    assert out.count("\nTraining waited for batches 75.0% of the time") == 1
    assert out.endswith("\n")


def test_a_terminal_shows_a_screen_and_ctrl_c_ends_it(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a run that has ended, and of one that is waited for."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    code, out, err = run(log)
    assert (code, err) == (0, "")
    assert "Training waited for batches 75.0% of the time" in out

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    log.write_bytes(b"")
    monkeypatch.setattr(command, "follow", partial(follow, sleep=interrupt))
    code, out, err = run(log)
    assert (code, err) == (0, "")
    assert "Waiting for a run log" in " ".join(out.split())
