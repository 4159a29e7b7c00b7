"""The memory of workers: pages that each copies after a fork, and what it keeps of batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis.estimate.memory import GrowthAdvice, GrowthReason
from loadeval.analysis.inside.worker_memory import bytes_kept, copies_of, memory_of_workers
from loadeval.analysis.rules.finding import Advice, Problem, Rule, Unknown
from loadeval.data.columns import UNKNOWN
from loadeval.data.lines import WorkerStart
from loadeval.report.wording.findings import describe, value_in_words
from tests.analysis.rules.conftest import NOTHING, advised, diagnosed, finding_of, outcome
from tests.runs.given import level
from tests.runs.looked_into import COUNT, code, looked_into
from tests.runs.tables import readings_lines, replace, rows_of

if TYPE_CHECKING:
    from loadeval.data.columns import Column
    from loadeval.data.run import Run

MB = 1_000_000
NUMBER = np.arange(COUNT)
FAULTS = 2000
COPIED = FAULTS * 4096 * NUMBER // 2
"""What each of two workers has copied by each batch, where all its faults copy."""
SEEN = code({"data.py:31 __getitem__": 100})


def read(values: Column, every: int = 20) -> Column:
    """`values` of the first batches of both workers, and of two in every so many."""
    return np.where(NUMBER % every < 2, values, UNKNOWN)


def copying(kernel: float = 0.8, copied: Column = COPIED, **given: Any) -> Run:
    """Batches of 60 ms, which two workers cannot load in time, so much of it in the kernel."""
    memory = {
        "minor_faults": FAULTS,
        "system_ns": int(kernel * 60e6) if kernel > 0 else UNKNOWN,
        "private_bytes": read(9 * MB + copied),
        "shared_bytes": read(900 * MB - copied),
    }
    run = looked_into(**{"fetch": 60, "seen": SEEN, **memory, **given})
    loader = replace(run.header.loader, start_method="fork")
    return replace(run, header=replace(run.header, loader=loader))


def method(run: Run, start_method: str | None) -> Run:
    loader = replace(run.header.loader, start_method=start_method)
    return replace(run, header=replace(run.header, loader=loader))


def test_workers_that_copy_what_they_read() -> None:
    """They are the cause, not the code that reads, and the faults' kernel time is what is gained.

    A fault is not taken to need more than 10 us of it.
    """
    run = copying()
    finding = finding_of(Rule.COPIED_PAGES, run)
    assert diagnosed(run).findings[0] == finding
    assert finding.problem.code is Problem.PAGES_COPIED
    values = finding.problem.values
    assert values["copied_bytes"] == pytest.approx(FAULTS * 4096 * 40, rel=0.02)
    assert values["all_bytes"] == 2 * float(values["copied_bytes"] or 0)
    assert values["shared_bytes"] == pytest.approx(900 * MB, rel=0.01)
    assert values["share"] == pytest.approx(1 / 3, rel=0.03)
    assert advised(finding) == [Advice.PACK_DATASET]
    assert float(finding.changes[0].values["speedup"] or 0) > 1.3
    assert describe(finding).startswith("Each worker has copied 32")


def test_what_the_dataset_holds_is_evidence() -> None:
    """The number of its Python objects and their size, where these were estimated."""
    run = copying()
    loader = replace(run.header.loader, dataset_objects=2_000_001, dataset_object_bytes=310 * MB)
    given = replace(run, header=replace(run.header, loader=loader))
    evidence = {
        fact.name: value_in_words(fact) for fact in finding_of(Rule.COPIED_PAGES, given).evidence
    }
    assert evidence["Python objects of the dataset, estimated"] == "2,000,001"
    assert evidence["their size, estimated"] == "310 MB"
    names = [fact.name for fact in finding_of(Rule.COPIED_PAGES, run).evidence]
    assert "their size, estimated" not in names


def test_the_code_that_copies_is_not_slow_besides() -> None:
    """It is where it dominates without what it copies."""
    assert outcome(Rule.SLOW_FETCH, copying(minor_faults=5000, copied=5 * COPIED // 2)) == NOTHING
    assert outcome(Rule.SLOW_FETCH, copying()) == "found"


@pytest.mark.parametrize(
    "given",
    [
        {"copied": COPIED // 100},  # little, as of any worker
        {"copied": COPIED // 4},  # most faults are for new pages
        {"private_bytes": read(9 * MB + 0 * NUMBER)},  # others have gone, with whom it shared
        {"fetch": 20, "kernel": 0.1},  # training does not wait
    ],
)
def test_what_is_no_copying(given: dict[str, Any]) -> None:
    assert outcome(Rule.COPIED_PAGES, copying(**given)) == NOTHING


def test_what_was_not_read_is_not_measured() -> None:
    """As in older logs, on other systems, and of workers that are not forked."""
    unknown = Unknown.WORKER_MEMORY_NOT_READ
    assert outcome(Rule.COPIED_PAGES, copying(kernel=0.0)) is unknown
    assert outcome(Rule.COPIED_PAGES, copying(private_bytes=UNKNOWN)) is unknown
    assert outcome(Rule.COPIED_PAGES, copying(private_bytes=read(NUMBER, COUNT))) is unknown
    assert outcome(Rule.COPIED_PAGES, method(copying(), None)) == "found"
    assert outcome(Rule.COPIED_PAGES, method(copying(), "spawn")) is Unknown.NOT_FORKED
    in_training = looked_into(workers=0, fetch=60)
    assert outcome(Rule.COPIED_PAGES, in_training) is Unknown.NOT_FORKED
    assert memory_of_workers(in_training) == ()
    assert copies_of(replace(in_training, stages=())) is None


def test_workers_that_are_started_anew_share_anew() -> None:
    """What one has copied, the next has not."""
    run = copying()
    (times,) = rows_of(run)
    starts = tuple(WorkerStart(epoch, worker, 0, 1, 2, 0) for epoch in (0, 1) for worker in (0, 1))
    again = replace(run, stages=(times, replace(times, epoch=1)), worker_starts=starts)
    memories = memory_of_workers(again)
    assert [memory.worker for memory in memories] == [0, 0, 1, 1]
    assert {memory.copied_bytes for memory in memories} == {FAULTS * 4096 * 40}
    once = replace(again, worker_starts=starts[:2])
    assert [memory.copied_bytes for memory in memory_of_workers(once)] == [FAULTS * 4096 * 40] * 2


AT = np.array([0, 6, 12, 24, 48, 96])
"""Batches at which the memory of the first worker was read; that of the other at the next ones."""
GB = 10**9


def keeping(
    kept: Column = 2 * MB * NUMBER, free: float | None = 10 * GB, epochs: int = 1, **given: Any
) -> Run:
    """Batches of which two workers have kept so many bytes by each, with so much memory free."""
    is_read = np.isin(NUMBER, [*AT, *(AT + 1)])
    memory = {
        "private_bytes": np.where(is_read, 9 * MB + kept, UNKNOWN),
        "shared_bytes": np.where(is_read, 100 * MB, UNKNOWN),
    }
    run = looked_into(**{"fetch": 20, **memory, **given})
    starts = [
        WorkerStart(epoch, worker, 0, 1, 2, 0) for epoch in range(epochs) for worker in (0, 1)
    ]
    readings = () if free is None else (level("host", "machine", "memory_available_bytes", free),)
    return replace(run, readings=(*readings_lines(run), *readings), worker_starts=tuple(starts))


def test_workers_that_keep_what_they_read() -> None:
    """Each keeps 2 MB of each batch of the loader, of which it loads one in two."""
    run = keeping()
    assert bytes_kept(run) == pytest.approx(4 * MB, rel=0.05)
    finding = finding_of(Rule.WORKER_MEMORY, run)
    assert (finding.problem.code, finding.severity) == (Problem.WORKERS_KEEP_MORE, "high")
    assert (finding.cost_share, advised(finding)) == (None, [GrowthAdvice.BOUND_WORKER_CACHES])
    values = finding.problem.values
    assert values["each_bytes"] == pytest.approx(2 * GB, rel=0.05)
    assert values["batches"] == pytest.approx(2500, rel=0.05)
    assert float(values["left_ns"] or 0) == pytest.approx(2500 * 20e6, rel=0.2)
    assert describe(finding).startswith("Each of the 2 workers keeps 2")


def test_what_would_fill_memory_in_days_matters_less() -> None:
    """And in a week not at all."""
    assert finding_of(Rule.WORKER_MEMORY, keeping(free=40_000 * GB)).severity == "moderate"
    assert outcome(Rule.WORKER_MEMORY, keeping(free=400_000 * GB)) is GrowthReason.NO_READINGS


@pytest.mark.parametrize(
    "given",
    [
        {"kept": 200 * MB * (1 - np.exp(-NUMBER / 10))},  # a cache that is full
        {"kept": 0 * NUMBER},
        {"kept": -MB * NUMBER},
        {"kept": 50 * MB * (NUMBER >= 24)},  # once
        {"free": None},
        {"workers": 0},
        {"epochs": 2},  # the workers are started anew before that matters
    ],
)
def test_what_does_not_fill_memory(given: dict[str, Any]) -> None:
    """Then the readings of all workers tell, of which there are none here."""
    assert outcome(Rule.WORKER_MEMORY, keeping(**given)) is GrowthReason.NO_READINGS


def test_what_fills_memory_within_an_epoch_matters_though_workers_start_anew() -> None:
    assert outcome(Rule.WORKER_MEMORY, keeping(epochs=2, free=2 * MB)) == "found"


def test_of_few_readings_nothing_is_told_to_grow() -> None:
    run = keeping()
    (times,) = rows_of(run)
    assert bytes_kept(replace(run, stages=(times.part(NUMBER < 40),))) == 0
    assert bytes_kept(replace(run, stages=())) == 0
