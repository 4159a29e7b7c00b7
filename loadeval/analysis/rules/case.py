"""What the rules are asked about: a run, its figures, and what is known of its loader."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from loadeval.analysis.arms import loads_on_request, lost_share, run_times
from loadeval.analysis.cpus import CpuUse, Spinning
from loadeval.analysis.headroom import Headroom, headroom, headroom_of_two
from loadeval.analysis.metrics import THREADS, Quantity, quantities
from loadeval.analysis.recorded import Recorded
from loadeval.analysis.remark import Remark
from loadeval.analysis.rules.finding import Fact, Place, Unknown, facts
from loadeval.analysis.rules.inside import Inside
from loadeval.analysis.stages import stages_of
from loadeval.analysis.summary import (
    Summary,
    epoch_lengths,
    epochs_of,
    iterations_of,
    steady,
    summarise,
)
from loadeval.analysis.verdict import HIGH_SHARE, MODERATE_SHARE
from loadeval.analysis.whatif import Length, LoaderModel
from loadeval.runlog.columns import UNKNOWN

if TYPE_CHECKING:
    import numpy.typing as npt

    from loadeval.analysis.rules.finding import Finding, Severity
    from loadeval.analysis.stages import StageReport
    from loadeval.analysis.stats import Estimate
    from loadeval.analysis.summary import Epochs
    from loadeval.runlog.columns import Column
    from loadeval.runlog.model import LoaderInfo, Run

MOST_PLACES = 20
Answer: TypeAlias = "Finding | Remark | None"
"""A finding, why the rule could not tell, or None where nothing is wrong."""


@dataclass(frozen=True)
class Case:
    """A run that loaded, and the one that replayed or None. `headroom` is None for a log alone.

    Of an alternating run only pairs that were measured whole count: `real` is `RunTimes.counted`.
    `stages` is None where the loader was not looked into.
    """

    real: Run
    ideal: Run | None
    headroom: Headroom | None
    stages: StageReport | None = None

    @classmethod
    def of(cls, real: Run, ideal: Run | None = None) -> Case:
        """Raises UsageError when the two cannot be compared."""
        if ideal is not None:
            return cls(real, ideal, headroom_of_two(real, ideal), stages_of(real))
        times = run_times(real)
        alternates = real.header.mode == "alternate"
        gain = headroom(real, times) if alternates else None
        return cls(times.counted, None, gain, stages_of(real))

    @property
    def loader(self) -> LoaderInfo:
        """What is known of the loader."""
        return self.real.header.loader

    @cached_property
    def rows(self) -> npt.NDArray[np.intp]:
        """The steady-state batches of the real arm, as rows of the run's steps."""
        return np.flatnonzero(steady(self.real, "real"))

    @cached_property
    def outliers(self) -> npt.NDArray[np.intp]:
        """Which of these took more than twice the median, as indices of them."""
        found = (one.outliers for one in iterations_of(self.real) if one.arm == "real")
        return np.searchsorted(self.rows, next(found, self.rows[:0]))

    @cached_property
    def wait_ns(self) -> Column:
        """Their waits."""
        found: Column = self.real.steps.wait_ns[self.rows]
        return found

    @cached_property
    def iteration_ns(self) -> Column:
        """Their waits and steps."""
        found: Column = self.wait_ns + self.real.steps.step_ns[self.rows]
        return found

    @cached_property
    def summary(self) -> Summary:
        """The figures of the real arm."""
        return summarise(self.real, "real")

    @cached_property
    def epochs(self) -> Epochs:
        """The whole epochs."""
        return epochs_of(self.real)

    @cached_property
    def length(self) -> Length:
        """The batches of an epoch, or of the longest so far, and the number of epochs."""
        counts = epoch_lengths(self.real)
        return Length(self.epochs.batches or max(counts.values(), default=1), max(len(counts), 1))

    def too_few(self, needed: int) -> Remark | None:
        """That the run has under `needed` steady-state batches; None where it has as many."""
        count = len(self.rows)
        if count >= needed:
            return None
        return Remark(Unknown.TOO_FEW_BATCHES, {"batches": count, "needed": needed})

    @property
    def batches_left_out(self) -> Remark | None:
        """That only some batches were kept, so no single one is known; None where all were."""
        every = self.real.header.every
        return None if every == 1 else Remark(Unknown.BATCHES_LEFT_OUT, {"every": every})

    @property
    def cpus(self) -> int | None:
        """How many CPUs the training process may use."""
        return self.cpu_use.usable

    @cached_property
    def cpu_use(self) -> CpuUse:
        """Who uses the CPUs."""
        return CpuUse.of(self.real)

    @property
    def lost(self) -> Estimate | None:
        """The share of the steady state that is lost to data loading, where it matters.

        None where it may be nothing. Without an interval that is not known: see `no_interval`.
        """
        steady_speedup = None if self.headroom is None else self.headroom.steady_speedup
        found = None if steady_speedup is None else lost_share(steady_speedup)
        if found is None or (found.low is not None and found.low <= 0):
            return None
        return found if found.value >= MODERATE_SHARE else None

    @property
    def no_interval(self) -> bool:
        """Whether time was lost, and too few pairs or batches give no interval of it."""
        return self.lost is not None and self.lost.low is None

    @property
    def loss_unknown(self) -> Remark | None:
        """Why it is not known what is lost to data loading; None where it is."""
        if self.headroom is None:
            return Remark(Unknown.NO_IDEAL)
        return next(iter(self.headroom.verdict.unmeasured), None)

    @cached_property
    def inside(self) -> Inside | None:
        """The same, with what changing the loader would bring; None also without a step's time."""
        found = self.headroom
        step_ns = self.summary.step_ns if found is None else found.ideal_ns
        return Inside.of(self.real, self.stages, step_ns)

    @cached_property
    def recorded(self) -> Recorded | None:
        """The same, as predictions take it; None where it has too few batches for them."""
        if self.stages is None:
            return None
        return Recorded.of_parts(self.real, self.stages, self.headroom)

    @cached_property
    def model(self) -> LoaderModel | None:
        """The same, for predictions of other settings; None where what spins makes them wrong."""
        if self.recorded is None or self.spinning is not None:
            return None
        return LoaderModel([self.recorded])

    @cached_property
    def spinning(self) -> Spinning | None:
        """The step's threads that spin, for there are fewer CPUs than they and workers; or None."""
        inside, found = self.inside, self.headroom
        if inside is None or found is None:
            return None
        return Spinning.of(self.cpu_use, found, inside.setting.workers, inside.costs.handed_ns)

    @property
    def waiting_share(self) -> float:
        """The share of the steady state lost in waiting; of a log by itself all that it waited."""
        found = self.headroom
        if found is None or found.waiting_ns is None or not found.real_ns or not found.ideal_ns:
            return self.summary.wait_share or 0.0
        # Where steps are faster than the ideal ones, waiting exceeds what is lost.
        lost_ns = found.real_ns - found.ideal_ns
        return max(min(found.waiting_ns.value, lost_ns), 0.0) / found.real_ns

    @property
    def contention_share(self) -> float:
        """The rest of what is lost, in slower steps."""
        speedup = None if self.headroom is None else self.headroom.steady_speedup
        return max(1 - 1 / speedup.value - self.waiting_share, 0.0) if speedup else 0.0

    @property
    def epoch_starts_share(self) -> float | None:
        """The share of whole epochs lost at their starts and ends; None: not known."""
        found = self.headroom
        if found is None or found.epoch_starts_ns is None or not found.whole_ns:
            return None
        return found.epoch_starts_ns.value / found.whole_ns

    @property
    def loads_synchronously(self) -> bool:
        """Whether the loader works only while training waits for it."""
        found = self.headroom
        if found is None:
            return loads_on_request(self.loader, 0.0, None, None)
        wait_ns = found.real_wait_ns or 0.0
        return loads_on_request(self.loader, wait_ns, found.loader_only_ns, found.ideal_ns)

    @property
    def computes_in_one_thread(self) -> bool:
        """Whether OMP_NUM_THREADS lets each process compute in one thread alone."""
        return self.real.header.environment.get("omp_num_threads") == 1

    @property
    def is_read_in_thread(self) -> bool:
        """Whether another thread than the main one reads the loader, which may load ahead."""
        return any(event.kind == "read in a thread" for event in self.real.events)

    @property
    def times(self) -> tuple[Fact, ...]:
        """What was measured of a batch's three times: real, ideal, and the loader alone."""
        found = self.headroom
        if found is None:
            return ()
        return facts(
            ("real iteration", found.real_ns, "ns"),
            ("ideal iteration", found.ideal_ns, "ns"),
            ("loader alone", found.loader_only_ns, "ns"),
        )

    def reading(self, subject: str, name: str) -> Quantity | None:
        """What was read of one quantity while batches that count were served."""
        found = (one for one in self._quantities if (one.subject, one.name) == (subject, name))
        return next(found, None)

    def readings_named(self, name: str) -> list[Quantity]:
        """What was read of a quantity of every subject that has it."""
        return [one for one in self._quantities if one.name == name]

    @cached_property
    def _quantities(self) -> tuple[Quantity, ...]:
        return tuple(one for one in quantities(self.real) if one.probe != THREADS)

    def places(
        self, rows: npt.NDArray[np.intp], weight: npt.NDArray[np.float64]
    ) -> tuple[Place, ...]:
        """The batches at `rows` of the run's steps, those of the greatest `weight` first."""
        heaviest = rows[np.argsort(-weight, kind="stable")][:MOST_PLACES]
        return tuple(self._place(row) for row in heaviest.tolist())

    def _place(self, row: int) -> Place:
        steps = self.real.steps
        start_ns, wait_ns, step_ns = (
            int(column[row]) for column in (steps.request_ns, steps.wait_ns, steps.step_ns)
        )
        known = start_ns != UNKNOWN
        return Place(
            epoch=int(steps.epoch[row]),
            batch=int(steps.batch[row]),
            start_ns=start_ns if known else None,
            end_ns=start_ns + wait_ns + step_ns if known else None,
            wait_ns=wait_ns,
        )


def severity_of(cost_share: float | None) -> Severity:
    """How much it matters that this share of the time is lost."""
    if cost_share is None or cost_share < MODERATE_SHARE:
        return "low"
    return "moderate" if cost_share < HIGH_SHARE else "high"
