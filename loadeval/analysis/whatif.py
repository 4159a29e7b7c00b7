"""What if: throughput under other settings, predicted from a recorded run, never measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.remark import Remark
    from loadeval.runlog.model import Run


class Limit(Enum):
    """What a loader would be held up by."""

    STEP = "training step"
    WORKERS = "workers"
    CPUS = "CPUs"
    TRAINING_PROCESS = "training process"
    STORAGE = "storage"
    PREFETCH = "prefetched batches"


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
    not known. `assumptions` are those that this run could not check.
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


class LoaderModel:
    """A recorded loader, and what it would do under other settings."""

    @classmethod
    def of(cls, runs: Run | Sequence[Run]) -> LoaderModel:
        """Of one run with stages, or of several of one loader that differ in `num_workers`.

        Raises UsageError where no run tells what happens inside the loader.
        """
        raise NotImplementedError

    def predict(  # noqa: PLR0913 - the settings of a loader, by keyword
        self,
        *,
        num_workers: int | None = None,
        prefetch_factor: int | None = None,
        cpus: float | None = None,
        in_order: bool | None = None,
        batch_size: int | None = None,
        faster: Mapping[str, float] | None = None,
    ) -> Prediction:
        """What training would do under these settings; None leaves one as it was."""
        raise NotImplementedError


def whatif(  # noqa: PLR0913 - the settings of a loader, by keyword
    runs: Run | Sequence[Run],
    *,
    num_workers: int | None = None,
    prefetch_factor: int | None = None,
    cpus: float | None = None,
    in_order: bool | None = None,
    batch_size: int | None = None,
    faster: Mapping[str, float] | None = None,
) -> Prediction:
    """What training would do under other settings; None leaves one as it was."""
    raise NotImplementedError
