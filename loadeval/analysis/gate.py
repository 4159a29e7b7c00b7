"""Whether surely more of the training time is lost to loading than a bound allows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from loadeval.analysis.verdict import ROUNDING, Objection

if TYPE_CHECKING:
    from loadeval.analysis.headroom import Headroom

OF_WIDTH = (None, Objection.MISSED_STALL, Objection.WIDE_INTERVAL)
"""Objections to the width of the interval alone, and not to what it covers; or none."""


class Outcome(Enum):
    """Where the 95% interval of the lost share lies."""

    ABOVE = "above"
    NOT_ABOVE = "not above"
    SPANS = "spans the bound"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Gate:
    """Where the share lost lies; `bound` is between 0 and 1."""

    outcome: Outcome
    bound: float
    headroom: Headroom


def gate(headroom: Headroom, bound: float) -> Gate:
    """Whether more than `bound`, a share between 0 and 1, is lost.

    ABOVE where the whole interval is, NOT_ABOVE where it ends at the bound or under it.
    INCONCLUSIVE without an interval, and where the verdict is inconclusive for another reason than
    the width of the interval.
    """
    share = headroom.lost_share
    trusted = headroom.verdict.objection in OF_WIDTH
    if share is None or share.low is None or share.high is None or not trusted:
        outcome = Outcome.INCONCLUSIVE
    elif share.low > bound + ROUNDING:
        outcome = Outcome.ABOVE
    else:
        outcome = Outcome.NOT_ABOVE if share.high <= bound + ROUNDING else Outcome.SPANS
    return Gate(outcome, bound, headroom)
