"""All that is said of trainings that were seen from outside, in files of tests/golden.

Of the planted hangs what was seen is recorded in tests/recorded/hangs.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from loadeval.attach.hang import Hang, hang_of, hang_of_job, no_batch_came, stacks_text
from loadeval.attach.marks import Training
from loadeval.attach.observe import Attached, attached, sections, with_hang
from loadeval.launch.hangs import Found
from loadeval.probes.looks import Look, Observation
from loadeval.probes.stacks import NO_STACKS, NOT_PERMITTED, ProcessStacks, ThreadStacks
from loadeval.report.as_json import as_json
from loadeval.report.text import lines
from tests.attach import seen
from tests.attach.seen import MARKS, PID, SECOND_NS, process, report_of
from tests.recorded import HANGS, hang_rows

Golden = Callable[[str, Any], None]

FOUND = hang_rows()
SILENT_NS = 10 * SECOND_NS
POOL = f"{seen.STANDARD}/concurrent/futures/thread.py"


def screen(report: Attached) -> str:
    """In 80 columns; each line fits but for the command."""
    shown = [line.plain for line in lines(sections(report), 80)]
    assert max(len(line) for line in shown if "loadeval run" not in line) <= 80
    return "\n".join(shown) + "\n"


def stuck(kind: str = "clock_nanosleep") -> Hang:
    """Worker 0 stays in a sample, and worker 1 is done."""
    owner = seen.observed(101, seen.fetching(seen.READ, sample=777, batch=97), kind)
    training = seen.observed(PID, seen.waiting(worker_id=0), parent=1)
    looks = seen.looks(training, owner, seen.observed(102, seen.idle(1)), after_s=10.0)
    return hang_of(looks, MARKS, SILENT_NS)


def waiting_for_one() -> Attached:
    workers = [process(101, *(seen.FETCH,) * 20, cpu=0.0), process(102, *(seen.ASK,) * 20, cpu=0.0)]
    return report_of(process(PID, *(seen.WAIT,) * 40, cpu=0.0), workers)


def test_a_training_that_waits(golden: Golden) -> None:
    golden("attach.txt", screen(seen.half_waiting(gpus={"GPU 0 (H100)": 41.0})))


def test_a_worker_that_is_stuck(golden: Golden) -> None:
    """The first line says which, where and since when; there are no findings of slow loaders."""
    report = waiting_for_one()
    assert report.findings
    golden("attach-stuck.txt", screen(with_hang(report, stuck())))


def test_a_worker_that_others_wait_behind_though_batches_come(golden: Golden) -> None:
    owner = seen.observed(101, seen.fetching(seen.READ, sample=8), "clock_nanosleep")
    first, last = seen.looks(seen.observed(PID, seen.waiting(worker_id=0), parent=1), owner)
    moved = seen.observed(101, seen.fetching(seen.READ), "clock_nanosleep")
    others = (moved, seen.observed(102, seen.idle(1)), seen.observed(103, seen.idle(2)))
    hang = hang_of([first, replace(last, others=others)], MARKS, SILENT_NS)
    golden("attach-slow-worker.txt", screen(with_hang(waiting_for_one(), hang)))


def test_a_training_that_loads_in_its_own_thread_and_in_others(golden: Golden) -> None:
    """It trains in another thread than the main one, and its pool works for the main one."""
    work = (seen.frame("decode", "/home/me/train/data.py", 7), seen.frame("_worker", POOL, 83))
    threads = (
        ThreadStacks(PID, "MainThread", (seen.MAIN,) * 20),
        ThreadStacks(7, "trainer", (seen.OWN_LOADING, seen.STEP) * 20),
        ThreadStacks(8, "pool-8", ((work,) * 20 + ((seen.frame("_worker", POOL, 81),),) * 20)),
    )
    training = process(PID, stacks=ProcessStacks(PID, threads, 2))
    golden("attach-threads.txt", screen(report_of(training, ended=True, command=())))


def test_a_process_whose_stacks_cannot_be_read(golden: Golden) -> None:
    """The kernel tells where its workers sleep."""
    asleep = (seen.moment("poll_schedule_timeout", call="poll"),) * 4
    workers = [process(pid, moments=asleep) for pid in (101, 102)]
    golden("attach-unread.txt", screen(report_of(process(PID, problem=NOT_PERMITTED), workers)))


@pytest.mark.parametrize("problem", NO_STACKS)
def test_why_there_are_no_stacks_is_said(problem: str) -> None:
    said = report_of(process(PID, problem=problem)).headline
    assert said.startswith(f"How long training process {PID} waits is not measured: ")


def test_as_json(golden: Golden) -> None:
    reports = [seen.half_waiting(), with_hang(waiting_for_one(), stuck())]
    golden("attach.json", {"trainings": as_json(reports)})


def recorded(name: str) -> list[tuple[dict[str, Any], list[Look]]]:
    text = gzip.decompress((HANGS / f"{name}.json.gz").read_bytes())
    return [
        (training, msgspec.convert(training["looks"], list[Look], strict=False))
        for training in json.loads(text)
    ]


def said_of(name: str) -> str:
    """What `run` says on stderr, and `attach`'s first line of each training."""
    trainings = recorded(name)
    hangs = [
        replace(
            hang_of(looks, MARKS, SILENT_NS),
            rank=rank if len(trainings) > 1 else None,
            batches=11 - rank,
        )
        for rank, (_, looks) in enumerate(trainings)
    ]
    over = {1: 10} if len(hangs) > 1 else {}
    found = Found(hang_of_job(hangs, len(hangs), over), tuple(hangs), Path("hang-1.txt"))
    told = [line.plain for line in lines([found.section()], 89)]
    return "\n".join([f"# {name}", *told, *map(no_batch_came, hangs), "", ""])


def test_planted_hangs(golden: Golden) -> None:
    golden("hangs.txt", "".join(map(said_of, FOUND)))


@pytest.mark.parametrize("name", FOUND)
def test_a_planted_hang_is_named(name: str) -> None:
    """By the cause and the place that the table of recordings has."""
    hangs = [hang_of(looks, MARKS, SILENT_NS) for _, looks in recorded(name)]
    hang = hang_of_job(hangs, len(hangs), {})
    assert hang.is_hang
    assert f"{hang.cause}: {hang.line or hang.collective}" == FOUND[name]


def test_what_is_observed_of_a_planted_hang(golden: Golden) -> None:
    ((training, looks),) = recorded("stuck_socket")
    observation = msgspec.convert(training["observation"], Observation, strict=False)
    told = Training(training["pid"], ("python", "train.py"), ())
    hang = hang_of(looks, MARKS, SILENT_NS)
    report = with_hang(attached(told, observation, MARKS, lambda _file, _line: ""), hang)
    golden("attach-recorded.txt", screen(report))


def test_the_file_of_all_stacks(golden: Golden) -> None:
    ((_, looks),) = recorded("killed_process")
    hang = hang_of(looks, MARKS, SILENT_NS)
    golden("hang-stacks.txt", stacks_text([hang], looks[1:]))
