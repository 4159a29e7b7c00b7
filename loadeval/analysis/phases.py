"""What a training waits for: its storage, preparing what was read, or neither, by three runs.

As DS-Analyzer does it (Mohan, Phanishayee, Raniwala, Chidambaram, "Analyzing and Mitigating Data
Stalls in DNN Training", PVLDB 14, 2021). A batch whose files are not in memory takes longer than
one whose files are: by what storage costs. That takes longer than one that is not loaded at all: by
what reading it from memory, and preparing it, costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.estimate.arms import times_of
from loadeval.analysis.estimate.intervals import around, difference
from loadeval.analysis.estimate.steady import steady
from loadeval.analysis.estimate.verdict import MODERATE_SHARE

if TYPE_CHECKING:
    from loadeval.analysis.estimate.stats import Estimate
    from loadeval.runlog.model import Run

FEWEST_BATCHES = 20
"""Of fewer steady batches in one of the runs nothing is said."""


class Phase(Enum):
    """What most of the time that loading costs goes to."""

    STORAGE = "storage"
    PREPARATION = "preparation"
    NEITHER = "neither"


@dataclass(frozen=True, slots=True)
class Phases:
    """Nanoseconds a batch, with 95% CIs: `ideal_ns`, and what is lost besides.

    `cold_ns` is a batch whose files are not in the page cache: the sum of `ideal_ns`, of
    `preparation_ns` and of `storage_ns`. The last two may come out below 0 by chance.
    """

    cold_ns: Estimate
    ideal_ns: Estimate
    preparation_ns: Estimate
    storage_ns: Estimate

    @property
    def most(self) -> Phase:
        """What is lost most; neither where what is lost may be nothing, or is next to nothing."""
        lost = {Phase.STORAGE: self.storage_ns, Phase.PREPARATION: self.preparation_ns}
        phase, most = max(lost.items(), key=lambda entry: entry[1].value)
        is_little = most.value < MODERATE_SHARE * self.cold_ns.value
        return Phase.NEITHER if is_little or (most.low or 0.0) <= 0 else phase

    @property
    def shares(self) -> dict[Phase, float]:
        """The parts of a batch with cold files; they add up to 1, and none is less than 0."""
        storage = min(max(self.storage_ns.value / self.cold_ns.value, 0.0), 1.0)
        preparation = max(self.preparation_ns.value / self.cold_ns.value, 0.0)
        preparation = min(preparation, 1.0 - storage)
        neither = 1.0 - storage - preparation
        return {Phase.STORAGE: storage, Phase.PREPARATION: preparation, Phase.NEITHER: neither}


def phases_of(cold: Run, cached: Run, ideal: Run) -> Phases | None:
    """What is lost to which phase, by runs that logged, and one that replayed.

    Of `cold` only the first epoch counts: it has put its files into the page cache. None where one
    of the runs has too few batches.
    """
    first_epoch = cold.steps.epoch == cold.steps.epoch.min(initial=np.iinfo(np.int64).max)
    arms = (
        times_of(cold.steps, steady(cold) & first_epoch),
        times_of(cached.steps, steady(cached)),
        times_of(ideal.steps, steady(ideal)),
    )
    if min(arm.count for arm in arms) < FEWEST_BATCHES:
        return None
    cold_time, cached_time, ideal_time = (arm.iterations(by_sample=False) for arm in arms)
    return Phases(
        cold_ns=around(cold_time.mean_ns, cold_time.error()),
        ideal_ns=around(ideal_time.mean_ns, ideal_time.error()),
        preparation_ns=difference(cached_time, ideal_time),
        storage_ns=difference(cold_time, cached_time),
    )
