"""What several runs are that somebody names."""

from __future__ import annotations

from loadeval.report.report import report_of_runs
from tests.builder import logged


def test_two_runs_of_other_loaders_are_backends() -> None:
    """Not one before and one after."""
    other = logged([5.0] * 60, name="other", backend="spdl.pipeline.Pipeline")
    report = report_of_runs([logged([5.0] * 60), other])
    assert (report.result, report.before, len(report.backends)) == (None, None, 2)
