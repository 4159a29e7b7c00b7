"""A comparison as plain data."""

from __future__ import annotations

import json
from typing import Any

import pytest

from loadeval.analysis.report import Report
from loadeval.report.json import report_as_dict
from tests.runs.given import randomised


@pytest.fixture(name="told")
def _told() -> dict[str, Any]:
    """What the JSON of an alternating run says."""
    document: dict[str, Any] = json.loads(json.dumps(report_as_dict(Report.of([randomised()]))))
    return document


def test_the_parts_of_the_time_lost_add_up(told: dict[str, Any]) -> None:
    """Waiting, contention and epoch starts."""
    parts = ("waiting_ns", "contention_ns", "epoch_starts_ns")
    assert sum(told[part]["value"] for part in parts) == pytest.approx(told["lost_ns"]["value"])


@pytest.mark.parametrize("key", ["speedup", "steady_speedup", "epoch_starts_ns", "required"])
def test_an_estimate_has_its_interval(told: dict[str, Any], key: str) -> None:
    """Both limits, around the value."""
    estimate = told[key]
    assert estimate["low"] < estimate["value"] < estimate["high"]


def test_the_steady_speedup_is_of_the_iterations(told: dict[str, Any]) -> None:
    """It leaves out what epoch starts add."""
    ratio = told["real_ns"] / told["ideal_ns"]
    assert told["steady_speedup"]["value"] == pytest.approx(ratio)
