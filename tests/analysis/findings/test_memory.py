"""Memory that grows while training goes on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.runlog.model import Readings

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.analysis.findings.finding import Finding
    from loadeval.runlog.model import Run

    MakeRun = Callable[..., Run]

GB = 1e9
EVERY_NS = 5_000_000_000
HOUR = 720


def grown(make_run: MakeRun, gb_per_hour: float, limit_gb: float = 100) -> Run:
    """A run of an hour, in which the memory of process and workers grows."""
    time_ns = np.arange(HOUR, dtype=np.int64) * EVERY_NS
    used: Any = 8 * GB + gb_per_hour * GB * np.arange(HOUR) / HOUR
    limit = np.full(HOUR, limit_gb * GB)
    return replace(
        make_run([0] * 40),
        readings=(
            Readings("host", "process", time_ns, {"anonymous_bytes": used}),
            Readings("host", "workers", time_ns, {"pss_bytes": used}),
            Readings("host", "machine", time_ns, {"memory_limit_bytes": limit}),
        ),
    )


@pytest.mark.parametrize(("gb_per_hour", "severity"), [(2, "moderate"), (5, "high")])
@pytest.mark.parametrize("subject", ["process", "workers"])
def test_memory_that_grows(
    make_run: MakeRun,
    finding: Callable[..., Finding],
    subject: str,
    gb_per_hour: float,
    severity: str,
) -> None:
    """The pace is told with its interval; it is severe where a day would fill the machine."""
    found = finding(f"memory of the {subject}", grown(make_run, gb_per_hour))
    assert found.evidence[0].value == pytest.approx(gb_per_hour * GB)
    assert found.evidence[0].low == pytest.approx(gb_per_hour * GB)
    assert found.evidence[1].value == 100 * GB
    assert (found.severity, found.cost_share) == (severity, None)
    assert found.advice


def test_memory_that_hardly_grows(
    make_run: MakeRun, outcome: Callable[..., tuple[str, str]]
) -> None:
    """Under a hundredth of what there is in an hour nothing is said."""
    assert outcome("memory of the process", grown(make_run, 0.9)) == ("nothing found", "")


def test_memory_that_was_not_read(
    make_run: MakeRun, outcome: Callable[..., tuple[str, str]]
) -> None:
    """The reason is told once, without saying twice that it was not measured."""
    assert outcome("memory of the process", make_run([0] * 40)) == (
        "not measured",
        "memory: no readings",
    )
