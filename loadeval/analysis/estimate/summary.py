"""The steady part of a run, its rates and quantiles, and its whole epochs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.estimate.epochs import epoch_start_waits
from loadeval.analysis.estimate.steady import steady
from loadeval.analysis.once import once_per_run
from loadeval.data.columns import UNKNOWN
from loadeval.data.run import ARMS, SECOND_NS

if TYPE_CHECKING:
    import numpy.typing as npt

    from loadeval.data.columns import Column
    from loadeval.data.lines import Arm
    from loadeval.data.run import Run

QUANTILES = (0.5, 0.95, 0.99)
OUTLIER_TIMES_MEDIAN = 2
"""An iteration (wait + step) that counts is an outlier over so many times its arm's median."""
HIDDEN_SHARE = 0.5
"""Waits tell little of what was lost where the GPU was idle for a smaller share of them."""
LEAST_WAIT_SHARE = 0.01
"""Waiting for a smaller share of the iterations needs no explanation."""
FEWEST_FOR_OUTLIERS = 20
"""Iterations before which that median is not trusted."""


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

    `batches` and `epochs` count all that were delivered. `epoch_start_ns` is the first wait of
    each epoch that shows what its first batch costs. Everything from `steady_batches` on is of
    the steady part alone: batches whose step was closed, without the first `warmup` of each
    epoch; in an alternating run, those that count for a pair. Rates are sums over sums, so
    that a short last batch counts for what it is: `batches_per_s` and `samples_per_s`, the
    latter None when the samples of a steady batch are unknown. `wait_share` is the part of the
    iterations that was waited, 0 to 1. `bytes_per_batch` is a mean over batches whose bytes were
    counted, each standing for those after it whose were not.
    """

    batches: int
    epochs: int
    epoch_start_ns: tuple[int, ...]
    steady_batches: int
    iteration_ns: float | None
    wait_ns: float | None
    step_ns: float | None
    wait_share: float | None
    waits: Waits | None
    samples_per_batch: float | None
    bytes_per_batch: float | None
    batches_per_s: float | None
    samples_per_s: float | None


@once_per_run
def summarise(run: Run, arm: Arm | None = None) -> Summary:
    """The figures of `run`; of an alternating one those of one `arm`, as in `steady`."""
    steps, chosen = run.steps, steady(run, arm)
    waits = steps.wait_ns[chosen]
    wait_ns, step_ns = int(waits.sum()), int(steps.step_ns[chosen].sum())
    total_ns = wait_ns + step_ns
    count, samples = len(waits), _total(steps.samples[chosen])
    return Summary(
        batches=run.batches,
        epochs=len(np.unique(run.steps.epoch)),
        epoch_start_ns=tuple(epoch_start_waits(run).tolist()),
        steady_batches=count,
        iteration_ns=_ratio(total_ns, count),
        wait_ns=_ratio(wait_ns, count),
        step_ns=_ratio(step_ns, count),
        wait_share=_ratio(wait_ns, total_ns),
        waits=_waits(waits),
        samples_per_batch=_ratio(samples, count),
        bytes_per_batch=_mean_of_known(steps.nbytes[chosen]),
        batches_per_s=_ratio(count * SECOND_NS, total_ns),
        samples_per_s=None if samples is None else _ratio(samples * SECOND_NS, total_ns),
    )


@dataclass(frozen=True, slots=True)
class Spent:
    """What training spent its time on, over all `batches` that it got from the loader itself.

    In nanoseconds: `first_wait_ns` for the first batch of each epoch, `wait_ns` for the others,
    and `step_ns` on its steps, of which one may still have been open.
    """

    batches: int
    first_wait_ns: int
    wait_ns: int
    step_ns: int

    @property
    def total_ns(self) -> int:
        """All of it."""
        return self.first_wait_ns + self.wait_ns + self.step_ns


def spent(run: Run) -> Spent:
    """How a run that loaded spent its time."""
    first_wait_ns = int(epoch_start_waits(run).sum())
    rows = run.steps.arm == ARMS.index("real")
    wait_ns, step_ns = int(run.steps.wait_ns[rows].sum()), run.steps.step_ns[rows]
    known_ns = int(step_ns[step_ns != UNKNOWN].sum())
    return Spent(int(rows.sum()), first_wait_ns, wait_ns - first_wait_ns, known_ns)


@dataclass(frozen=True, slots=True)
class GpuWait:
    """The mean wait for a batch that counts, and how long the device had no work in it.

    `hidden` tells whether most of the waits cost nothing, for the device had work.
    """

    wait_ns: float
    gpu_idle_ns: float
    hidden: bool


@once_per_run
def gpu_wait(run: Run, arm: Arm) -> GpuWait | None:
    """The waits of one arm as its device saw them; None where no device's clock told."""
    steps = run.steps
    rows = steady(run, arm) & (steps.gpu_idle_ns != UNKNOWN)
    if not rows.any():
        return None
    wait_ns, step_ns, idle_ns = (
        float(column[rows].mean()) for column in (steps.wait_ns, steps.step_ns, steps.gpu_idle_ns)
    )
    matters = wait_ns > LEAST_WAIT_SHARE * (wait_ns + step_ns)
    return GpuWait(wait_ns, idle_ns, matters and idle_ns < HIDDEN_SHARE * wait_ns)


def _total(column: Column) -> int | None:
    return None if (column == UNKNOWN).any() else int(column.sum())


def _mean_of_known(column: Column) -> float | None:
    """The mean of `column`, where each value goes on until the next one that is known."""
    known = np.flatnonzero(column != UNKNOWN)
    if not len(known):
        return None
    lasting = np.diff(known, append=len(column))
    return float((column[known] * lasting).sum() / lasting.sum())


def _ratio(part: int | None, whole: int) -> float | None:
    return None if part is None or whole == 0 else part / whole


def _waits(wait_ns: Column) -> Waits | None:
    if not len(wait_ns):
        return None
    p50, p95, p99 = np.quantile(wait_ns, QUANTILES).tolist()
    return Waits(float(wait_ns.mean()), p50, p95, p99, int(wait_ns.max()))


@dataclass(frozen=True, slots=True, eq=False)
class ArmIterations:
    """The iterations of one arm that count, as rows of the run's steps, and which are outliers."""

    arm: Arm
    rows: npt.NDArray[np.intp]
    outliers: npt.NDArray[np.intp]
    median_ns: float


@once_per_run
def iterations_of(run: Run) -> list[ArmIterations]:
    """The iterations of each arm that has any; of under FEWEST_FOR_OUTLIERS none is an outlier."""
    iterations = []
    iteration_ns = run.steps.wait_ns + run.steps.step_ns
    for code, arm in enumerate(ARMS):
        rows = np.flatnonzero(steady(run, arm) & (run.steps.arm == code))
        if len(rows):
            median_ns = float(np.median(iteration_ns[rows]))
            slow = iteration_ns[rows] > OUTLIER_TIMES_MEDIAN * median_ns
            trusted = len(rows) >= FEWEST_FOR_OUTLIERS and median_ns > 0
            iterations.append(
                ArmIterations(arm, rows, rows[slow] if trusted else rows[:0], median_ns)
            )
    return iterations
