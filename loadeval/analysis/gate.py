"""Whether surely more of the training time is lost to loading than a bound allows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from loadeval.analysis.verdict import INCONCLUSIVE, ROUNDING, TOO_RARE, TOO_WIDE, percent

if TYPE_CHECKING:
    from loadeval.analysis.headroom import Headroom

Outcome = Literal["above", "not above", "cannot tell"]
MEASURE_LONGER = "Measure longer: more batches or epochs make the interval narrower."


@dataclass(frozen=True, slots=True)
class Gate:
    """Where the share lost lies, the whole of its 95% interval considered; and why, in words."""

    outcome: Outcome
    reason: str


def gate(headroom: Headroom, bound: float) -> Gate:
    """Whether more than `bound`, a share between 0 and 1, is lost.

    "above" where the whole interval is, "not above" where it ends at the bound or under it. An
    interval that spans the bound, or none, cannot tell, nor can figures of which the verdict is
    inconclusive for another reason than the width of their interval.
    """
    share, told = headroom.lost_share, f"{bound * 100:g}%"
    if share is None or share.low is None or share.high is None or _doubted(headroom):
        return _cannot_tell(told, f"{headroom.reason}. {headroom.advice}")
    interval = f"{percent(share.value)} [{percent(share.low)}, {percent(share.high)}]"
    lost = f"{interval} of the training time is lost to loading"
    if share.low > bound + ROUNDING:
        return Gate("above", f"Above {told}: {lost}, and so is the whole 95% interval")
    if share.high <= bound + ROUNDING:
        return Gate(
            "not above", f"Not above {told}: {lost}, and the 95% interval ends at it or below"
        )
    return _cannot_tell(told, f"{lost}, and the 95% interval spans the bound. {MEASURE_LONGER}")


def _doubted(headroom: Headroom) -> bool:
    width_alone = headroom.reason.endswith((TOO_RARE, TOO_WIDE))
    return headroom.verdict == INCONCLUSIVE and not width_alone


def _cannot_tell(told: str, why: str) -> Gate:
    return Gate("cannot tell", f"Cannot tell whether more than {told} is lost: {why}")
