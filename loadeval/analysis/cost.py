"""What the time lost to data loading costs, in device-hours and in money."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from loadeval.analysis.estimate.headroom import known_of
from loadeval.analysis.estimate.stats import Estimate
from loadeval.analysis.estimate.verdict import is_trusted

if TYPE_CHECKING:
    from loadeval.analysis.estimate.headroom import Headroom
    from loadeval.runlog.model import Run

HOURS_PER_DAY = 24


class PricedTime(Enum):
    """Which share of the time is taken for lost."""

    LOST = "time lost"
    WAITED = "time waited"
    """Contention is not in it: the run was not compared with ideal loading."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What is lost in a day of training.

    `price` is that of a device for an hour, `per_day` is in the same currency. The log tells the
    number of devices, one for each rank, where there are several: `devices_known`. `device_hours`
    and `per_day` are None where the time lost is not measured, or nothing is concluded from it.
    """

    price: float
    devices: int
    devices_known: bool
    basis: PricedTime
    device_hours: Estimate | None
    per_day: Estimate | None


def cost_of(run: Run, headroom: Headroom | None, price: float) -> Cost:
    """What the loading of `run` costs, `price` being that of a device for an hour.

    By the share of the time lost, or without a `headroom` by that of the time waited.
    """
    ranks = run.header.environment.get("world_size")
    known = ranks if isinstance(ranks, int) and ranks > 0 else None
    devices = known or 1
    if headroom is None:
        basis, waited = PricedTime.WAITED, known_of(run).get("wait_share")
        share = None if waited is None else Estimate(waited)
    else:
        basis, share = PricedTime.LOST, headroom.lost_share
        share = share if is_trusted(headroom.verdict) else None
    hours = share and _at_least_nothing(share).times(HOURS_PER_DAY * devices)
    return Cost(price, devices, known is not None, basis, hours, hours and hours.times(price))


def _at_least_nothing(share: Estimate) -> Estimate:
    """Loading gives no time back."""
    low, high = (None if bound is None else max(bound, 0.0) for bound in (share.low, share.high))
    return Estimate(max(share.value, 0.0), low, high)
