"""What may be wrong with an arm: busy workers, a pace that drifts, batches that are not alike."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from loadeval.analysis.intervals import FEWEST_PAIRS, over_runs
from loadeval.analysis.summary import steady
from loadeval.runlog.model import UNKNOWN

if TYPE_CHECKING:
    from loadeval.analysis.intervals import Pace
    from loadeval.runlog.model import Column, LoaderInfo, Run, Window

BUSIEST_SHARE = 0.05
"""CPU time of the workers in ideal blocks, as a share of these, over which they are not free."""
TICK_NS = 10_000_000
"""What CPU times are counted in."""
STRONG = 0.5
SIGNIFICANT = 3.3
"""Standard errors: once in a thousand by chance."""


def busy_share(run: Run, pairs: list[int]) -> float | None:
    """How busy the workers were in the ideal blocks of `pairs`; None: not known.

    1.0 is one CPU.
    """
    windows = _ideal_windows(run, pairs)
    elapsed_ns = sum(window.elapsed_ns for window in windows)
    used = [window.workers_cpu_ns for window in windows if window.workers_cpu_ns is not None]
    if len(used) < len(windows) or not elapsed_ns:
        return None
    return sum(used) / elapsed_ns


def too_busy(run: Run, pairs: list[int]) -> float | None:
    """`busy_share` where it is too much, beyond what counting in ticks may come to; or None."""
    share = busy_share(run, pairs)
    if share is None:
        return None
    windows = _ideal_windows(run, pairs)
    elapsed_ns = sum(window.elapsed_ns for window in windows)
    # Each window is wrong by up to a tick, up or down, independently of the others.
    allowed = BUSIEST_SHARE + TICK_NS * math.sqrt(len(windows)) / elapsed_ns
    return share if share > allowed else None


def _ideal_windows(run: Run, pairs: list[int]) -> list[Window]:
    return [window for window in run.windows if window.arm == "ideal" and window.pair in set(pairs)]


def loads_ahead(loader: LoaderInfo) -> bool:
    """False where a loader is known to have no workers, or to keep no batch ready."""
    return 0 not in (loader.workers, loader.prefetch_depth)


def drift_ns(pace: Pace) -> float:
    """By how much the second half of a run is slower or faster than the first, beyond noise."""
    middle = len(pace.total_ns) // 2
    first, second = (
        type(pace)(pace.total_ns[rows], pace.amount[rows])
        for rows in (slice(None, middle), slice(middle, None))
    )
    if middle < FEWEST_PAIRS or not first.amount.sum() or not second.amount.sum():
        return 0.0
    half = over_runs(first.deviations(), second.deviations())
    change_ns = abs(first.mean_ns - second.mean_ns)
    return change_ns if half is not None and change_ns > half else 0.0


def unrepresentative(real: Run, ideal: Run) -> str:
    """A sentence where kept batches may not stand for the epoch; "" where nothing says so."""
    found = dependences(real, ideal)
    if not found:
        return ""
    return (
        f"A step's time depends on the batch, on {' and '.join(found)}: the kept batches may not "
        "stand for the epoch."
    )


def dependences(real: Run, ideal: Run) -> dict[str, float]:
    """What a step's time depends on, with the rank correlation."""
    by_size = [dependence(run, run.steps.nbytes) for run in (real, ideal)]
    found = {
        "its place in the epoch": dependence(real, real.steps.batch),
        "its size in bytes": max(by_size, key=abs),
    }
    return {name: rho for name, rho in found.items() if rho}


def dependence(run: Run, column: Column) -> float:
    """The rank correlation of the steady steps with `column`; 0.0 if weak, or maybe chance."""
    rows = steady(run) & (column != UNKNOWN)
    rho = spearman(run.steps.step_ns[rows], column[rows])
    sure = abs(rho) >= STRONG and abs(rho) * math.sqrt(rows.sum() - 1) >= SIGNIFICANT
    return rho if sure else 0.0


def spearman(one: Column, other: Column) -> float:
    """The rank correlation, ties having their mean rank; 0.0 where either is constant."""
    first, second = (mean_ranks(column) - (len(column) - 1) / 2 for column in (one, other))
    scale = math.sqrt(float((first**2).sum()) * float((second**2).sum()))
    return float((first * second).sum()) / scale if scale else 0.0


def mean_ranks(column: Column) -> npt.NDArray[np.float64]:
    """Each value's rank from 0; equal values share their mean rank."""
    _, which, counts = np.unique(column, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: npt.NDArray[np.float64] = ((last - counts) + (last - 1))[which] / 2
    return ranks
