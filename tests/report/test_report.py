"""What several runs are that somebody names."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from loadeval.data.run import Run
from loadeval.report.report import report_of_runs
from tests.builder import alternating, logged

LOG, REPLAY = logged([5.0] * 60), logged([0.0] * 60, mode="replay")
OTHER = logged([5.0] * 60, name="other", backend="spdl.pipeline.Pipeline")
IN_TURNS = [alternating(name=name, settings={"comparison": "c"}) for name in ("a", "b")]


@pytest.mark.parametrize(
    ("runs", "is_beside_ideal", "is_after", "backends"),
    [
        ([LOG], False, False, 0),
        ([LOG, REPLAY], True, False, 0),
        ([LOG, logged([4.0] * 60)], False, True, 0),
        ([LOG, OTHER], False, False, 2),
        (IN_TURNS, False, False, 2),
        ([LOG, OTHER, *IN_TURNS], False, False, 4),
    ],
    ids=["one run", "log and replay", "before and after", "backends", "in turns", "four"],
)
def test_what_several_runs_are(
    runs: Sequence[Run], is_beside_ideal: bool, is_after: bool, backends: int
) -> None:
    report = report_of_runs(runs)
    assert bool(report.result and report.result.ideal) is is_beside_ideal
    assert (report.before is not None, len(report.backends)) == (is_after, backends)
