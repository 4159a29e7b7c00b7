"""Runs of the ranks of one distributed training."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from loadeval.analysis.backends import are_ranks
from loadeval.report.backends import BackendComparison
from loadeval.report.wording import headline

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.runlog.model import Run

MS = 1_000_000


def of_rank(run: Run, rank: int | None, size: int | None) -> Run:
    place: dict[str, Any] = {"rank": rank, "world_size": size}
    known = {name: value for name, value in place.items() if value is not None}
    return replace(run, header=replace(run.header, name=f"rank{rank}", environment=known))


def test_ranks_are_told_together(alternating: Callable[..., Run]) -> None:
    """Their throughputs add up, and the least and the most that they lose are told."""
    runs = [
        of_rank(alternating(waits_ns=(wait, 0)), rank, 2) for rank, wait in ((0, MS), (1, 9 * MS))
    ]
    told = headline(BackendComparison.of_runs(runs))
    assert told.startswith("2 ranks of one training, ")
    text = str(BackendComparison.of_runs(runs))
    assert "backend" not in text
    assert "Cautions" not in text  # they were measured at the same time
    assert told.endswith("of their time is lost to loading")


def test_ranks_that_were_logged(record: Callable[..., Run]) -> None:
    """What free loading would gain is not known of them."""
    runs = [of_rank(record(), rank, 2) for rank in (0, 1)]
    assert headline(BackendComparison.of_runs(runs)) == (
        "2 ranks of one training, 200 images/s together; what free loading would gain was not "
        "measured"
    )


@pytest.mark.filterwarnings("ignore:the loader gave no batch")
def test_a_rank_without_a_pace(record: Callable[..., Run]) -> None:
    """There is no sum then."""
    runs = [of_rank(record(), 0, 2), of_rank(record(waits_ns=[]), 1, 2)]
    assert headline(BackendComparison.of_runs(runs)).startswith("2 ranks of one training; what")


@pytest.mark.parametrize(
    "places",
    [
        [(0, 2), (0, 2)],
        [(0, 2), (1, 4)],
        [(0, 2), (None, 2)],
        [(None, None), (None, None)],
        [(0, 2)],
    ],
)
def test_what_are_no_ranks(
    record: Callable[..., Run], places: list[tuple[int | None, int | None]]
) -> None:
    """The same rank twice, trainings of different sizes, runs that were no rank, one alone."""
    assert not are_ranks([of_rank(record(), *place) for place in places])
    assert not are_ranks([None, of_rank(record(), 0, 2)])
