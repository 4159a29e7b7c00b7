"""Which batches of a run count, how long its epochs are, and what their starts and ends add."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar, cast

import numpy as np
import numpy.typing as npt

from loadeval.data.columns import UNKNOWN, Column, Columns
from loadeval.data.lines import Arm, EpochEnd, Window
from loadeval.data.run import ARMS, IDEAL, REAL, SECOND_NS, Run, two_blocks_for

Mask = npt.NDArray[np.bool_]
Computes = TypeVar("Computes", bound=Callable[..., object])

MOST_LEFT_OUT = 0.2
"""What happens in more than this share of the steps is a part of training."""
FEWEST_LEFT = 3
"""Where training left so many epochs before their end, they end where it does."""
PASSED_SHARE, PASSED_NS = 0.05, 1_000_000
"""Batches are passed over if no more than this share of their time is step, and less than a
millisecond of each: that frees their memory, and trains nothing."""
FEWEST_IN_BLOCK = 4
"""A pair counts when both its blocks have so many batches, or half of what is usual for them."""
OUTLIER_TIMES_MEDIAN, FEWEST_FOR_OUTLIERS = 2, 20
"""An iteration is an outlier over so many times the median, which takes so many of them."""


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
    times_ns = [event.time_ns for event in run.events if event.kind == "optimizer"]
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
    real = steps.take(slice(max(count, 0))).where(arm=REAL)
    waited_ns, spent_ns = real.wait_ns.sum(), real.step_ns.clip(0).sum()
    return count if is_short and spent_ns < PASSED_SHARE * (spent_ns + waited_ns) else 0


def steps_left_out(run: Run) -> npt.NDArray[np.intp]:
    """The rows of steps in which training did something else, such as an evaluation.

    None where it does so in many steps: then it is part of them.
    """
    times_ns = [event.time_ns for event in run.events if event.kind == "within a step"]
    begin_ns = run.steps.request_ns + run.steps.wait_ns
    if not times_ns or not len(begin_ns):
        return np.empty(0, np.intp)
    at = np.searchsorted(begin_ns, times_ns, side="right") - 1
    is_within = (begin_ns[at] <= times_ns) & ((begin_ns + run.steps.step_ns)[at] > times_ns)
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


@once_per_run
def whole_epochs(run: Run) -> dict[int, int]:
    """The epochs that are one block each, and the pair of each.

    They are too short for two blocks. Their batches are of one arm, and of one pair, in which the
    first of several is not.
    """
    steps, longest = run.steps, two_blocks_for(run.loader.prefetch_depth or 0)
    pair_of = {}
    for epoch, rows in rows_of_epochs(run).items():
        length = rows.stop - rows.start
        pairs = np.unique(steps.pair[rows][min(length - 1, 1) :])
        is_block = length < longest and len(pairs) == 1 and pairs[0] != UNKNOWN
        if is_block and len(np.unique(steps.arm[rows])) == 1:
            pair_of[epoch] = int(pairs[0])
    return pair_of


def epoch_lengths(run: Run) -> dict[int, int]:
    """How many batches each epoch had, up to the last one that is recorded."""
    batch = run.steps.batch
    return {epoch: int(batch[rows.stop - 1]) + 1 for epoch, rows in rows_of_epochs(run).items()}


def usual_ends(run: Run) -> list[EpochEnd]:
    """The epochs that were served to their end, or that training left, where it left several.

    A look at some batches is no epoch of training: it has under half of the longest one.
    """
    lengths, whole = epoch_lengths(run), [end for end in run.ends if end.cause == "exhausted"]
    half = max(lengths.values(), default=0) / 2
    left = [
        end for end in run.ends if end.cause == "broken off" and half <= lengths.get(end.epoch, 0)
    ]
    return whole or (left if len(left) >= FEWEST_LEFT else [])


def length_of_epochs(run: Run) -> float | None:
    """How many batches an epoch has, as far as its usual ends show, or as the loader says."""
    lengths, ends = epoch_lengths(run), usual_ends(run)
    known = [lengths.get(end.epoch, 0) for end in ends]
    if not known:
        return run.loader.length or None
    return float(np.mean(known) if ends[0].cause == "exhausted" else np.median(known))


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


def first_waits(run: Run) -> Column:
    """The wait of each epoch start: that for the first batch, the loader's own.

    A replayed run has nothing but kept batches, and its first waits are told as they are. An
    epoch whose first batch was ready when the loader was wrapped has no epoch start to tell.
    """
    steps = run.steps
    first = (steps.batch == 0) & ((steps.epoch > 0) | (not run.loader.ready_batches))
    if run.header.mode == "alternate":
        first &= steps.arm == REAL
    return np.asarray(steps.wait_ns[first])


def ends_ns(run: Run) -> dict[int, int | None]:
    """How long each epoch with a usual end took to end, None where that is not known."""
    prefetched = {each.epoch: each.end_ns for each in run.prefetches if each.end_ns is not None}
    return {end.epoch: prefetched.get(end.epoch, end.wait_ns) for end in usual_ends(run)}


@once_per_run
def starts_of(run: Run) -> Columns | None:
    """How `epochs` begin and end, a row each: the first `batches`, and the `ns` that they took.

    `ns` are their waits and steps, and the wait that ends the epoch. The first batches are those
    that the steady part leaves out, as far as they were served in order, before anything was
    prefetched. None where none was seen, or where the length of an epoch is not known. Where
    epochs are blocks of an alternating run, these are all of their batches, and `pair` has the pair
    of each.
    """
    steps, closed = run.steps, closed_steps(run)
    ends, whole, pairs = ends_ns(run), whole_epochs(run), set(pairs_that_count(run).tolist())
    known = [wait_ns for wait_ns in ends.values() if wait_ns is not None]
    usual_ns = sum(known) / len(known) if known else 0.0
    first = max(warmup_of(run), int(run.header.mode == "alternate"))
    plain = (steps.arm == REAL) & closed & (steps.batch < first)
    blocks: list[tuple[float, ...]] = []
    begun: list[tuple[float, ...]] = []
    for epoch, rows in rows_of_epochs(run).items():
        wait_ns, step_ns, own_ns = steps.wait_ns[rows], steps.step_ns[rows], ends.get(epoch)
        end_ns = usual_ns if own_ns is None else own_ns
        if whole.get(epoch) in pairs and steps.arm[rows.start] == REAL:
            # A step that was left out, or still open, is taken to be like others.
            steps_ns = step_ns[closed[rows]].mean() * len(step_ns) if closed[rows].any() else 0.0
            blocks.append((1, len(step_ns), wait_ns.sum() + steps_ns + end_ns, whole[epoch]))
        count = int(np.logical_and.accumulate(plain[rows]).sum())
        was_ready = not epoch and run.loader.ready_batches
        if not was_ready and (count or not first):  # without a warm-up they are steady
            begun.append((1, count, (wait_ns + step_ns)[:count].sum() + end_ns))
    if not blocks and (not begun or length_of_epochs(run) is None):
        return None
    columns = np.array(blocks or begun).T
    return Columns(dict(zip(("epochs", "batches", "ns", "pair"), columns, strict=False)))


@once_per_run
def epochs(run: Run) -> Columns:
    """Each epoch: of its `batches` the `total_ns`, and per batch `mean_ns` and `std_ns`.

    The total is their waits and steps, and the wait that ends the epoch; `samples_per_s` and
    `batches_per_s` are what it makes. An iteration whose step was open is part of the total alone,
    as far as it is known. Of an alternating run the real batches are told, and of a replay those
    that were kept. NaN is not known.
    """
    ends, arm = ends_ns(run), IDEAL if run.header.mode == "replay" else REAL
    names = ("epoch", "batches", "total_ns", "mean_ns", "std_ns", "samples_per_s", "batches_per_s")
    rows = []
    for epoch, of_rows in rows_of_epochs(run).items():
        steps = run.steps.take(of_rows).where(arm=arm)
        if not len(steps):
            continue
        closed = steps.take(steps.step_ns != UNKNOWN)
        iteration_ns = closed.wait_ns + closed.step_ns
        total_ns = int(steps.wait_ns.sum() + closed.step_ns.sum()) + (ends.get(epoch) or 0)
        mean_ns = iteration_ns.mean() if len(closed) else np.nan
        std_ns = iteration_ns.std(ddof=1) if len(closed) > 1 else np.nan
        samples = steps.samples.sum() if (steps.samples != UNKNOWN).all() else np.nan
        per_s = SECOND_NS / (total_ns or np.nan)
        rates = samples * per_s, len(steps) * per_s
        rows.append((epoch, len(steps), total_ns, mean_ns, std_ns, *rates))
    return Columns.of_rows(names, rows)


def workers_started(run: Run) -> int | None:
    """How many worker processes the run started; None where the loader has none that are known.

    Workers that stay alive are started once, others in each epoch.
    """
    loader = run.loader
    if loader.workers is None or loader.start_method is None:  # they may be threads
        return len(run.worker_starts) or None
    return loader.workers * (1 if loader.persistent_workers else len(epoch_lengths(run)))


@once_per_run
def outliers(run: Run) -> Columns:
    """The iterations that count and took over twice their median, as a `row` of the run's steps.

    They are those of the real arm. `epoch`, `batch`, `request_ns`, `wait_ns` and `step_ns` are
    those of the batch. `times_median` is how many times as long it took, and `worker` which one had
    loaded it, where the loader was looked into while it gave it. Of under 20 iterations none is an
    outlier.
    """
    stages, of_arm = run.stages, np.flatnonzero(steady(run, "real"))
    steps = run.steps.take(of_arm)
    iteration_ns = steps.wait_ns + steps.step_ns
    median_ns = float(np.median(iteration_ns)) if len(of_arm) >= FEWEST_FOR_OUTLIERS else np.inf
    slow = iteration_ns > (OUTLIER_TIMES_MEDIAN * median_ns or np.inf)
    steps = steps.take(slow)
    worker = np.full(len(steps), UNKNOWN)
    if len(stages):
        # In an alternating run the loader numbers batches otherwise than training gets them.
        stages = stages.take(np.argsort(stages.delivered_ns, kind="stable"))
        came_ns = steps.request_ns + steps.wait_ns
        last = np.searchsorted(stages.delivered_ns, came_ns, side="right") - 1
        own = (last >= 0) & (stages.delivered_ns[last] >= steps.request_ns)
        worker = np.where(own, stages.worker[last], UNKNOWN)
    of_batch = {
        name: steps[name] for name in ("epoch", "batch", "request_ns", "wait_ns", "step_ns")
    }
    times_median = iteration_ns[slow] / median_ns
    return Columns(
        {"row": of_arm[slow], **of_batch, "times_median": times_median, "worker": worker}
    )
