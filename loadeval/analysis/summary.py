"""The steady part of a run, and its rates and quantiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from loadeval.record.model import ARMS, UNKNOWN

if TYPE_CHECKING:
    import numpy.typing as npt

    from loadeval.record.model import Arm, Column, Run

SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Waits:
    """How long the consumer was blocked for a batch, in nanoseconds, over some batches."""

    mean_ns: float
    p50_ns: float
    p95_ns: float
    p99_ns: float
    max_ns: int


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run's batches add up to. What cannot be known is None.

    `batches` and `epochs` count all that were delivered. `startup_ns` is the first wait of
    each epoch that shows what its first batch costs. Everything from `steady_batches` on is of
    the steady part alone: batches whose step was closed, without the first `warmup` of each
    epoch; in an alternating run, those that count for a pair. Rates are sums over sums, so
    that a short last batch counts for what it is: `batches_per_s` and `samples_per_s`, the
    latter None when the samples of a steady batch are unknown. `wait_share` is the part of the
    cycles that was waited, 0 to 1.
    """

    batches: int
    epochs: int
    startup_ns: tuple[int, ...]
    steady_batches: int
    cycle_ns: float | None
    wait_ns: float | None
    step_ns: float | None
    wait_share: float | None
    waits: Waits | None
    samples_per_batch: float | None
    bytes_per_batch: float | None
    batches_per_s: float | None
    samples_per_s: float | None


def steady(run: Run, arm: Arm | None = None) -> npt.NDArray[np.bool_]:
    """Which batches of `run` are steady: a mask over its steps.

    Of an alternating run these are the counted ones of `arm`; by default the real one's, or
    the ideal one's where the real one has none.
    """
    steps = run.steps
    closed: npt.NDArray[np.bool_] = steps.step_ns != UNKNOWN
    if run.header.mode == "alternate":
        counted: npt.NDArray[np.bool_] = (steps.pair != UNKNOWN) & closed
        code = steps.arm[counted].min(initial=len(ARMS)) if arm is None else ARMS.index(arm)
        of_one: npt.NDArray[np.bool_] = steps.arm == code
        return counted & of_one
    settled: npt.NDArray[np.bool_] = rank_in_epoch(steps.epoch) >= run.header.warmup
    of_arm: npt.NDArray[np.bool_] = steps.arm == (steps.arm if arm is None else ARMS.index(arm))
    return settled & closed & of_arm


def rank_in_epoch(epoch: Column) -> Column:
    """Each batch's number within its epoch, from 0; `epoch` is the steps' column, sorted."""
    _, first, lengths = np.unique(epoch, return_index=True, return_counts=True)
    return np.arange(len(epoch)) - np.repeat(first, lengths)


def startups(run: Run) -> Column:
    """The first wait of each epoch that began with the loader itself, not with kept batches.

    A replayed run has nothing but kept batches, and its first waits are told as they are. An
    epoch whose first batch was ready when the loader was wrapped has no start-up to tell.
    """
    steps = run.steps
    first = rank_in_epoch(steps.epoch) == 0
    if run.header.loader.ready_batches:
        first &= steps.epoch > 0
    if run.header.mode == "alternate":
        first &= steps.arm == ARMS.index("real")
    waits: Column = steps.wait_ns[first]
    return waits


def summarise(run: Run, arm: Arm | None = None) -> Summary:
    """The figures of `run`; of an alternating one those of one `arm`, as in `steady`."""
    steps = run.steps
    chosen = steady(run, arm)
    count = int(chosen.sum())
    wait_ns, step_ns = steps.wait_ns[chosen], steps.step_ns[chosen]
    total_ns = int(wait_ns.sum() + step_ns.sum())
    samples = _total(steps.samples[chosen])
    nbytes = _total(steps.nbytes[chosen])
    return Summary(
        batches=len(steps),
        epochs=len(np.unique(steps.epoch)),
        startup_ns=tuple(startups(run).tolist()),
        steady_batches=count,
        cycle_ns=_ratio(total_ns, count),
        wait_ns=_ratio(int(wait_ns.sum()), count),
        step_ns=_ratio(int(step_ns.sum()), count),
        wait_share=_ratio(int(wait_ns.sum()), total_ns),
        waits=_waits(wait_ns),
        samples_per_batch=_ratio(samples, count),
        bytes_per_batch=_ratio(nbytes, count),
        batches_per_s=_ratio(count * SECOND_NS, total_ns),
        samples_per_s=None if samples is None else _ratio(samples * SECOND_NS, total_ns),
    )


def _total(column: Column) -> int | None:
    return None if (column == UNKNOWN).any() else int(column.sum())


def _ratio(part: int | None, whole: int) -> float | None:
    return None if part is None or whole == 0 else part / whole


def _waits(wait_ns: Column) -> Waits | None:
    if not len(wait_ns):
        return None
    p50, p95, p99 = np.percentile(wait_ns, [50, 95, 99]).tolist()
    return Waits(float(wait_ns.mean()), p50, p95, p99, int(wait_ns.max()))
