"""Trainings that are looked after from outside: when they are looked at, and what is said once."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loadeval.launch.hangs import Found, HangWatch
from loadeval.probes.looks import Look, LookedAt
from tests.attach.seen import PACKAGES, READ, fetching, frame, idle, looks, observed, waiting
from tests.attach.seen import SECOND_NS as SECOND
from tests.runs.given import MS
from tests.runs.measured import record

HERE = os.getpid()
WAITS = observed(HERE, waiting(worker_id=0), parent=1)
STUCK = observed(7, fetching(READ), "recvfrom", parent=HERE)
STEP = observed(HERE, (frame("backward", line=40),), "futex", parent=1)
ALL_REDUCE = frame("all_reduce", f"{PACKAGES}/torch/distributed/distributed_c10d.py")
IN_ALL_REDUCE = observed(HERE, (ALL_REDUCE, frame("backward", line=40)), "futex", parent=1)
FEWER: dict[str, Any] = {"rank": 1, "world_size": 2, "pid": 2**22 + 1, "batches": 20, "ended": True}
"""Of a rank whose epoch is over, and whose process is gone."""


def going_on(path: Path, *, ended: bool = False, **options: Any) -> Path:
    """The log at `path` of a run that goes on: without its end, and in an epoch unless `ended`.

    `options` are those of the run, or of its environment.
    """
    names = ("batches", "wait_ms", "step_ns")
    environment = {name: value for name, value in options.items() if name not in names}
    of_run = {name: value for name, value in options.items() if name in names}
    whole = path.with_suffix(".whole")
    record(whole, **{"wait_ms": 30, "step_ns": 100 * MS, **of_run})
    header, *lines = map(json.loads, whole.read_text().splitlines())
    whole.unlink()
    header["environment"] |= environment
    left_out = {"end"} if ended else {"end", "epoch"}
    kept = [header, *(line for line in lines if line["type"] not in left_out)]
    texts = (json.dumps(line, separators=(",", ":")) for line in kept)
    path.write_text("".join(f"{text}\n" for text in texts))
    return path


class Watched:
    """A HangWatch whose clock is moved by hand; `seen` is what looking at a process shows.

    `meanwhile` happens between two looks.
    """

    def __init__(self, path: Path, hang_after_s: float | None = 30.0, **options: Any) -> None:
        log = path if path.is_file() else next(iter(sorted(path.glob("*.jsonl"))))
        self.now_s = log.stat().st_mtime
        self.seen: Callable[[int], Look | None] = lambda _: None
        self.meanwhile: Callable[[], object] = bool
        self.pids: list[int] = []
        self.hangs = HangWatch(
            path,
            hang_after_s,
            now_s=lambda: self.now_s,
            sleep=self._sleep,
            look_at=self._look_at,
            **options,
        )

    def _sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.meanwhile()

    def _look_at(self, pid: int) -> Look | None:
        self.pids.append(pid)
        return self.seen(pid)

    def see(self, *processes: LookedAt) -> Watched:
        """From now on these are seen, whoever is looked at."""
        self.seen = lambda _: looks(*processes, after_s=self.now_s)[1]
        return self

    def after(self, seconds: float) -> Found | None:
        """What is found so much later."""
        self.now_s += seconds
        return self.hangs.look()


def test_a_hang_is_said_once(tmp_path: Path) -> None:
    """Once no batch came for so long, and nothing moved between two looks."""
    watched = Watched(going_on(tmp_path / "rank0.jsonl").parent).see(WAITS, STUCK)
    assert watched.after(29) is None
    assert watched.pids == []
    found = watched.after(2)
    assert watched.pids == [HERE, HERE]
    assert found is not None
    assert (found.hang.cause, found.hang.is_hang, found.hang.sample) == ("io", True, 9)
    assert found.hang.silent_ns == pytest.approx(34 * SECOND, rel=0.01)
    assert (found.hang.batches, found.ranks) == (30, (found.hang,))
    assert [watched.after(seconds) for seconds in (1, 20, 1_000)] == [None] * 3


def test_the_next_silence_is_said_too(tmp_path: Path) -> None:
    path = going_on(tmp_path / "rank0.jsonl")
    watched = Watched(tmp_path).see(WAITS, STUCK)
    assert watched.after(31) is not None
    going_on(path, batches=60)
    os.utime(path, (watched.now_s, watched.now_s))
    assert watched.after(20) is None
    assert watched.after(31) is not None


@pytest.mark.parametrize(("wait_ms", "limit_s"), [(30, 30), (5_000, 50)])
def test_by_default_ten_times_the_longest_wait(wait_ms: int, limit_s: int, tmp_path: Path) -> None:
    """And 30 s at least."""
    watched = Watched(going_on(tmp_path / "rank0.jsonl", wait_ms=wait_ms), None).see(WAITS, STUCK)
    assert watched.after(limit_s - 1) is None
    assert watched.pids == []
    assert watched.after(2) is not None


def test_who_moves_is_said_once_and_looked_at_again(tmp_path: Path) -> None:
    """It is at work, which is no hang; once it does not move any more, it is one."""
    watched = Watched(going_on(tmp_path / "rank0.jsonl"))
    began_s, causes = watched.now_s, []

    def seen(_: int) -> Look:
        sample = int(min(watched.now_s - began_s, 60))
        worker = observed(7, fetching(READ, sample=sample), "recvfrom", parent=HERE)
        return looks(WAITS, worker, after_s=watched.now_s)[1]

    watched.seen = seen
    while watched.now_s < began_s + 100:
        found = watched.after(1)
        causes += [] if found is None else [found.hang.cause]
    assert causes == ["slow", "io"]


@pytest.mark.parametrize("ago_s", [0, 34])
def test_a_batch_that_comes_meanwhile_ends_the_silence(ago_s: int, tmp_path: Path) -> None:
    """Even where none has come since, as after a pause of the whole machine."""
    path = going_on(tmp_path / "rank0.jsonl")
    watched = Watched(path).see(WAITS, STUCK)

    def comes() -> None:
        going_on(path, batches=60)
        os.utime(path, (watched.now_s - ago_s,) * 2)

    watched.meanwhile = comes
    assert watched.after(31) is None


def test_a_step_that_takes_long_is_none(tmp_path: Path) -> None:
    watched = Watched(going_on(tmp_path / "rank0.jsonl")).see(STEP)
    assert (watched.after(31), watched.pids) == (None, [HERE, HERE])


def test_a_rank_whose_process_is_gone_had_fewer_batches(tmp_path: Path) -> None:
    going_on(tmp_path / "rank0.jsonl", rank=0, world_size=2)
    going_on(tmp_path / "rank1.jsonl", **FEWER)
    found = Watched(tmp_path).see(IN_ALL_REDUCE).after(31)
    assert found is not None
    assert (found.hang.cause, found.hang.says.rpartition(": ")[2]) == (
        "uneven",
        "rank 1 had 20 batches, and this one 30",
    )


def test_a_rank_that_is_an_epoch_behind_is_waited_for(tmp_path: Path) -> None:
    """It may write a checkpoint, or evaluate, while the others are in their next epoch."""
    log = going_on(tmp_path / "rank0.jsonl", rank=0, world_size=2)
    log.write_text(log.read_text().replace('"epoch":0', '"epoch":1'))
    going_on(tmp_path / "rank1.jsonl", **FEWER)
    assert Watched(tmp_path).see(IN_ALL_REDUCE).after(31) is None


def test_the_batches_of_any_loader_of_a_process_count(tmp_path: Path) -> None:
    """Its validation goes on while training gets none."""
    going_on(tmp_path / "rank0.jsonl")
    validation = going_on(tmp_path / "rank0-validation.jsonl")
    watched = Watched(tmp_path).see(WAITS, STUCK)
    os.utime(validation, (watched.now_s + 20,) * 2)
    assert watched.after(34) is None
    assert watched.pids == []
    assert watched.after(17) is not None


HIDDEN = "host-1f3a90c25b7d4e68"


@pytest.mark.parametrize(
    "environment", [{"host": "another"}, {"host": HIDDEN}, {"pid": 2**22 + 1}, {"pid": None}]
)
def test_processes_of_this_machine_alone(environment: dict[str, Any], tmp_path: Path) -> None:
    watched = Watched(going_on(tmp_path / "rank0.jsonl", **environment)).see(WAITS, STUCK)
    assert watched.after(31) is None
    assert watched.pids == []


def test_a_redacted_log_is_of_this_machine_if_its_process_has_it_open(tmp_path: Path) -> None:
    """No run but that itself knows what its placeholder stands for."""
    watched = Watched(going_on(tmp_path / "rank0.jsonl", host=HIDDEN)).see(WAITS, STUCK)
    with (tmp_path / "rank0.jsonl").open():
        assert watched.after(31) is not None


def test_a_log_that_was_removed_is_no_hang(tmp_path: Path) -> None:
    """Its training goes on, and nobody sees its batches."""
    log = going_on(tmp_path / "rank0.jsonl")
    watched = Watched(log).see(WAITS, STUCK)
    assert watched.after(1) is None
    log.unlink()
    assert watched.after(31) is None


def test_a_run_that_has_ended_and_logs_that_cannot_be_read(tmp_path: Path) -> None:
    """Neither is looked at, nor keeps others from being."""
    watched = Watched(record(tmp_path / "ended.jsonl"))
    assert (watched.after(31), watched.pids) == (None, [])
    (tmp_path / "damaged.jsonl").write_text("no log\n")
    (tmp_path / "empty.jsonl").touch()
    going_on(tmp_path / "rank0.jsonl")
    assert Watched(tmp_path).see(WAITS, STUCK).after(31) is not None


def test_of_two_ranks_the_one_that_the_other_waits_for(tmp_path: Path) -> None:
    parent = os.getppid()
    going_on(tmp_path / "rank0.jsonl", rank=0, world_size=2)
    going_on(tmp_path / "rank1.jsonl", rank=1, world_size=2, pid=parent)
    file = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
    waits = observed(HERE, (frame("all_reduce", file),), "futex", parent=1)
    loads = observed(parent, waiting(worker_id=0), parent=1)
    stuck = observed(7, fetching(READ), "recvfrom", parent=parent)
    watched = Watched(tmp_path)

    def seen(pid: int) -> Look:
        processes = (waits, observed(8, idle(0), parent=HERE)) if pid == HERE else (loads, stuck)
        return looks(*processes, after_s=watched.now_s)[1]

    watched.seen = seen
    found = watched.after(31)
    assert found is not None
    assert (found.hang.rank, found.hang.cause) == (1, "io")
    assert [(hang.rank, hang.cause) for hang in found.ranks] == [(0, "collective"), (1, "io")]


def hang_in(path: Path, **options: Any) -> Found:
    found = Watched(path, **options).see(WAITS, STUCK).after(31)
    assert found is not None
    return found


def test_all_stacks_are_in_a_file(tmp_path: Path) -> None:
    """A new one, in the folder of the logs or beside the log; none where that is redacted."""
    log = going_on(tmp_path / "rank0.jsonl")
    assert hang_in(tmp_path).path == tmp_path / "hang-1.txt"
    assert hang_in(tmp_path).path == tmp_path / "hang-2.txt"
    assert hang_in(log).path == tmp_path / "hang-3.txt"
    assert hang_in(log, redact=True).path is None
    text = (tmp_path / "hang-1.txt").read_text()
    assert "no batch for 34 s: worker 0 (process 7) is stuck" in text
    assert ": python train.py" in text
    assert "/home/me/data.py:31 Photographs.__getitem__" in text


def test_what_was_found_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the file of stacks as it is seen from here."""
    said: list[str] = []
    monkeypatch.chdir(tmp_path)
    watched = Watched(going_on(tmp_path / "rank0.jsonl").parent).see(WAITS, STUCK)
    assert not watched.hangs.poll(said.append)
    watched.now_s += 31
    assert watched.hangs.poll(said.append)
    assert said[0].startswith("loadeval: no batch for 34 s: worker 0 (process 7) is stuck in")
    assert said[-1].endswith("stacks  hang-1.txt")


def test_a_failure_of_ours_is_silent_and_the_last(tmp_path: Path) -> None:
    """It may not end the program that is looked after."""
    calls: list[int] = []
    watched = Watched(going_on(tmp_path / "rank0.jsonl").parent)

    def fail(pid: int) -> Look:
        calls.append(pid)
        raise OSError(5, "Input/output error")

    watched.seen = fail
    watched.now_s += 31
    assert not watched.hangs.poll(pytest.fail)
    watched.now_s += 31
    assert not watched.hangs.poll(pytest.fail)
    assert calls == [HERE]
