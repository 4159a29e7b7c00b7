"""What only an alternating log has: pairs, prefetches, windows, unmeasured epochs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.errors import RunLogError
from loadeval.runlog.codec import decode, encode, to_text
from loadeval.runlog.model import (
    UNKNOWN,
    Arm,
    Block,
    EpochEnd,
    Header,
    Prefetch,
    Run,
    Steps,
    Window,
)
from loadeval.runlog.reader import read_run
from loadeval.runlog.writer import RunLog, metrics_of, write_metrics

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from loadeval.runlog.codec import Line

PULL: dict[str, Any] = {
    "type": "prefetch",
    "pair": 0,
    "epoch": 7,
    "batches": 12,
    "timed": 8,
    "elapsed_ns": 900,
    "samples": 32,
    "longest_ns": 110,
}
WINDOW: dict[str, Any] = {
    "type": "window",
    "pair": 0,
    "epoch": 7,
    "arm": "ideal",
    "elapsed_ns": 70,
    "workers_cpu_ns": None,
}
PULLS = (Prefetch(0, 0, 3, 2, 70, 8), Prefetch(1, 1, 3, 2, 90, None))
WINDOWS = (Window(0, 0, "real", 40, 10_000_000), Window(0, 0, "ideal", 20, None))
ENDS = (EpochEnd(0, "exhausted", 400, 3), EpochEnd(1, "unmeasured"))


def block(
    began_ns: int, epoch: int = 0, arm: Arm = "real", pair: int | None = None, count: int = 2
) -> Block:
    """Batches requested 20 apart from `began_ns` on, each waiting 10."""
    column = np.full(count, 4)
    requests = began_ns + 20 * np.arange(count)
    unknown = np.full(count, UNKNOWN)
    return Block(epoch, arm, requests, column + 6, unknown, column, unknown, pair)


@pytest.fixture
def lines() -> list[Line]:
    """An epoch with a pair, and one that was left after its first batches; no header."""
    first: list[Line] = [
        block(0),
        block(40, pair=0),
        WINDOWS[0],
        PULLS[0],
        block(200, arm="ideal"),
        block(240, arm="ideal", pair=0),
        WINDOWS[1],
        ENDS[0],
    ]
    return [*first, block(500, epoch=1), PULLS[1], ENDS[1]]


@pytest.fixture
def path(tmp_path: Path, lines: list[Line], make_header: Callable[..., Header]) -> Path:
    """The same as a log."""
    log = RunLog(tmp_path / "run.jsonl", make_header(mode="alternate"))
    for line in lines:
        log.write(line)
    log.end(10)
    return log.path


def expected(run: Run) -> None:
    assert run.header.mode == "alternate"
    assert (run.prefetches, run.windows, run.ends) == (PULLS, WINDOWS, ENDS)
    assert run.steps.pair.tolist() == [-1, -1, 0, 0, -1, -1, 0, 0, -1, -1]
    assert run.steps.arm.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 0, 0]
    assert run.steps.step_ns.tolist()[-1] == UNKNOWN
    assert (run.closed, run.notes) == (True, ())


def test_an_alternating_run_comes_back(path: Path) -> None:
    """Pairs, prefetches, windows and ends are read back equal."""
    expected(read_run(path))


def test_an_alternating_run_comes_back_from_its_metrics(path: Path, tmp_path: Path) -> None:
    """A metrics file holds prefetches and windows too, and stretches of one pair as blocks."""
    run = read_run(path)
    metrics = tmp_path / "metrics.json"
    write_metrics(run, metrics)
    expected(read_run(metrics))
    kinds = [line["type"] for line in json.loads(metrics.read_text())["run"]]
    assert kinds.count("block") == 5
    assert metrics_of(run)["mode"] == "alternate"
    assert metrics_of(run)["cached_batches"] == 0


def test_a_new_pair_begins_a_new_block() -> None:
    """Two stretches of one arm that count for two pairs, or for none, are blocks apart."""
    blocks = [block(0), block(40, pair=3), block(80, pair=4), block(120, pair=4)]
    steps = Steps.from_blocks(blocks, [])
    assert [(one.pair, len(one)) for one in steps.blocks()] == [(None, 2), (3, 2), (4, 4)]


WHOLE = "a whole number, 0 or more"


@pytest.mark.parametrize(
    ("line", "name", "value", "wanted"),
    [
        (encode(block(0)), "pair", -1, f"{WHOLE} or null"),
        (encode(block(0)), "pair", False, f"{WHOLE} or null"),
        (PULL, "pair", None, WHOLE),
        (PULL, "elapsed_ns", 1.5, WHOLE),
        (PULL, "samples", -1, f"{WHOLE} or null"),
        (WINDOW, "arm", None, "'real' or 'ideal'"),
        (WINDOW, "elapsed_ns", None, WHOLE),
        (WINDOW, "workers_cpu_ns", "0", f"{WHOLE} or null"),
    ],
)
def test_fields_are_of_their_type(line: dict[str, Any], name: str, value: Any, wanted: str) -> None:
    """A field of another type shows what it has and what was expected."""
    with pytest.raises(RunLogError) as caught:
        decode({**line, name: value})
    assert str(caught.value) == f"has {value!r} as {name!r}, where {wanted} was expected"


@pytest.mark.parametrize("line", [PULL, WINDOW])
def test_nothing_is_measured_in_an_epoch_that_is_over(path: Path, line: dict[str, Any]) -> None:
    """A prefetch or a window stands before the end of its epoch, and after it is an error."""
    header = path.read_bytes().splitlines(keepends=True)[0]
    end = to_text(encode(EpochEnd(7, "broken off"))).encode()
    path.write_bytes(header + end + to_text(line).encode())
    with pytest.raises(RunLogError, match="line 3 is of epoch 7, where none was expected after"):
        read_run(path)
    path.write_bytes(header + to_text(line).encode() + end)
    run = read_run(path)
    assert len(run.prefetches) + len(run.windows) == 1


def test_the_request_of_the_unmeasured_rest_closes_the_last_step() -> None:
    """The step of the last measured batch ends where measuring does."""
    one = np.array([10])
    block = Block(3, "ideal", one, one, np.array([UNKNOWN]), one, one, 4)
    steps = Steps.from_blocks([block], [EpochEnd(3, "unmeasured", 50, 0)])
    assert steps.step_ns.tolist() == [30]
