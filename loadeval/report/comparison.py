"""What a comparison is told from: its headroom, and the runs or arms that it compares."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis import headroom as analysis
from loadeval.analysis.arms import paired
from loadeval.analysis.headroom import same_unit
from loadeval.analysis.summary import Summary, summarise
from loadeval.runlog.model import ARMS, UNKNOWN, Run, Steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.headroom import Headroom
    from loadeval.runlog.model import Arm

Side = tuple[Run, Summary]
SECOND_NS = 1_000_000_000
PAIR = 2


@dataclass(frozen=True, slots=True)
class Comparison:
    """One alternating run (`ideal` is None), or a real run and an ideal one."""

    real: Run
    ideal: Run | None
    headroom: Headroom
    sides: tuple[Side, Side]

    @classmethod
    def of(cls, real: Run, ideal: Run | None = None) -> Comparison:
        """Raises UsageError when the runs cannot be compared, or one alone does not alternate."""
        if ideal is None:
            return cls(real, None, analysis.headroom(real), arms(real))
        sides = (real, summarise(real)), (ideal, summarise(ideal))
        return cls(real, ideal, analysis.compare(real, ideal), sides)

    @property
    def runs(self) -> list[Run]:
        """The one run, or both."""
        return [self.real] if self.ideal is None else [self.real, self.ideal]

    @property
    def unit(self) -> str:
        """What throughput is counted in: samples under their name, or batches."""
        if self.ideal is None:
            found = self.headroom
            return found.unit if found.samples_per_batch is not None else "batches"
        # A side that was not measured does not decide what the other is counted in.
        measured = [side for _, side in self.sides if side.batches_per_s is not None]
        known = all(side.samples_per_s is not None for side in measured)
        return self.real.header.unit if known and same_unit(self.real, self.ideal) else "batches"

    def rates(self) -> list[float | None]:
        """Throughput per second, real and ideal, and of one alternating run the loader's alone."""
        found = self.headroom
        if self.ideal is None:
            paces = (found.real_ns, found.ideal_ns, found.loader_only_ns)
            return [rate(pace, found.samples_per_batch) for pace in paces]
        if self.unit == "batches":
            return [side.batches_per_s for _, side in self.sides]
        return [side.samples_per_s for _, side in self.sides]


def are_backends(runs: Sequence[Run]) -> bool:
    """Two are backends if neither replayed: a run that did is the ideal of the other."""
    if len(runs) == PAIR:
        return all(run.header.mode != "replay" for run in runs)
    return len(runs) > PAIR


def rate(pace_ns: float | None, samples_per_batch: float | None) -> float | None:
    """Samples per second at `pace_ns` a batch, batches where samples are unknown."""
    return (samples_per_batch or 1.0) * SECOND_NS / pace_ns if pace_ns else None


def columns(run: Run) -> list[Side]:
    """The run with its figures; an alternating one as a side for each arm."""
    return list(arms(run)) if run.header.mode == "alternate" else [(run, summarise(run))]


def arms(run: Run) -> tuple[Side, Side]:
    """The real and the ideal arm of an alternating run, each with its own batches and figures."""
    run = compared(run)
    return _arm(run, "real"), _arm(run, "ideal")


def compared(run: Run) -> Run:
    """An alternating run in which no batch counts of a pair that was not measured whole."""
    pairs, _, _ = paired(run)
    pair = np.where(np.isin(run.steps.pair, pairs), run.steps.pair, UNKNOWN)
    return replace(run, steps=replace(run.steps, pair=pair))


def _arm(run: Run, arm: Arm) -> Side:
    steps = run.steps
    chosen = steps.arm == ARMS.index(arm)
    served = Steps(**{name: getattr(steps, name)[chosen] for name in Steps.__slots__})
    run = replace(run, steps=served)
    return run, summarise(run, arm)
