"""The lines of a log that keeps one batch in N: excerpts and aggregates."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.errors import RunLogError
from loadeval.runlog.codec import decode, encode
from loadeval.runlog.model import UNKNOWN, Aggregate, Block, Excerpt, Header, Steps
from loadeval.runlog.reader import read_run
from loadeval.runlog.writer import write_metrics

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WHOLE = "a whole number, 0 or more"
TALLY: dict[str, Any] = {
    "type": "aggregate",
    "epoch": 2,
    "first": 5,
    "batches": 3,
    "request_ns": 100,
    "wait_ns": 30,
    "step_ns": 70,
    "samples": 12,
    "nbytes": None,
    "shortest_wait_ns": 5,
    "longest_wait_ns": 15,
    "slowest_batch": 7,
    "slowest_request_ns": 160,
    "slowest_wait_ns": 10,
    "slowest_step_ns": 30,
    "wait_bins": [5, 10, 15],
    "wait_counts": [1, 1, 1],
    "step_bins": [20, 30],
    "step_counts": [2, 1],
}
OPEN = {**TALLY, "first": 7, "batches": 1, "step_ns": None, "slowest_step_ns": None}
OPEN |= {"wait_bins": [10], "wait_counts": [1], "step_bins": [], "step_counts": []}
EXCERPT: dict[str, Any] = {
    "type": "excerpt",
    "epoch": 0,
    "arm": "real",
    "pair": None,
    "request_ns": [0, 20],
    "wait_ns": [10, 10],
    "step_ns": [5, None],
    "samples": [4, 4],
    "nbytes": None,
    "batch": [0, 100],
}


def wrong(line: dict[str, Any], **changes: Any) -> str:
    """What is said of `line` with `changes`."""
    with pytest.raises(RunLogError) as caught:
        decode({**line, **changes})
    return str(caught.value)


def test_a_aggregate_ends_with_its_last_step() -> None:
    """Batches follow on one another, so that their waits and steps add up to the time."""
    closed, still_open = decode(TALLY), decode(OPEN)
    assert isinstance(closed, Aggregate)
    assert isinstance(still_open, Aggregate)
    assert (closed.end_ns, still_open.end_ns) == (200, 130)


def test_a_part_of_an_excerpt_keeps_its_numbers() -> None:
    """Every column has the chosen rows alone; no row closes the step of another."""
    excerpt = decode(EXCERPT)
    assert isinstance(excerpt, Excerpt)
    assert excerpt.with_steps() is excerpt
    part = excerpt.part(slice(1, None))
    assert (part.batch.tolist(), part.request_ns.tolist(), len(part)) == ([100], [20], 1)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("epoch", None, WHOLE),
        ("first", -1, WHOLE),
        ("batches", 1.0, WHOLE),
        ("wait_ns", None, WHOLE),
        ("step_ns", "1", f"{WHOLE} or null"),
        ("samples", True, f"{WHOLE} or null"),
        ("slowest_step_ns", -1, f"{WHOLE} or null"),
        ("wait_bins", None, "a list of whole numbers"),
        ("wait_counts", [1, None, 1], WHOLE),
        ("step_bins", [20, -1], WHOLE),
        ("batches", 0, "a whole number, 1 or more"),
        ("step_ns", None, "the sum over several batches"),
        ("slowest_batch", 4, "the number of one of its batches"),
        ("slowest_batch", 8, "the number of one of its batches"),
        ("shortest_wait_ns", 16, "at most the longest"),
        ("wait_bins", [5, 5, 15], "bins under 944, in ascending order, each once,"),
        ("wait_bins", [5, 10, 944], "bins under 944, in ascending order, each once,"),
    ],
)
def test_fields_of_a_aggregate_are_checked(name: str, value: Any, expected: str) -> None:
    """A value of another type, or one that does not fit the others, is shown."""
    said = wrong(TALLY, **{name: value})
    assert said.startswith("has ")
    assert said.endswith(f" as {name!r}, where {expected} was expected")


@pytest.mark.parametrize(
    ("line", "changes", "found"),
    [
        (TALLY, {"wait_counts": [1, 1, 2]}, "4 batches in 3 values of 'wait_counts', where 3 in 3"),
        (TALLY, {"step_counts": [3]}, "3 batches in 1 values of 'step_counts', where 3 in 2"),
        (TALLY, {"wait_counts": [2**61] * 3}, f"{3 * 2**61} batches in 3 values"),
        (OPEN, {"step_bins": [1], "step_counts": [1]}, "1 batches in 1 values of 'step_counts'"),
    ],
)
def test_histograms_hold_every_batch(
    line: dict[str, Any], changes: dict[str, Any], found: str
) -> None:
    """Counts that do not add up to the batches are an error; open steps have none."""
    assert wrong(line, **changes).startswith(f"has {found}")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([0], "has 1 values in 'batch' and 2 in 'wait_ns', where as many were expected"),
        ([0, None], "has None as 'batch'"),
        (None, "has None as 'batch'"),
    ],
)
def test_every_row_of_an_excerpt_has_a_number(value: Any, said: str) -> None:
    """Numbers are as many as rows, and known."""
    assert said in wrong(EXCERPT, batch=value)


def test_a_header_that_thins_is_of_version_2(make_header: Callable[..., Header]) -> None:
    """It tells one in how many batches is kept; any other is of version 1."""
    fields = encode(make_header(every=100))
    assert (fields["version"], fields["every"]) == (2, 100)
    plain = encode(make_header())
    assert plain["version"] == 1
    assert "every" not in plain


def test_headers_have_what_their_version_has(make_header: Callable[..., Header]) -> None:
    """Version 1 knows nothing of thinning, and version 2 is for nothing else."""
    thinned, plain = encode(make_header(every=100)), encode(make_header())
    assert "has 'every', which the format does not know" in wrong(plain, every=100)
    assert "has no 'every'" in wrong(plain, version=2)
    for every in (0, 1):
        said = wrong(thinned, every=every)
        assert said == f"has {every} as 'every', where a whole number, 2 or more, was expected"


def test_what_is_thinned_is_a_log(thinned_log: Path) -> None:
    """The rows that were kept have their numbers, and no step is made up between them."""
    run = read_run(thinned_log)
    assert run.steps.epoch.tolist() == [0, 0, 1]
    assert run.steps.batch.tolist() == [0, 2, 0]
    assert run.steps.step_ns.tolist() == [5, 5, UNKNOWN]
    assert [(one.epoch, one.first, one.batches, one.step_ns) for one in run.aggregates] == [
        (0, 0, 1, 5),
        (0, 1, 3, 15),
        (1, 0, 1, None),
    ]
    assert (run.batches, run.closed) == (5, True)
    assert repr(run).endswith("5 batches)")
    assert run.notes[0].startswith("the detail of one batch in 2 is kept")


def test_a_thinned_run_comes_back_from_its_metrics(thinned_log: Path, tmp_path: Path) -> None:
    """A metrics file holds its excerpts and aggregates."""
    run = read_run(thinned_log)
    write_metrics(run, tmp_path / "metrics.json")
    again = read_run(tmp_path / "metrics.json")
    for name in Steps.__slots__:
        assert getattr(again.steps, name).tolist() == getattr(run.steps, name).tolist()
    assert [encode(one) for one in again.aggregates] == [encode(one) for one in run.aggregates]
    for name in ("header", "ends", "events", "closed", "notes"):
        assert getattr(again, name) == getattr(run, name)


def changed(path: Path, before: str, after: str) -> str:
    """What is said of the log with `after` for the first `before`, without its path."""
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))
    with pytest.raises(RunLogError) as caught:
        read_run(path)
    return str(caught.value).removeprefix(f"{path}, ")


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('"batch":[0,2]', '"batch":[0,3]', "line 2 has batch 3 of its epoch, where number 2 was"),
        ('"batch":[0,2]', '"batch":[2,4]', "line 2 has batch 2 of its epoch, where number 0 was"),
        ('"first":1,"batches":3', '"first":1,"batches":4', "has 3 batches in"),
        ('"first":1', '"first":0', "begins with batch 0 of its epoch, where number 1 was expected"),
        ('"request_ns":15,"wait_ns":30', '"request_ns":14,"wait_ns":30', "goes back in time"),
        ('"batches":5}', '"batches":3}', "says that the run had 3 batches, where 5 were expected"),
        ('"mode":"log"', '"mode":"replay"', "line 1 keeps one batch in 2 in mode 'replay'"),
        ('"every":2', '"every":4', "line 2 has batch 2 of its epoch, where number 4 was expected"),
    ],
)
def test_what_cannot_be_is_an_error(thinned_log: Path, before: str, after: str, said: str) -> None:
    """Numbers, times and sums of a thinned log fit together."""
    assert said in changed(thinned_log, before, after)


def test_excerpts_that_were_lost_are_missed(thinned_log: Path) -> None:
    """At the end of the run every N-th of the tallied batches has its row."""
    lines = thinned_log.read_text().splitlines(keepends=True)
    thinned_log.write_text("".join(line for line in lines if '"batch":[0,2]' not in line))
    with pytest.raises(RunLogError, match="after 0 batches in the excerpts of epoch 0, where 2 of"):
        read_run(thinned_log)


def test_kinds_of_logs_are_not_mixed(real_log: Path, thinned_log: Path) -> None:
    """A block in a thinned log, and an excerpt or an aggregate in another, are errors."""
    real, thinned = (log.read_text().splitlines() for log in (real_log, thinned_log))
    for header, lines in ((thinned[0], real), (real[0], thinned)):
        for line in lines:
            if json.loads(line)["type"] in {"block", "excerpt", "aggregate"}:
                real_log.write_text(f"{header}\n{line}\n")
                with pytest.raises(RunLogError, match=r"line 2 is (of another kind|an aggregate)"):
                    read_run(real_log)


def test_a_row_does_not_close_one_that_it_does_not_follow() -> None:
    """An unknown step of an excerpt stays so, whatever comes after it."""
    requests, none = np.array([0, 20]), np.zeros(2, dtype=np.int64)
    block = Block(0, "real", requests, none, np.full(2, UNKNOWN), none, none)
    steps = Steps.from_blocks([block.numbered(np.array([0, 2]))], [])
    assert steps.step_ns.tolist() == [UNKNOWN, UNKNOWN]
    assert Steps.from_blocks([block], []).step_ns.tolist() == [20, UNKNOWN]
