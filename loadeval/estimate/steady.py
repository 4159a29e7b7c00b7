"""Which batches count: those of the steady state.

At the start of an epoch a loader's queue is empty, and what it loads then shows in waits that are
not those of a long training; these batches are the warm-up. A step in which training evaluated,
say, is longer than what a batch takes.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from loadeval.data.columns import UNKNOWN
from loadeval.data.run import ARMS

if TYPE_CHECKING:
    from loadeval.data.lines import Arm, Window
    from loadeval.data.run import Run

Mask = npt.NDArray[np.bool_]

MOST_LEFT_OUT = 0.2
"""What happens in more than this share of the steps is a part of training."""
FEWEST_LEFT = 3
"""When training left so many epochs before their end, that is taken for their length."""


def steady(run: Run, arm: Arm | None = None) -> Mask:
    """Which batches of `run` count: a mask over its steps.

    Of an alternating run these are the counted ones of `arm`; by default the real one's, or the
    ideal one's where the real one has none. Of a replay they are those that were kept.
    """
    alternates, steps = run.header.mode == "alternate", run.steps
    counts = steps.pair != UNKNOWN if alternates else steps.batch >= warmup_of(run)
    counts = counts & closed_steps(run)
    of_real, of_ideal = (counts & (steps.arm == index) for index in range(len(ARMS)))
    if arm is None:
        is_ideal = run.header.mode == "replay" or (alternates and not of_real.any())
        arm = "ideal" if is_ideal else "real"
    return np.asarray(of_real if arm == "real" else of_ideal)


def closed_steps(run: Run) -> Mask:
    """Which steps have a known length, and were of training alone."""
    closed: Mask = run.steps.step_ns != UNKNOWN
    closed[steps_left_out(run)] = False
    return closed


def steps_left_out(run: Run) -> npt.NDArray[np.intp]:
    """The rows of steps in which training did something else, such as an evaluation.

    None where it does so in many steps: then it is part of them.
    """
    steps = run.steps
    times_ns = [event.time_ns for event in run.events if event.kind == "within a step"]
    if not times_ns or not len(steps):
        return np.empty(0, np.intp)
    begin_ns = steps.request_ns + steps.wait_ns
    order = np.argsort(begin_ns, kind="stable")
    at = np.searchsorted(begin_ns[order], times_ns, side="right") - 1
    row = order[np.maximum(at, 0)]
    is_within = (times_ns >= begin_ns[row]) & (times_ns < (begin_ns + steps.step_ns)[row])
    rows = np.unique(row[is_within])
    return rows if len(rows) <= MOST_LEFT_OUT * len(steps) else rows[:0]


def whole_windows(run: Run, arm: Arm) -> list[Window]:
    """The windows of one arm that count, and in which training did nothing else."""
    steps, rows = run.steps, steps_left_out(run)
    gone = set(zip(steps.pair[rows].tolist(), steps.epoch[rows].tolist(), strict=True))
    counted = set(np.unique(steps.pair).tolist())  # not those of instrumented blocks
    return [
        window
        for window in run.windows
        if window.arm == arm and window.pair in counted and (window.pair, window.epoch) not in gone
    ]


def warmup_of(run: Run) -> int:
    """How many batches at the start of each epoch do not count.

    Where epochs are over before the loader's queue is full it is the first one, if there are more,
    unless another number was asked for.
    """
    warmup, lengths = run.header.warmup, epoch_lengths(run)
    longest = max(lengths.values(), default=0)
    is_asked_for = warmup > (run.loader.prefetch_depth or 0) + 2
    if longest > warmup or is_asked_for:
        return warmup
    known = usual_length(run) or run.loader.length or warmup + 1
    are_short = len(lengths) > 1 and known <= warmup
    return min(longest - 1, 1) if are_short else warmup


def usual_length(run: Run) -> float | None:
    """How many batches an epoch has: the mean of those that were served to their end.

    Else the median of those that training left, where it left several; None where neither is known.
    """
    lengths, by_cause = epoch_lengths(run), defaultdict[str, list[int]](list)
    for end in run.ends:
        by_cause[end.cause].append(lengths.get(end.epoch, 0))
    whole, left = by_cause["exhausted"], by_cause["broken off"]
    if whole:
        return sum(whole) / len(whole)
    return float(np.median(left)) if len(left) >= FEWEST_LEFT else None


def epoch_lengths(run: Run) -> dict[int, int]:
    """How many batches each epoch had, up to the last one that is recorded."""
    epoch, batch = run.steps.epoch, run.steps.batch
    lasts = np.diff(epoch, append=UNKNOWN) != 0
    return dict(zip(epoch[lasts].tolist(), (batch[lasts] + 1).tolist(), strict=True))
