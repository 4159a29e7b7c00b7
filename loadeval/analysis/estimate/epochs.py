"""What epochs add to the steady state: their first batches and their ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.estimate.intervals import MeanError
from loadeval.analysis.estimate.steady import (
    closed_steps,
    epoch_lengths,
    usual_length,
    warmup_of,
)
from loadeval.analysis.once import once_per_run
from loadeval.data.blocks import whole_epochs
from loadeval.data.run import ARMS

if TYPE_CHECKING:
    from loadeval.analysis.estimate.stats import Series
    from loadeval.data.columns import Column
    from loadeval.data.run import Run


def epoch_start_waits(run: Run) -> Column:
    """The first wait of each epoch that began with the loader itself, not with kept batches.

    A replayed run has nothing but kept batches, and its first waits are told as they are. An
    epoch whose first batch was ready when the loader was wrapped has no epoch start to tell.
    """
    steps = run.steps
    first = steps.batch == 0
    if run.header.loader.ready_batches:
        first &= steps.epoch > 0
    if run.header.mode == "alternate":
        first &= steps.arm == ARMS.index("real")
    waits: Column = steps.wait_ns[first]
    return waits


@dataclass(frozen=True, slots=True)
class Epochs:
    """Means over epochs; None is not known.

    `batches` is the `usual_length` of one, `epoch_start_ns` its first wait, and `end_ns` the wait
    that ends it, known of epochs that were served to their end.
    """

    batches: float | None
    epoch_start_ns: float | None
    end_ns: float | None


@once_per_run
def epochs_of(run: Run) -> Epochs:
    """The epochs of a run that loaded."""
    ends, length = _ends_ns(run), run.header.loader.length
    return Epochs(
        batches=usual_length(run) or (float(length) if length else None),
        epoch_start_ns=_mean(epoch_start_waits(run).tolist()),
        end_ns=_mean([wait_ns for wait_ns in ends.values() if wait_ns is not None]),
    )


def _ends_ns(run: Run) -> dict[int, int | None]:
    """How long each epoch that was served to its end took to end, None where that is not known."""
    ends = {end.epoch: end.wait_ns for end in run.ends if end.cause == "exhausted"}
    prefetched = {
        prefetch.epoch: prefetch.end_ns
        for prefetch in run.prefetches
        if prefetch.end_ns is not None
    }
    return ends | {epoch: prefetched[epoch] for epoch in ends.keys() & prefetched.keys()}


@dataclass(frozen=True, slots=True, eq=False)
class EpochStarts:
    """What the first batches and the end of an epoch take: entries for each that was seen to start.

    `batches` is the mean length of an epoch. `first_batches` are those at its start whose waits
    and steps, and the wait that ends the epoch, take `first_ns`. Where epochs are blocks of an
    alternating run, these are all of their batches, and `pair` has the pair of each.
    """

    batches: float
    first_batches: Series
    first_ns: Series
    pair: Column | None = None

    @property
    def epochs(self) -> int:
        """How many were seen to start."""
        return len(self.first_ns)

    @property
    def steady_part(self) -> float:
        """The part of an epoch's batches that comes after the first ones."""
        return max(1 - float(self.first_batches.mean()) / self.batches, 0.0)

    def added_ns(self, real_ns: float) -> float:
        """What is added to the steady iteration `real_ns`, per batch of an epoch."""
        return float(self._beyond(real_ns).mean())

    def error(self, real_ns: float) -> MeanError | None:
        """The error of `added_ns`, by what epochs differ; None where only one was seen."""
        if self.epochs == 1:
            return None
        variance = float(self._beyond(real_ns).var(ddof=1)) / self.epochs
        return MeanError(variance, self.epochs - 1)

    def _beyond(self, real_ns: float) -> Series:
        return (self.first_ns - self.first_batches * real_ns) / self.batches


@once_per_run
def epoch_starts_of(run: Run) -> EpochStarts | None:
    """The epoch starts of a run that loaded; None where none was seen, or a length is not known.

    The first batches are those that the steady part leaves out, as far as they were served in
    order, before anything was prefetched.
    """
    epochs = epochs_of(run)
    whole = _whole_starts(run, epochs.end_ns or 0.0)
    if whole is not None or epochs.batches is None:
        return whole
    ends, starts = _ends_ns(run), []
    for epoch, (batches, batches_ns) in _first_batches(run).items():
        end_ns = ends.get(epoch)
        if epoch or not run.header.loader.ready_batches:
            starts.append(
                (batches, batches_ns + (epochs.end_ns or 0.0 if end_ns is None else end_ns))
            )
    if not starts:
        return None
    first_batches, first_ns = np.array(starts, dtype=np.float64).T
    return EpochStarts(epochs.batches, first_batches, first_ns)


def _whole_starts(run: Run, usual_end_ns: float) -> EpochStarts | None:
    """The starts of real epochs that are blocks; None where there are none.

    A step that is left out, or was open when its epoch was broken off, is taken to be like others.
    """
    steps, ends, starts = run.steps, _ends_ns(run), []
    is_real, closed = steps.arm == ARMS.index("real"), closed_steps(run)
    for epoch, pair in whole_epochs(run).items():
        rows = np.flatnonzero((steps.epoch == epoch) & is_real)
        if not len(rows):
            continue
        known_ns = steps.step_ns[rows][closed[rows]]
        step_ns = float(known_ns.mean()) if len(known_ns) else 0.0
        end_ns = ends.get(epoch)
        elapsed_ns = float(steps.wait_ns[rows].sum()) + len(rows) * step_ns
        elapsed_ns += usual_end_ns if end_ns is None else end_ns
        starts.append((len(rows), elapsed_ns, pair))
    if not starts:
        return None
    batches, elapsed, pairs = np.array(starts, dtype=np.float64).T
    return EpochStarts(float(batches.mean()), batches, elapsed, pairs.astype(np.int64))


def _first_batches(run: Run) -> dict[int, tuple[int, int]]:
    """How many batches each epoch was seen to begin with, and their waits and steps."""
    firsts: dict[int, tuple[int, int]] = {}
    first = warmup_of(run)
    if run.header.mode == "alternate":
        first = max(first, 1)
    if not first:  # they are part of the steady one
        return dict.fromkeys(epoch_lengths(run), (0, 0))
    steps = run.steps
    plain = (steps.arm == ARMS.index("real")) & closed_steps(run)
    for epoch in np.unique(steps.epoch).tolist():
        rows = np.flatnonzero((steps.epoch == epoch) & (steps.batch < first))
        rows = rows[np.logical_and.accumulate(plain[rows])]
        if len(rows):
            firsts[epoch] = len(rows), int((steps.wait_ns + steps.step_ns)[rows].sum())
    return firsts


def _mean(values: list[int]) -> float | None:
    return sum(values) / len(values) if values else None
