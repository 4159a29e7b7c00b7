"""Epochs: what their starts and ends add to the steady state, and each by itself."""

from __future__ import annotations

import numpy as np

from loadeval.data.blocks import whole_epochs
from loadeval.data.columns import UNKNOWN, Column, Columns
from loadeval.data.run import ARMS, SECOND_NS, Run
from loadeval.estimate.steady import (
    closed_steps,
    epoch_lengths,
    length_of_epochs,
    once_per_run,
    pairs_that_count,
    rows_of_epochs,
    steady,
    warmup_of,
)

OUTLIER_TIMES_MEDIAN, FEWEST_FOR_OUTLIERS = 2, 20
"""An iteration is an outlier over so many times the median, which takes so many of them."""


def first_waits(run: Run) -> Column:
    """The wait of each epoch start: that for the first batch, the loader's own.

    A replayed run has nothing but kept batches, and its first waits are told as they are. An
    epoch whose first batch was ready when the loader was wrapped has no epoch start to tell.
    """
    steps = run.steps
    first = (steps.batch == 0) & ((steps.epoch > 0) | (not run.loader.ready_batches))
    if run.header.mode == "alternate":
        first &= steps.arm == ARMS.index("real")
    return np.asarray(steps.wait_ns[first])


def ends_ns(run: Run) -> dict[int, int | None]:
    """How long each epoch that was served to its end took to end, None where that is not known."""
    prefetched = {each.epoch: each.end_ns for each in run.prefetches if each.end_ns is not None}
    ends = (end for end in run.ends if end.cause == "exhausted")
    return {end.epoch: prefetched.get(end.epoch, end.wait_ns) for end in ends}


@once_per_run
def starts_of(run: Run) -> Columns | None:
    """How `epochs` begin and end, a row each: the first `batches`, and the `ns` that they took.

    `ns` are their waits and steps, and the wait that ends the epoch. The first batches are those
    that the steady part leaves out, as far as they were served in order, before anything was
    prefetched. None where none was seen, or where the length of an epoch is not known. Where
    epochs are blocks of an alternating run, these are all of their batches, and `pair` has the pair
    of each.
    """
    steps, closed, real = run.steps, closed_steps(run), ARMS.index("real")
    ends, whole, pairs = ends_ns(run), whole_epochs(run), set(pairs_that_count(run).tolist())
    known = [wait_ns for wait_ns in ends.values() if wait_ns is not None]
    usual_ns = sum(known) / len(known) if known else 0.0
    first = max(warmup_of(run), int(run.header.mode == "alternate"))
    plain = (steps.arm == real) & closed & (steps.batch < first)
    blocks: list[tuple[float, ...]] = []
    begun: list[tuple[float, ...]] = []
    for epoch, rows in rows_of_epochs(run).items():
        wait_ns, step_ns, own_ns = steps.wait_ns[rows], steps.step_ns[rows], ends.get(epoch)
        end_ns = usual_ns if own_ns is None else own_ns
        if whole.get(epoch) in pairs and steps.arm[rows.start] == real:
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
    ends, arm = ends_ns(run), ARMS.index("ideal" if run.header.mode == "replay" else "real")
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
