"""Which batches of a run count: those of the steady state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.once import once_per_run
from loadeval.data.columns import UNKNOWN
from loadeval.data.run import ARMS

if TYPE_CHECKING:
    import numpy.typing as npt

    from loadeval.data.lines import Arm, Window
    from loadeval.data.run import Run

WITHIN_STEP = "within a step"
"""The kind of an event that tells what else than training was done in a step."""
MOST_LEFT_OUT = 0.2
"""What happens in more than this share of the steps is a part of training."""
FEWEST_LEFT = 3
"""When training left so many epochs before their end, that is taken for their length."""


@once_per_run
def steady(run: Run, arm: Arm | None = None) -> npt.NDArray[np.bool_]:
    """Which batches of `run` are steady: a mask over its steps.

    Of an alternating run these are the counted ones of `arm`; by default the real one's, or
    the ideal one's where the real one has none. Of a replay they are those that were kept.
    """
    alternates = run.header.mode == "alternate"
    if arm is None:
        of_real = steady(run, "real")
        is_ideal = run.header.mode == "replay" or (alternates and not of_real.any())
        return steady(run, "ideal") if is_ideal else of_real
    steps = run.steps
    counts = steps.pair != UNKNOWN if alternates else steps.batch >= warmup_of(run)
    rows: npt.NDArray[np.bool_] = counts & closed_steps(run) & (steps.arm == ARMS.index(arm))
    return rows


@once_per_run
def closed_steps(run: Run) -> npt.NDArray[np.bool_]:
    """Which steps are known, and were of training alone: see `steps_left_out`."""
    closed: npt.NDArray[np.bool_] = run.steps.step_ns != UNKNOWN
    closed[steps_left_out(run)] = False
    return closed


def steps_left_out(run: Run) -> npt.NDArray[np.intp]:
    """The rows of steps in which training did something else, such as an evaluation.

    None where it does so in many steps: then it is part of them.
    """
    times_ns = np.array(
        [event.time_ns for event in run.events if event.kind == WITHIN_STEP], np.int64
    )
    steps, begin_ns = run.steps, run.steps.request_ns + run.steps.wait_ns
    if not len(times_ns) or not len(steps):
        return np.empty(0, np.intp)
    order = np.argsort(begin_ns, kind="stable")
    at = np.searchsorted(begin_ns[order], times_ns, side="right") - 1
    row = order[np.maximum(at, 0)]
    is_within = (times_ns >= begin_ns[row]) & (times_ns < (begin_ns + steps.step_ns)[row])
    rows = np.unique(row[is_within])
    return rows if len(rows) <= MOST_LEFT_OUT * len(steps) else rows[:0]


def whole_windows(run: Run, arm: Arm) -> list[Window]:
    """The windows of one arm in which training did nothing else."""
    steps, rows = run.steps, steps_left_out(run)
    gone = set(zip(steps.pair[rows].tolist(), steps.epoch[rows].tolist(), strict=True))
    counted = set(np.unique(steps.pair).tolist())  # not those of instrumented blocks
    return [
        window
        for window in run.windows
        if window.arm == arm and window.pair in counted and (window.pair, window.epoch) not in gone
    ]


def warmup_of(run: Run) -> int:
    """How many batches at the start of each epoch are not steady.

    Where epochs are over before the loader's queue is full it is the first one, if there are more,
    unless another number was asked for.
    """
    warmup, lengths = run.header.warmup, epoch_lengths(run)
    longest = max(lengths.values(), default=0)
    if longest > warmup or warmup > (run.header.loader.prefetch_depth or 0) + 2:
        return warmup
    known = usual_length(run) or run.header.loader.length or warmup + 1
    are_short = len(lengths) > 1 and known <= warmup
    return min(longest - 1, 1) if are_short else warmup


def usual_length(run: Run) -> float | None:
    """How many batches an epoch has, as far as it shows: by those that were served to their end.

    Or by those that training left, where it left several; None where neither is known.
    """
    lengths, by_cause = epoch_lengths(run), dict[str, list[int]]()
    for end in run.ends:
        by_cause.setdefault(end.cause, []).append(lengths.get(end.epoch, 0))
    if whole := by_cause.get("exhausted"):
        return sum(whole) / len(whole)
    left = by_cause.get("broken off", [])
    return float(np.median(left)) if len(left) >= FEWEST_LEFT else None


@once_per_run
def epoch_lengths(run: Run) -> dict[int, int]:
    """How many batches each epoch had, as far as they are recorded."""
    numbers, counts = np.unique(run.steps.epoch, return_counts=True)
    return dict(zip(numbers.tolist(), counts.tolist(), strict=True))
