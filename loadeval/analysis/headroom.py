"""Real against ideal: how much faster training would be if loading were free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from loadeval.analysis.summary import Summary, summarise
from loadeval.errors import UsageError
from loadeval.record.model import ARMS

if TYPE_CHECKING:
    from loadeval.record.model import Run

Verdict = Literal[
    "highly input-bound", "moderately input-bound", "not input-bound", "inconclusive"
]

MODERATE_SHARE = 0.05
HIGH_SHARE = 0.20
"""Shares of time lost, as in TensorFlow's input-pipeline analyser (tf.data, Profiler guide)."""
FEWEST_STEADY = 20
"""Steady batches on each side under which nothing is concluded."""
TWO_RUNS = (
    "Two separate runs are compared: a drift of the machine between them counts as a "
    "difference in loading, and no interval is given."
)


@dataclass(frozen=True, slots=True)
class Headroom:
    """What a run with free loading gains over the real one; times are per batch of the real one.

    `speedup` is the ratio of the mean steady cycles per sample (per batch where samples are
    unknown). `lost_ns` = `real_ns` - `ideal_ns` is split into `waiting_ns`, the difference of
    the waits, and `interference_ns`, the difference of the steps: what the loader's workers
    take from the training process. `lost_share` = 1 - 1 / `speedup` gives the verdict. All are
    None when a side has no steady batch.
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
    if one.cycle_ns is None or other.cycle_ns is None:
        return _unmeasured(real, ideal, one, other)
    # The ideal side's batches are scaled to as many samples as the real side's have.
    scale = 1.0
    if one.samples_per_batch and other.samples_per_batch:
        scale = one.samples_per_batch / other.samples_per_batch
    ideal_ns = other.cycle_ns * scale
    speedup = one.cycle_ns / ideal_ns
    lost_share = 1 - 1 / speedup
    verdict, reason, advice = _judge(lost_share, one, other)
    return Headroom(
        speedup=speedup,
        lost_share=lost_share,
        real_ns=one.cycle_ns,
        ideal_ns=ideal_ns,
        lost_ns=one.cycle_ns - ideal_ns,
        waiting_ns=(one.wait_ns or 0.0) - (other.wait_ns or 0.0) * scale,
        interference_ns=(one.step_ns or 0.0) - (other.step_ns or 0.0) * scale,
        verdict=verdict,
        reason=reason,
        advice=advice,
        caution=TWO_RUNS,
    )


def _check_arm(run: Run, arm: str) -> None:
    found = [ARMS[code] for code in np.unique(run.steps.arm)]
    if found and found != [arm]:
        wanted = {"real": "mode='log'", "ideal": "mode='replay'"}[arm]
        raise UsageError(
            f"{run.path or run.header.name} was recorded with mode={run.header.mode!r}; expected "
            f"a run with {wanted} as the {arm} one. Are the two files the other way round?"
        )


def _judge(lost_share: float, real: Summary, ideal: Summary) -> tuple[Verdict, str, str]:
    fewest = min(real.steady_batches, ideal.steady_batches)
    if fewest < FEWEST_STEADY:
        return (
            "inconclusive",
            f"only {fewest} steady batches on one side, and {FEWEST_STEADY} are needed",
            "Run more batches or epochs, or pass a smaller warmup=.",
        )
    share = f"{max(lost_share, 0):.0%} of the training time is lost to loading"
    if lost_share >= HIGH_SHARE:
        verdict: Verdict = "highly input-bound"
    elif lost_share >= MODERATE_SHARE:
        verdict = "moderately input-bound"
    else:
        return "not input-bound", share, "Look at the training step instead: loading keeps up."
    waiting = (real.wait_ns or 0.0) - (ideal.wait_ns or 0.0)
    interference = (real.step_ns or 0.0) - (ideal.step_ns or 0.0)
    if waiting >= interference:
        advice = (
            "Training waits for batches: more workers, cheaper decoding and transforms, or a "
            "faster loader."
        )
    else:
        advice = (
            "Training is slowed by the loader's work rather than by waiting: fewer workers or "
            "threads, or a loader that needs less CPU."
        )
    return verdict, share, advice


def _unmeasured(real: Run, ideal: Run, one: Summary, other: Summary) -> Headroom:
    short = real if one.cycle_ns is None else ideal
    count = (one if one.cycle_ns is None else other).batches
    return Headroom(
        speedup=None,
        lost_share=None,
        real_ns=one.cycle_ns,
        ideal_ns=other.cycle_ns,
        lost_ns=None,
        waiting_ns=None,
        interference_ns=None,
        verdict="inconclusive",
        reason=f"{short.path or short.header.name} has no steady batch: it has {count} in all, "
        f"and the first {short.header.warmup} of each epoch are left out",
        advice="Run more batches in each epoch, or pass a smaller warmup=.",
        caution=TWO_RUNS,
    )
