"""What is lost to storage, and to preparing, by three runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from loadeval.analysis.phases import FEWEST_BATCHES, Phase, Phases, phases_of
from tests.runs.given import make_run

if TYPE_CHECKING:
    from loadeval.runlog.model import Run

MS = 1_000_000


def logged(wait_ms: float, batches: int = 100, epochs: list[int] | None = None) -> Run:
    """A run whose waits alternate around `wait_ms`."""
    waits = [round(wait_ms * MS) + (-1) ** number * MS // 10 for number in range(batches)]
    return make_run(waits, 10 * MS, epochs=epochs)


def replayed(batches: int = 100) -> Run:
    return make_run([0] * batches, 10 * MS, mode="replay")


def phases(cold_ms: float, cached_ms: float) -> Phases:
    found = phases_of(logged(cold_ms), logged(cached_ms), replayed())
    assert found is not None
    return found


def test_the_phases_add_up() -> None:
    """A batch of 40 ms: 20 for storage, 10 for preparing, 10 for the step."""
    three = phases(cold_ms=30, cached_ms=10)
    assert three.storage_ns.value == pytest.approx(20 * MS, rel=0.01)
    assert three.preparation_ns.value == pytest.approx(10 * MS, rel=0.01)
    assert three.ideal_ns.value == 10 * MS
    assert list(three.shares.values()) == pytest.approx([0.5, 0.25, 0.25], rel=0.01)


@pytest.mark.parametrize(
    ("cold_ms", "cached_ms", "most"),
    [
        (30, 5, Phase.STORAGE),
        (30, 28, Phase.PREPARATION),
        (0.3, 0.2, Phase.NEITHER),
    ],
)
def test_what_most_is_lost_to(cold_ms: float, cached_ms: float, most: Phase) -> None:
    """Storage, preparing, or neither where both are next to nothing."""
    assert phases(cold_ms, cached_ms).most is most


def test_a_loss_that_may_be_none_is_none() -> None:
    """Its interval contains 0: the waits of the cold run differ more than the runs do."""
    waits = [60 * MS if number % 20 == 0 else 0 for number in range(100)]
    cold = make_run(waits, 10 * MS)
    uncertain = phases_of(cold, make_run([1] * 100, 10 * MS), replayed())
    assert uncertain is not None
    assert uncertain.storage_ns.low is not None
    assert (uncertain.storage_ns.low > 0) == (uncertain.most is Phase.STORAGE)


def test_shares_are_never_below_nothing() -> None:
    """By chance a run with cold files may be the faster one."""
    odd = phases(cold_ms=5, cached_ms=10)
    assert odd.storage_ns.value < 0
    assert odd.shares[Phase.STORAGE] == 0
    assert sum(odd.shares.values()) == pytest.approx(1)


def test_files_are_cold_in_the_first_epoch_alone() -> None:
    """Later ones find them in the page cache."""
    cold = make_run([30 * MS] * 50 + [10 * MS] * 50, 10 * MS, epochs=[50, 50])
    phases = phases_of(cold, logged(10), replayed())
    assert phases is not None
    assert phases.cold_ns.value == pytest.approx(40 * MS)


@pytest.mark.parametrize("short", [0, 1, 2])
def test_of_few_batches_nothing_is_said(short: int) -> None:
    """In whichever run they are few, or none."""
    counts = [100, 100, 100]
    for few in (FEWEST_BATCHES - 1, 0):
        counts[short] = few
        cold, cached, ideal = counts
        assert phases_of(logged(30, cold), logged(10, cached), replayed(ideal)) is None
