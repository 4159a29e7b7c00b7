"""Which batches of a run count, and how long its epochs are."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar, cast

import numpy as np
import numpy.typing as npt

from loadeval.data.blocks import whole_epochs
from loadeval.data.columns import UNKNOWN, Column
from loadeval.data.lines import Arm, Window
from loadeval.data.run import ARMS, Run

Mask = npt.NDArray[np.bool_]
Computes = TypeVar("Computes", bound=Callable[..., object])

WITHIN_STEP = "within a step"
"""The kind of an event that tells what else than training was done in a step."""
MOST_LEFT_OUT = 0.2
"""What happens in more than this share of the steps is a part of training."""
FEWEST_LEFT = 3
"""Where training left so many epochs before their end, that is their length."""
OPTIMIZER = "optimizer"
"""The kind of two events: optimizers are watched from now on, and the first one made a step."""
PASSED_SHARE, PASSED_NS = 0.05, 1_000_000
"""Of the time that batches take which are passed over, the share that is not waited for, at most:
their memory is freed. For one it takes less than a millisecond, and nothing is trained in that."""
FEWEST_IN_BLOCK = 4
"""A pair counts when both its blocks have as many batches, or half of what is usual for them."""


def once_per_run(compute: Computes) -> Computes:
    """`compute`, whose results are kept in the run, and go with it: neither ever changes."""

    @wraps(compute)
    def kept(run: Run, *args: object) -> object:
        results = vars(run).setdefault("_computed", {})
        key = (compute, *args)
        if key not in results:
            results[key] = compute(run, *args)
            if isinstance(results[key], np.ndarray):
                results[key].setflags(write=False)
        return results[key]

    return cast("Computes", kept)


@once_per_run
def steady(run: Run, arm: Arm | None = None) -> Mask:
    """Which batches of `run` are steady: a mask over its steps.

    Of an alternating run these are the batches of `arm`, by default the real one, in pairs that
    count, or in any pair where none counts. Of other runs they are those after the warm-up of each
    epoch; of a replay those that were kept.
    """
    rows = after_warmup(run, arm or ("ideal" if run.header.mode == "replay" else "real"))
    pairs = pairs_that_count(run) if run.header.mode == "alternate" else ()
    return np.asarray(rows & np.isin(run.steps.pair, pairs)) if len(pairs) else rows


@once_per_run
def after_warmup(run: Run, arm: Arm) -> Mask:
    """Which batches of one arm were served after its warm-up, in pairs that were cut off too.

    What is read of a GPU or host meanwhile is as true of these.
    """
    steps = run.steps
    alternates = run.header.mode == "alternate"
    counts = steps.pair != UNKNOWN if alternates else steps.batch >= warmup_of(run)
    return np.asarray(counts & closed_steps(run) & (steps.arm == ARMS.index(arm)))


@once_per_run
def pairs_that_count(run: Run) -> Column:
    """The pairs of an alternating run that were measured whole, where a run may end within one.

    Where some blocks are whole epochs, and others are not, only those of the kind count that has
    more. Where a device's clock told times, batches that it did not time do not count.
    """
    steps = run.steps
    whole = list(whole_epochs(run).values())
    is_whole = np.isin(steps.pair, whole)
    if 2 * len(set(whole)) < len(np.unique(steps.pair[steps.pair != UNKNOWN])):
        is_whole = ~is_whole
    counted = (steps.pair != UNKNOWN) & closed_steps(run) & is_whole
    if (by_device := counted & (steps.gpu_step_ns != UNKNOWN)).any():
        counted = by_device
    numbers, index = np.unique(steps.pair[counted], return_inverse=True)
    enough = np.ones(len(numbers), np.bool_)
    for code in range(len(ARMS)):
        sizes = np.bincount(index[steps.arm[counted] == code], minlength=len(numbers))
        usual = float(np.median(sizes[sizes > 0])) if sizes.any() else 0.0
        enough &= sizes >= max(min(FEWEST_IN_BLOCK, usual / 2), 1.0)
    return numbers[enough]


@once_per_run
def closed_steps(run: Run) -> Mask:
    """Which steps are known, and were of training alone: see `steps_left_out`.

    Training begins behind the batches that are passed over, if it does.
    """
    closed: Mask = run.steps.step_ns != UNKNOWN
    closed[steps_left_out(run)] = False
    count = passed_over(run) or 0
    closed[: count if count < len(closed) else 0] = False
    return closed


@once_per_run
def passed_over(run: Run) -> int | None:
    """How many batches were taken, and nothing done with them, before an optimizer's first step.

    All of them where there was none so far. None is not known: nobody saw optimizers step. Training
    that begins with an epoch has not passed over the one before, which may tell a mean, for one.
    """
    times_ns = [event.time_ns for event in run.events if event.kind == OPTIMIZER]
    steps, count = run.steps, len(run.steps)
    if not times_ns or times_ns[0] > steps.request_ns[:1].max(initial=0):  # none was there before
        return None
    step_ns = np.maximum(steps.step_ns, steps.gpu_step_ns)
    longest_ns = float(PASSED_NS)
    if len(times_ns) > 1 and count:
        count = int((steps.request_ns + steps.wait_ns < times_ns[1]).sum()) - 1
        later_ns = step_ns[max(count, 0) :]
        longest_ns = PASSED_SHARE * float(later_ns.mean())
        # Several batches may be taken for one step, and all but one of them at once.
        at_once = np.diff(np.flatnonzero(later_ns >= longest_ns), prepend=-1)
        if count < 2 * at_once.max(initial=1) or steps.epoch[count - 1] != steps.epoch[count]:
            return 0
    is_short = np.median(step_ns[:count]) < longest_ns if count > 0 else False
    real = steps.take(slice(max(count, 0))).where(arm=ARMS.index("real"))
    waited_ns, spent_ns = real.wait_ns.sum(), real.step_ns.clip(0).sum()
    return count if is_short and spent_ns < PASSED_SHARE * (spent_ns + waited_ns) else 0


def steps_left_out(run: Run) -> npt.NDArray[np.intp]:
    """The rows of steps in which training did something else, such as an evaluation.

    None where it does so in many steps: then it is part of them.
    """
    times_ns = np.array([each.time_ns for each in run.events if each.kind == WITHIN_STEP], np.int64)
    begin_ns = run.steps.request_ns + run.steps.wait_ns
    if not len(times_ns) or not len(begin_ns):
        return np.empty(0, np.intp)
    at = np.searchsorted(begin_ns, times_ns, side="right") - 1
    is_within = (begin_ns[at] <= times_ns) & (times_ns < (begin_ns + run.steps.step_ns)[at])
    rows = np.unique(at[is_within])
    return rows if len(rows) <= MOST_LEFT_OUT * len(begin_ns) else rows[:0]


def whole_windows(run: Run, arm: Arm) -> list[Window]:
    """The windows of one arm, in pairs that count, in which training did nothing else."""
    left_out = run.steps.take(steps_left_out(run))
    gone = set(zip(left_out.pair.tolist(), left_out.epoch.tolist(), strict=True))
    counted = set(pairs_that_count(run).tolist())
    return [
        window
        for window in run.windows
        if window.arm == arm and window.pair in counted and (window.pair, window.epoch) not in gone
    ]


# Epochs


@once_per_run
def rows_of_epochs(run: Run) -> dict[int, slice]:
    """The rows of each epoch, as far as it is recorded."""
    numbers, starts = np.unique(run.steps.epoch, return_index=True)
    bounds = [*starts.tolist(), len(run.steps)]
    return dict(zip(numbers.tolist(), map(slice, bounds, bounds[1:]), strict=True))


def epoch_lengths(run: Run) -> dict[int, int]:
    """How many batches each epoch had, up to the last one that is recorded."""
    batch = run.steps.batch
    return {epoch: int(batch[rows.stop - 1]) + 1 for epoch, rows in rows_of_epochs(run).items()}


def length_of_epochs(run: Run) -> float | None:
    """How many batches an epoch has, as far as it shows, or as the loader says.

    It shows by those that were served to their end, or that training left, where it left several.
    """
    lengths = epoch_lengths(run)
    whole = [lengths.get(end.epoch, 0) for end in run.ends if end.cause == "exhausted"]
    left = [lengths.get(end.epoch, 0) for end in run.ends if end.cause == "broken off"]
    if whole:
        return sum(whole) / len(whole)
    return float(np.median(left)) if len(left) >= FEWEST_LEFT else run.loader.length or None


def warmup_of(run: Run) -> int:
    """How many batches at the start of each epoch are not steady.

    Where epochs are over before the loader's queue is full it is the first one, if there are more,
    unless another number was asked for.
    """
    warmup, lengths = run.header.warmup, epoch_lengths(run)
    longest = max(lengths.values(), default=0)
    if longest > warmup or warmup > (run.loader.prefetch_depth or 0) + 2:
        return warmup
    are_short = len(lengths) > 1 and (length_of_epochs(run) or warmup + 1) <= warmup
    return min(longest - 1, 1) if are_short else warmup
