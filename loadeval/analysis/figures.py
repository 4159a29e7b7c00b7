"""The figures of two arms side by side, each with its interval."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, final

from loadeval.analysis.intervals import Estimate, difference, ratio

if TYPE_CHECKING:
    from loadeval.analysis.arms import Side
    from loadeval.analysis.intervals import Spread


@final
@dataclass(frozen=True, slots=True)
class Gain:
    """What free loading gains; times are per batch of the real arm."""

    real_ns: float
    ideal_ns: float
    speedup: Estimate
    lost_share: Estimate
    lost_ns: Estimate
    waiting_ns: Estimate
    contention_ns: Estimate


@dataclass(frozen=True, slots=True)
class Figures:
    """The paces of two arms, None where an arm has none; and the gain where both have one.

    `samples_per_batch` is that of the real arm, None where the arms are compared by batch.
    """

    real_ns: float | None
    ideal_ns: float | None
    real_batches: int
    ideal_batches: int
    samples_per_batch: float | None
    gain: Gain | None


def figures(real: Side, ideal: Side, spread: Spread, same_unit: bool = True) -> Figures:
    """The figures of the arms, compared by sample where both know theirs in the same unit."""
    known = real.samples is not None and ideal.samples is not None and same_unit
    size = float(real.samples.sum()) / real.count if known and real.samples is not None else None
    real_ns, ideal_ns = (
        side.iterations(known).mean_ns * (size or 1.0) or None if side.count else None
        for side in (real, ideal)
    )
    gain = None
    if real_ns is not None and ideal_ns is not None:
        gain = _gain(real, ideal, spread, size)
    return Figures(real_ns, ideal_ns, real.count, ideal.count, size, gain)


def _gain(real: Side, ideal: Side, spread: Spread, size: float | None) -> Gain:
    known, scale = size is not None, size or 1.0
    speedup = ratio(real.iterations(known), ideal.iterations(known), spread)
    waiting_ns = difference(real.waits(known), ideal.waits(known), spread, scale)
    contention_ns = difference(real.steps(known), ideal.steps(known), spread, scale)
    lost_ns = difference(real.iterations(known), ideal.iterations(known), spread, scale)
    return Gain(
        real_ns=real.iterations(known).mean_ns * scale,
        ideal_ns=ideal.iterations(known).mean_ns * scale,
        speedup=speedup,
        lost_share=lost_share(speedup),
        # So that the parts add up to the last bit.
        lost_ns=replace(lost_ns, value=waiting_ns.value + contention_ns.value),
        waiting_ns=waiting_ns,
        contention_ns=contention_ns,
    )


def lost_share(speedup: Estimate) -> Estimate:
    """The share of the real arm's time that is lost: 1 - 1 / `speedup`."""
    low, high = (None if bound is None else 1 - 1 / bound for bound in (speedup.low, speedup.high))
    return Estimate(1 - 1 / speedup.value, low, high)
