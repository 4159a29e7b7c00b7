"""What a prediction says: its figures with ranges, what limits training, and what is assumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from loadeval.analysis.estimate.stats import Estimate

if TYPE_CHECKING:
    from loadeval.analysis.remark import Remark


class Limit(Enum):
    """What a loader would be held up by."""

    STEP = "training step"
    WORKERS = "workers"
    CPUS = "CPUs"
    TRAINING_PROCESS = "training process"
    STORAGE = "storage"
    LOCK = "a lock"
    PREFETCH = "prefetched batches"
    EPOCH_STARTS = "epoch starts"
    """Only what whole epochs are limited by, since predictions are of the steady state."""


class Assumption(Enum):
    """What a prediction takes for granted, which the run does not show."""

    CPU_TIME_GROWS = "cpu_time_grows"
    BLOCKED_IN_PARALLEL = "blocked_in_parallel"
    STORAGE_NOT_KNOWN = "storage_not_known"
    LOCK_LIMITS = "lock_limits"
    CPUS_NOT_READ = "cpus_not_read"
    STEP_PER_SAMPLE = "step_per_sample"
    HAND_OVER_USUAL = "hand_over_usual"
    TENSORS_NOT_COUNTED = "tensors_not_counted"
    WORKERS_START = "workers_start"
    STEP_SPINS = "step_spins"
    UNLIKE_REPLAY = "unlike_replay"


class Shortage(Enum):
    """What settings would need more of than there is."""

    MEMORY = "memory"
    SHARED_MEMORY = "shared_memory"


@dataclass(frozen=True, slots=True)
class Range:
    """A predicted value, and the range that it is expected in."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """What training would do under other settings, predicted.

    `throughput` is per second, in `unit`; `speedup` is that over the run as it was measured, both
    in the steady state. `limit` is what it is held up by then. `memory_bytes` is what the workers
    and the batches in the queue take, `shared_memory_bytes` what of it lies in /dev/shm; None is
    not known. `assumptions` are those that the run could not check, and `shortages` what they need
    more of than the machine of the run has. `faster` has full names.
    """

    num_workers: int
    prefetch_factor: int
    in_order: bool
    cpus: float | None
    batch_size: int | None
    faster: Mapping[str, float]
    iteration_ns: Range
    throughput: Range
    unit: str
    speedup: Range
    limit: Limit
    memory_bytes: float | None
    shared_memory_bytes: float | None
    assumptions: tuple[Remark, ...]
    shortages: tuple[Remark, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkerCurve:
    """Throughput against the number of workers.

    `measured` has the runs, each with its number of workers and its throughput, `predicted` one
    prediction for each number of workers, in order; all else is as it was. `cpus` are those that
    training may use, and `others_cpus` what other programs use of them; None is not known.
    """

    measured: tuple[tuple[int, Estimate], ...]
    predicted: tuple[Prediction, ...]
    unit: str
    cpus: float | None
    others_cpus: float
