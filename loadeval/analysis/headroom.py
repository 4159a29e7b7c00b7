"""Real against ideal: how much faster training would be if loading were free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from loadeval.analysis.caution import caution, same_unit
from loadeval.analysis.summary import Summary, summarise
from loadeval.errors import UsageError
from loadeval.record.model import ARMS, UNKNOWN

if TYPE_CHECKING:
    from loadeval.record.model import Arm, Run

Verdict = Literal["highly input-bound", "moderately input-bound", "not input-bound", "inconclusive"]

MODERATE_SHARE = 0.05
HIGH_SHARE = 0.20
"""Shares of the time lost from which a run is moderately or highly input-bound.

The bounds are those of TensorFlow's input-pipeline analyser (under 5% of the step time not
input-bound, 5% and over moderately, 20% and over highly). There the share is of time spent
waiting for input; here it is of all that loading costs.
"""
FEWEST_STEADY = 20
"""Steady batches on each side under which nothing is concluded."""

WAITING = (
    "Training waits for batches: try more workers, a deeper prefetch, cheaper decoding and "
    "transforms, or a faster loader."
)
INTERFERING = (
    "Steps are slower while the loader works, which takes CPU, memory bandwidth or the device "
    "from them: try fewer workers or threads, or a loader that needs less. Where a step's time "
    "depends on what is in its batch, first replay more batches, with num_cached_batches=."
)
KEEPS_UP = "Look at the training step instead: loading keeps up with it."
DRIFTED = (
    "Free loading cannot slow training down: look for other work on the machine, and for steps "
    "whose time depends on their batch, then make both runs again."
)
TOO_FEW = "Run more batches or epochs, or pass a smaller warmup=."


@dataclass(frozen=True, slots=True)
class Headroom:
    """What a run with free loading gains over the real one; times are per batch of the real one.

    `speedup` is the ratio of the mean steady cycles per sample (per batch where samples are
    unknown, or called differently). `lost_ns` = `real_ns` - `ideal_ns` is the sum of
    `waiting_ns`, the difference of the waits, and `interference_ns`, the difference of the
    steps: what the loader's workers take from the training process. Either may be negative; a
    step that ends by waiting for a device is shorter when the device had work during the wait.
    `lost_share` = `lost_ns` / `real_ns` = 1 - 1 / `speedup` gives the verdict. What cannot be
    known is None: everything but the pace of a side that has one, when the other has none.
    """

    speedup: float | None
    lost_share: float | None
    real_ns: float | None
    ideal_ns: float | None
    lost_ns: float | None
    waiting_ns: float | None
    interference_ns: float | None
    verdict: Verdict
    reason: str
    advice: str
    caution: str


def compare(real: Run, ideal: Run) -> Headroom:
    """The headroom between a run that loaded and one that replayed.

    Raises UsageError when a run is not of the arm that its place asks for.
    """
    _check_arm(real, "real")
    _check_arm(ideal, "ideal")
    one, other = summarise(real), summarise(ideal)
    care = caution(real, ideal, one, other)
    if not one.cycle_ns or not other.cycle_ns:
        return _unmeasured([(real, one), (ideal, other)], care)
    # The ideal side's batches are scaled to as many samples as the real side's have.
    scale = 1.0
    if one.samples_per_batch and other.samples_per_batch and same_unit(real, ideal):
        scale = one.samples_per_batch / other.samples_per_batch
    waiting_ns = (one.wait_ns or 0.0) - (other.wait_ns or 0.0) * scale
    interference_ns = (one.step_ns or 0.0) - (other.step_ns or 0.0) * scale
    lost_ns = waiting_ns + interference_ns
    lost_share = lost_ns / one.cycle_ns
    verdict, reason, advice = _too_few(one, other) or _judge(
        lost_share, waiting_ns, interference_ns
    )
    return Headroom(
        speedup=one.cycle_ns / (other.cycle_ns * scale),
        lost_share=lost_share,
        real_ns=one.cycle_ns,
        ideal_ns=other.cycle_ns * scale,
        lost_ns=lost_ns,
        waiting_ns=waiting_ns,
        interference_ns=interference_ns,
        verdict=verdict,
        reason=reason,
        advice=advice,
        caution=care,
    )


def _check_arm(run: Run, arm: Arm) -> None:
    found = [ARMS[code] for code in np.unique(run.steps.arm)]
    if found and found != [arm]:
        wanted = {"real": "mode='log'", "ideal": "mode='replay'"}[arm]
        raise UsageError(
            f"{run.path or run.header.name} was recorded with mode={run.header.mode!r}; expected "
            f"a run with {wanted} as the {arm} one. Are the two the other way round?"
        )


def _too_few(real: Summary, ideal: Summary) -> tuple[Verdict, str, str] | None:
    sides = (("real", real.steady_batches), ("ideal", ideal.steady_batches))
    short = [f"{count} steady in the {side} run" for side, count in sides if count < FEWEST_STEADY]
    if not short:
        return None
    reason = f"too few batches, {' and '.join(short)}, where {FEWEST_STEADY} are needed"
    return "inconclusive", reason, TOO_FEW


def _judge(
    lost_share: float, waiting_ns: float, interference_ns: float
) -> tuple[Verdict, str, str]:
    lost = f"{lost_share:.1%} of the training time is lost to loading"
    if lost_share <= -MODERATE_SHARE:
        slower = f"the replayed run was slower than the real one, by {-lost_share:.1%}"
        reason = f"{slower} of the real one's time"
        return "not input-bound", reason, f"{KEEPS_UP} {DRIFTED}"
    if lost_share < 0:
        return "not input-bound", "replay was no faster than the real run", KEEPS_UP
    if lost_share < MODERATE_SHARE:
        return "not input-bound", lost, KEEPS_UP
    verdict: Verdict = (
        "highly input-bound" if lost_share >= HIGH_SHARE else "moderately input-bound"
    )
    if waiting_ns >= interference_ns:
        return verdict, f"{lost}, most of it in waiting for batches", WAITING
    return verdict, f"{lost}, most of it in slower steps", INTERFERING


def _unmeasured(sides: list[tuple[Run, Summary]], care: str) -> Headroom:
    real_ns, ideal_ns = (summary.cycle_ns or None for _, summary in sides)
    return Headroom(
        speedup=None,
        lost_share=None,
        real_ns=real_ns,
        ideal_ns=ideal_ns,
        lost_ns=None,
        waiting_ns=None,
        interference_ns=None,
        verdict="inconclusive",
        reason="; ".join(_why(run, summary) for run, summary in sides if not summary.cycle_ns),
        advice="Run more batches in each epoch, or pass a smaller warmup=.",
        caution=care,
    )


def _why(run: Run, summary: Summary) -> str:
    name = run.path or run.header.name
    if summary.cycle_ns is not None:
        return f"{name} has steady batches that took no time by its clock"
    if summary.batches and (run.steps.step_ns == UNKNOWN).all():
        return f"{name} has no batch whose step was measured: was its epoch broken off?"
    return (
        f"{name} has no steady batch: it has {summary.batches} in all, and the first "
        f"{run.header.warmup} of each epoch are left out"
    )
