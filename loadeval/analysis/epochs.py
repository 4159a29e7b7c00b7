"""Whole epochs, epoch start and end included."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.advice import STARTING_UP
from loadeval.analysis.summary import epoch_starts
from loadeval.analysis.verdict import MODERATE_SHARE

if TYPE_CHECKING:
    from loadeval.analysis.figures import Gain
    from loadeval.runlog.model import Column, Run


@dataclass(frozen=True, slots=True)
class Epochs:
    """Means over epochs; None is not known.

    `batches` is an epoch's length, `epoch_start_ns` its first wait, and `end_ns` the wait that ends
    it, known of epochs that were served to their end.
    """

    batches: float | None
    epoch_start_ns: float | None
    end_ns: float | None

    def speedup(self, real_ns: float, ideal_ns: float) -> float | None:
        """What free loading is worth over a whole epoch, given the steady iterations a batch.

        A wait at the end that is not known is left out.
        """
        if self.batches is None or self.epoch_start_ns is None:
            return None
        whole_ns = self.epoch_start_ns + self.batches * real_ns + (self.end_ns or 0.0)
        return whole_ns / (self.batches * ideal_ns)


def epochs_of(run: Run) -> Epochs:
    """The epochs of a run that loaded."""
    whole = {end.epoch: end.wait_ns for end in run.ends if end.cause == "exhausted"}
    waits = [wait_ns for wait_ns in whole.values() if wait_ns is not None]
    found = [count for epoch, count in lengths(run).items() if epoch in whole]
    length = run.header.loader.length
    return Epochs(
        batches=_mean(found) or (float(length) if length else None),
        epoch_start_ns=_mean(epoch_starts(run).tolist()),
        end_ns=_mean(waits),
    )


def lengths(run: Run) -> dict[int, int]:
    """How many batches each epoch had, as far as they are recorded."""
    if run.header.every == 1:
        numbers, counts = np.unique(run.steps.epoch, return_counts=True)
        return dict(zip(numbers.tolist(), counts.tolist(), strict=True))
    found: dict[int, int] = {}
    for aggregate in run.aggregates:
        found[aggregate.epoch] = found.get(aggregate.epoch, 0) + aggregate.batches
    return found


def numbers_in_run(run: Run) -> Column:
    """Each row's number among all batches of the run, from 0, its epochs one after the other."""
    if run.header.every == 1:
        return np.arange(len(run.steps))
    found, before = lengths(run), 0
    numbers = run.steps.batch.copy()
    for epoch in np.unique(run.steps.epoch).tolist():
        numbers[run.steps.epoch == epoch] += before
        before += found.get(epoch, 0)
    return numbers


def starting_up(gain: Gain | None, epochs: Epochs) -> str:
    """Advice where epoch start is the larger loss; "" where it is not, or is not known.

    It is where it lies beyond the interval of the steady part, and by as much as matters.
    """
    whole = gain and epochs.speedup(gain.real_ns, gain.ideal_ns)
    if gain is None or whole is None or epochs.batches is None:
        return ""
    steady = gain.lost_share
    share = 1 - 1 / whole
    beyond = steady.high is None or share > steady.high
    if not beyond or share - max(steady.value, 0.0) < max(MODERATE_SHARE, steady.value):
        return ""
    return STARTING_UP.format(batches=epochs.batches, epoch=whole)


def _mean(values: list[int]) -> float | None:
    return sum(values) / len(values) if values else None
