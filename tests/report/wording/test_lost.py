"""The parts of the time lost."""

from __future__ import annotations

import pytest

from loadeval.analysis.estimate.headroom import headroom
from loadeval.analysis.estimate.stats import Estimate
from loadeval.report.wording.lost import lost_parts
from tests.runs.given import randomised
from tests.runs.tables import replace

MS = 1_000_000


@pytest.mark.parametrize(
    ("starts_ms", "shown"),
    [(0.04, True), (0.039, False), (-0.041, True), (-0.02, False), (None, False)],
)
def test_epoch_starts_are_told_from_a_thousandth_on(starts_ms: float | None, shown: bool) -> None:
    """The share is of the time of whole epochs; it is told where they gain time, too."""
    starts = None if starts_ms is None else Estimate(starts_ms * MS)
    result = replace(headroom(randomised()), real_ns=39.96 * MS, epoch_starts_ns=starts)
    names = [part.name for part in lost_parts(result)]
    assert names == ["waiting", "contention", *(["epoch starts"] if shown else [])]


def test_the_parts_add_up() -> None:
    """They add up to the share of the time that is lost."""
    result = headroom(randomised())
    assert result.lost_share is not None
    shares = [part.share for part in lost_parts(result)]
    assert len(shares) == 3
    assert sum(filter(None, shares)) == pytest.approx(result.lost_share.value)


def test_what_was_not_measured_has_no_share() -> None:
    """It has no time either."""
    parts = lost_parts(headroom(randomised(pairs=0)))
    assert [(part.time_ns, part.share) for part in parts] == [(None, None)] * 2
