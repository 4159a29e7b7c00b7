"""Workers without a shard, and workers that end early."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis.rules.finding import Advice, Rule, Unknown
from loadeval.data.columns import UNKNOWN
from loadeval.data.lines import EpochEnd
from loadeval.report.wording.findings import finding_sentence
from tests.analysis.rules.conftest import (
    NOTHING,
    advised,
    diagnosed,
    finding_of,
    gains,
    numbers,
    outcome,
)
from tests.runs.given import MS
from tests.runs.looked_into import COUNT, COUNTED, code, logged, looked_into
from tests.runs.tables import replace, rows_of, with_steps

if TYPE_CHECKING:
    from loadeval.data.run import Run

NUMBER = np.arange(COUNT)
A_THIRD = pytest.approx(1 / 3, abs=0.02)


def of_few_shards(**given: Any) -> Run:
    """Two workers load, of four that there are."""
    return looked_into(**{"fetch": 60, "loader": {"workers": 4, "prefetch_depth": 8}, **given})


def test_few_shards() -> None:
    """How many have nothing, and that two more would do."""
    finding = finding_of(Rule.FEW_SHARDS, of_few_shards())
    assert finding.problem.values == {"idle": 2, "workers": 4}
    assert numbers(finding) == {Advice.MORE_SHARDS: {"idle": 2, "workers": 4, "busy": 2}}
    assert finding.cost_share == A_THIRD
    gain = gains(finding)[Advice.MORE_SHARDS]
    low, speedup, high = (float(str(gain[name])) for name in ("low", "speedup", "high"))
    assert low < speedup < high
    assert speedup == pytest.approx(1.35, abs=0.02)


def test_shards_come_before_what_the_one_worker_waits_for() -> None:
    """More requests would bring more, but the second worker has nothing to ask for."""
    kernel = code({}, {"data.py:31 __iter__ > sk_wait_data": 95})
    run = of_few_shards(
        workers=1, fetch=80, blocked=0.95, seen=kernel, loader={"workers": 2, "prefetch_depth": 4}
    )
    rules = [finding.rule for finding in diagnosed(run).findings]
    assert rules[:2] == [Rule.FEW_SHARDS, Rule.STORAGE_LATENCY]
    gain = gains(finding_of(Rule.FEW_SHARDS, run))[Advice.MORE_SHARDS]
    assert float(str(gain["speedup"])) == pytest.approx(2.0, abs=0.1)


@pytest.mark.parametrize(
    ("shards", "sentence"),
    [
        (1, "2 of 4 workers made no batch: the dataset has 1 shard."),
        (4, "2 of 4 workers made no batch."),  # there is one for each
    ],
)
def test_shards_that_the_dataset_tells(shards: int, sentence: str) -> None:
    """They are said where they are too few."""
    loader = {"workers": 4, "prefetch_depth": 8, "shards": shards}
    finding = finding_of(Rule.FEW_SHARDS, of_few_shards(loader=loader))
    assert finding_sentence(finding) == sentence
    assert finding.evidence[-1].value == shards
    assert advised(finding) == [Advice.MORE_SHARDS]


def test_what_makes_more_shards_is_said_where_the_adapter_tells() -> None:
    names = {"num_workers": "num_workers", "num_shards": "Records(parts=...)"}
    loader = {"workers": 4, "prefetch_depth": 8, "setting_names": names}
    finding = finding_of(Rule.FEW_SHARDS, of_few_shards(loader=loader))
    assert numbers(finding)[Advice.SHARDS_MADE_BY] == {"setting": "Records(parts=...)"}


def test_more_workers_are_not_advised_where_some_are_idle() -> None:
    """What they lack is data."""
    finding = finding_of(Rule.SLOW_TRANSFORM, of_few_shards(fetch=120, transforms={"blur": 0.5}))
    assert advised(finding) == [Advice.CHEAPER_NAMED, Advice.NO_MORE_WORKERS]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "found"),
        ({"fetch": 30}, NOTHING),
        ({"loader": {"workers": 2}}, NOTHING),
        ({"samples": np.where(NUMBER % 2 == 1, 0, 4)}, "found"),  # a worker with empty batches
        ({"samples": UNKNOWN}, NOTHING),  # nobody knows who has any
    ],
)
def test_when_shards_are_few(given: dict[str, Any], expected: str) -> None:
    """Some workers have none, and are needed."""
    assert outcome(Rule.FEW_SHARDS, of_few_shards(**given)) == expected


@pytest.mark.parametrize(("batches", "expected"), [(17, "found"), (15, NOTHING)])
def test_epochs_too_short_to_tell_shards(batches: int, expected: str) -> None:
    """In an epoch of few batches workers have none, however many epochs there are."""
    given = of_few_shards()
    (times,) = rows_of(given)
    parts = [
        replace(times.part(NUMBER // batches == epoch), epoch=epoch, batch=np.arange(batches))
        for epoch in range(COUNT // batches)
    ]
    assert outcome(Rule.FEW_SHARDS, replace(given, stages=tuple(parts))) == expected


def with_tail(tail: int = 40, wait: float = 20.0, cause: Any = "exhausted", **loader: Any) -> Run:
    """A log in which two workers load batches in turn, and one alone the last `tail` ones.

    Each of these is waited for `wait` ms, the others 1 ms; a step takes 20 ms.
    """
    run = logged(fetch=21)
    (times,) = rows_of(run)
    is_tail = COUNT - tail <= NUMBER
    wait_ns = (np.where(is_tail, wait, 1.0) * MS).astype(np.int64)
    requested_ns = NUMBER * 100 * MS
    times = replace(
        times,
        worker=np.where(is_tail, 0, NUMBER % 2),
        requested_ns=requested_ns,
        delivered_ns=requested_ns + wait_ns,
    )
    run = with_steps(run, request_ns=requested_ns[-COUNTED:], wait_ns=wait_ns[-COUNTED:])
    header = replace(run.header, loader=replace(run.header.loader, **loader))
    return replace(run, header=header, stages=(times,), ends=(EpochEnd(0, cause),))


def test_a_tail_that_one_worker_loads() -> None:
    """40 of 100 batches are each waited for 19 ms longer, of 28.6 ms that a batch takes."""
    finding = finding_of(Rule.UNEVEN_SHARDS, with_tail())
    assert finding.confidence == "measured"
    assert finding.cost_share == pytest.approx(0.4 * 19 / (21 + 0.4 * 19), rel=0.03)
    assert finding_sentence(finding) == (
        "Some workers end early: the last 40.0% of an epoch's batches come from fewer of the 2 "
        "workers, in the end from 1. Training waits 20.0 ms for each of these, and 1.00 ms for "
        "one before."
    )
    assert advised(finding) == [Advice.EQUAL_SHARDS]


@pytest.mark.parametrize(("shards", "codes"), [(3, [Advice.SHARDS_LEFT_OVER]), (4, [])])
def test_shards_that_no_number_of_workers_divides(shards: int, codes: list[Advice]) -> None:
    """Three shards on two workers are said to be uneven by their number."""
    finding = finding_of(Rule.UNEVEN_SHARDS, with_tail(shards=shards))
    assert advised(finding) == [Advice.EQUAL_SHARDS, *codes]
    assert finding.evidence[-1].value == shards


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"wait": 3.4}, NOTHING),  # what is lost is under 5% of the time
        ({"wait": 0.0}, NOTHING),
        ({"tail": 3}, NOTHING),  # the last batches of workers that end together
        ({"tail": 90}, Unknown.TOO_FEW_BATCHES),  # nothing to compare with
        ({"cause": "broken off"}, Unknown.EPOCH_LENGTH_UNKNOWN),
    ],
)
def test_when_shards_are_uneven(given: dict[str, Any], expected: Any) -> None:
    """The tail is waited for, and long enough; the epoch was seen to its end."""
    assert outcome(Rule.UNEVEN_SHARDS, with_tail(**given)) == expected


def test_the_tail_explains_its_waits() -> None:
    """Neither stalls, nor a slower second half, nor the rest of the loader is found beside it."""
    assert [finding.rule for finding in diagnosed(with_tail()).findings] == [Rule.UNEVEN_SHARDS]


def test_what_waits_before_the_tail_is_told_too() -> None:
    """Where all batches are waited for, the rest has a cause of its own."""
    run = with_tail()
    (times,) = rows_of(run)
    longer = replace(times, delivered_ns=times.delivered_ns + 10 * MS)
    run = with_steps(run, wait_ns=run.steps.wait_ns + 10 * MS)
    rules = [finding.rule for finding in diagnosed(replace(run, stages=(longer,))).findings]
    assert rules[0] is Rule.WAITING
    assert Rule.UNEVEN_SHARDS in rules


def test_batches_of_no_worker_have_no_tail() -> None:
    """The training process loaded them."""
    run = with_tail()
    (times,) = rows_of(run)
    alone = replace(run, stages=(replace(times, worker=np.full(COUNT, UNKNOWN)),))
    assert outcome(Rule.UNEVEN_SHARDS, alone) == NOTHING
