"""Predictions over whole epochs, and whether there is room for what is predicted."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, NamedTuple

from loadeval.analysis.predict.prediction import Range
from loadeval.analysis.predict.tuning import WORKERS, Forecast, LeftOut
from loadeval.analysis.predict.whatif import LoaderModel
from loadeval.analysis.remark import Remark
from loadeval.errors import UsageError
from loadeval.probes.host import MachineLoad

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.predict.prediction import Prediction, WorkerCurve
    from loadeval.analysis.predict.tuning import Point
    from loadeval.runlog.model import Run

PERSIST = "persistent_workers"
SIMULATED = (WORKERS, "prefetch_factor", "in_order", "batch_size")
PREDICTED = (*SIMULATED, PERSIST)
"""Settings that predictions distinguish; the last by the starts of epochs."""
SHARE_OF_FREE = 0.9
"""The share of the free memory that loaders may take."""
SHM = "/dev/shm"  # noqa: S108 - where loaders share batches, not a file of ours
LEAST_SHARE = 0.1
"""An epoch that starts fast takes at least this share of the steady iteration per batch."""


class Room(NamedTuple):
    """The bytes of memory, and of shared memory, that a loader may take; None: unknown."""

    memory_bytes: float | None
    shared_memory_bytes: float | None

    @classmethod
    def free(cls, loaders: int = 1) -> Room:
        """SHARE_OF_FREE of what is free now, for one of so many loaders that live at once."""
        available = MachineLoad().read()["memory_available_bytes"]
        try:
            filesystem = os.statvfs(SHM)
            shared: float | None = filesystem.f_bavail * filesystem.f_frsize
        except (OSError, AttributeError):  # Windows has no such call
            shared = None
        return cls(
            *(
                None if free_bytes is None else SHARE_OF_FREE * free_bytes / loaders
                for free_bytes in (available, shared)
            )
        )

    def why_left_out(self, prediction: Prediction) -> Remark | None:
        """Why there is no room for what is predicted."""
        for code, wanted, free in (
            (LeftOut.SHARED_MEMORY, prediction.shared_memory_bytes, self.shared_memory_bytes),
            (LeftOut.MEMORY, prediction.memory_bytes, self.memory_bytes),
        ):
            if wanted is not None and free is not None and wanted > free:
                return Remark(code, {"needed_bytes": wanted, "free_bytes": free})
        return None


class Forecaster:
    """Predicts points from the runs that were measured, over whole epochs."""

    def __init__(self, model: LoaderModel, room: Room, epoch_batches: float | None) -> None:
        self._model = model
        self._room = room
        self._epoch_batches = epoch_batches
        self._starts_ns: dict[bool, dict[int, float]] = {False: {}, True: {}}

    def saw_start(self, workers: int, persist: bool, starts_ns: float) -> None:
        """Note how long an epoch takes to start with so many workers, which may persist."""
        self._starts_ns[persist][workers] = starts_ns

    def recalibrate(self, runs: Sequence[Run]) -> None:
        """Fit the model to runs that differ in their workers; the last has the present settings."""
        try:
            self._model = LoaderModel.of(runs)
        except UsageError:  # the present model stays
            return

    def __call__(self, point: Point) -> Forecast:
        """What is predicted of `point`, and whether there is room for it."""
        settings = {name: point[name] for name in SIMULATED if name in point}
        if not point.get(WORKERS, self._model.num_workers):  # then nothing is prefetched
            settings.pop("prefetch_factor", None)
        prediction = self._model.predict(**settings)
        share = 1.0
        if self._epoch_batches is not None:
            persist = bool(point.get(PERSIST))
            starts_ns = self._start_ns(prediction.num_workers, persist) / self._epoch_batches
            share = max(1 + starts_ns / prediction.iteration_ns.value, LEAST_SHARE)
        steady = prediction.throughput
        whole = Range(steady.value / share, steady.low / share, steady.high / share)
        return Forecast(whole, prediction, self._room.why_left_out(prediction))

    @property
    def cpu_share(self) -> float:
        """The share of fetching a batch in which a worker uses a CPU or waits for one."""
        return self._model.cpu_share

    def curve(self) -> WorkerCurve:
        """Throughput in the steady state by workers, with the other settings of the present."""
        return self._model.curve()

    def _start_ns(self, workers: int, persist: bool) -> float:
        """How long an epoch takes to start with so many workers.

        It is as measured with the most similar number, and longer in proportion for more. If none
        was measured, workers add to what an epoch takes to start without them.
        """
        without = self._starts_ns[False].get(0, 0.0)
        if not workers:
            return without
        measured = self._starts_ns[persist]
        counts = measured.keys() - {0}
        if not counts:
            model, epochs = self._model, math.inf if persist else 1
            return without + model.starts_ns(workers, epochs) + model.edge_ns(workers)
        nearest = min(counts, key=lambda count: (abs(count - workers), count))
        return measured[nearest] * max(workers / nearest, 1.0)
