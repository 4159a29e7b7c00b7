"""The parts of the time lost, as every rendering shows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loadeval.analysis.estimate.verdict import Part
from loadeval.report.formatting import LEAST_SHARE

if TYPE_CHECKING:
    from loadeval.analysis.estimate.headroom import Headroom
    from loadeval.analysis.estimate.stats import Estimate

COLORS = {
    Part.WAITING: "waiting",
    Part.CONTENTION: "contention",
    Part.EPOCH_STARTS: "epoch_starts",
}


@dataclass(frozen=True, slots=True)
class LostPart:
    """A part of the time lost, in nanoseconds per batch, and its share of the time in all.

    Both are None where they were not measured.
    """

    part: Part
    time_ns: Estimate | None
    share: float | None

    @property
    def name(self) -> str:
        """What it is called."""
        return self.part.value

    @property
    def color(self) -> str:
        """Its colour in the palette."""
        return COLORS[self.part]


def lost_parts(headroom: Headroom) -> list[LostPart]:
    """Waiting and contention, and epoch starts where they round to something."""
    times_ns = {Part.WAITING: headroom.waiting_ns, Part.CONTENTION: headroom.contention_ns}
    parts = [
        LostPart(part, time_ns, _share(headroom, time_ns)) for part, time_ns in times_ns.items()
    ]
    starts_share = _share(headroom, headroom.epoch_starts_ns)
    if starts_share is not None and abs(starts_share) >= LEAST_SHARE:
        parts.append(LostPart(Part.EPOCH_STARTS, headroom.epoch_starts_ns, starts_share))
    return parts


def _share(headroom: Headroom, time_ns: Estimate | None) -> float | None:
    return time_ns.value / headroom.whole_ns if time_ns is not None and headroom.whole_ns else None
