"""What the time lost to data loading costs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loadeval.analysis.cost import PricedTime, cost_of
from loadeval.analysis.estimate.headroom import headroom
from loadeval.analysis.estimate.stats import Estimate
from loadeval.analysis.estimate.verdict import Objection, Verdict
from loadeval.analysis.report import Report
from loadeval.errors import UsageError
from tests.analysis.numbers import bounds, value
from tests.runs.given import MS, make_run, randomised

RUN = randomised(pairs=20)
GAIN = headroom(RUN)


def with_share(*bounds: Any, objection: Objection | None = None) -> Any:
    return replace(GAIN, lost_share=Estimate(*bounds), verdict=Verdict(objection=objection))


def test_a_share_of_the_day_is_lost_on_each_device() -> None:
    """A quarter of 24 hours on 8 devices is 48 device-hours, 120 at 2.5 for each."""
    run = replace(RUN, header=replace(RUN.header, environment={"world_size": 8}))
    cost = cost_of(run, with_share(0.25, 0.125, 0.375), 2.5)
    assert cost.device_hours == Estimate(48, 24, 72)
    assert cost.per_day == Estimate(120, 60, 180)
    assert (cost.devices, cost.devices_known, cost.basis) == (8, True, PricedTime.LOST)


def test_a_job_that_is_not_told_has_one_device() -> None:
    """And it is told that the log does not say so."""
    cost = cost_of(RUN, with_share(0.25), 1.0)
    assert (cost.devices, cost.devices_known) == (1, False)
    assert cost.device_hours == cost.per_day == Estimate(6.0)


def test_loading_gives_nothing_back() -> None:
    """Where the ideal arm was slower by chance, nothing is lost."""
    cost = cost_of(RUN, with_share(-0.01, -0.05, 0.03), 1.0)
    assert value(cost.device_hours) == 0.0
    assert bounds(cost.device_hours) == pytest.approx((0.0, 0.72))


@pytest.mark.parametrize("objection", [Objection.DRIFT, Objection.TOO_FEW_BATCHES])
def test_nothing_is_told_of_what_was_not_concluded(objection: Objection) -> None:
    """A share that the verdict objects to has no price, and none without a share."""
    for gain in (
        with_share(0.2, 0.1, 0.3, objection=objection),
        replace(GAIN, lost_share=None),
    ):
        cost = cost_of(RUN, gain, 1.0)
        assert cost.device_hours is cost.per_day is None


def test_a_wide_interval_has_its_price() -> None:
    """The price has the interval too."""
    wide = with_share(0.2, 0.0, 0.4, objection=Objection.WIDE_INTERVAL)
    assert bounds(cost_of(RUN, wide, 1.0).device_hours) == pytest.approx((0.0, 9.6))


def test_a_log_costs_what_it_waited() -> None:
    """Half of the time, first batches included; without batches that is not known."""
    cost = cost_of(make_run([MS] * 40, MS, warmup=1), None, 2.0)
    assert (cost.basis, cost.device_hours) == (PricedTime.WAITED, Estimate(12.0))
    assert cost_of(make_run([]), None, 2.0).device_hours is None


def test_a_report_has_the_cost_of_its_run() -> None:
    """Several backends have none."""
    report = Report.of([RUN]).priced(3.0)
    assert report.cost == cost_of(RUN, GAIN, 3.0)
    with pytest.raises(UsageError, match="several backends"):
        Report.of([RUN, RUN]).priced(3.0)
