"""The parts of the time lost."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from loadeval.analysis.headroom import headroom
from loadeval.analysis.stats import Estimate
from loadeval.report.lost import lost_parts

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.runlog.model import Run

MS = 1_000_000


@pytest.mark.parametrize(
    ("starts_ms", "shown"),
    [(0.04, True), (0.039, False), (-0.041, True), (-0.02, False), (None, False)],
)
def test_epoch_starts_are_told_from_a_thousandth_on(
    alternating: Callable[..., Run], starts_ms: float | None, shown: bool
) -> None:
    """Of the time of whole epochs; also where they gain time."""
    starts = None if starts_ms is None else Estimate(starts_ms * MS)
    found = replace(headroom(alternating()), real_ns=39.96 * MS, epoch_starts_ns=starts)
    names = [one.name for one in lost_parts(found)]
    assert names == ["waiting", "contention", *(["epoch starts"] if shown else [])]


def test_the_parts_add_up(alternating: Callable[..., Run]) -> None:
    """To the share of the time that is lost."""
    found = headroom(alternating())
    assert found.lost_share is not None
    shares = [one.share for one in lost_parts(found)]
    assert len(shares) == 3
    assert sum(filter(None, shares)) == pytest.approx(found.lost_share.value)


def test_what_was_not_measured_has_no_share(alternating: Callable[..., Run]) -> None:
    """Nor a time."""
    parts = lost_parts(headroom(alternating(pairs=0)))
    assert [(one.time_ns, one.share) for one in parts] == [(None, None)] * 2
