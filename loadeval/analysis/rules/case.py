"""What the rules are asked about: a run, its figures, and what is known of its loader."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from loadeval.analysis.estimate.arms import loads_on_request, lost_share, run_times
from loadeval.analysis.estimate.epochs import epochs_of
from loadeval.analysis.estimate.headroom import Headroom, headroom, headroom_of_two
from loadeval.analysis.estimate.metrics import THREADS, Quantity, quantities
from loadeval.analysis.estimate.steady import epoch_lengths, steady
from loadeval.analysis.estimate.summary import Summary, iterations_of, summarise
from loadeval.analysis.estimate.verdict import HIGH_SHARE, MODERATE_SHARE
from loadeval.analysis.predict.cpus import CpuUse
from loadeval.analysis.predict.recorded import Recorded, recorded_of
from loadeval.analysis.predict.whatif import Length
from loadeval.analysis.remark import Remark
from loadeval.analysis.rules.finding import Fact, Place, Unknown, facts
from loadeval.analysis.rules.inside import Inside
from loadeval.data.columns import UNKNOWN

if TYPE_CHECKING:
    import numpy.typing as npt

    from loadeval.analysis.estimate.epochs import Epochs
    from loadeval.analysis.estimate.stats import Estimate
    from loadeval.analysis.predict.cpus import Spinning
    from loadeval.analysis.predict.whatif import LoaderModel
    from loadeval.analysis.rules.finding import Finding, Severity
    from loadeval.data.columns import Column
    from loadeval.data.lines import LoaderInfo
    from loadeval.data.run import Run

MOST_PLACES = 20
Answer: TypeAlias = "Finding | Remark | None"
"""A finding, why the rule could not tell, or None where nothing is wrong."""


@dataclass(frozen=True)
class Case:
    """A run that loaded, and the one that replayed or None."""

    run: Run
    ideal: Run | None = None

    @property
    def real(self) -> Run:
        """The run, in which no batch counts of a pair that was not measured whole."""
        return run_times(self.run).counted

    @cached_property
    def headroom(self) -> Headroom | None:
        """What ideal loading gains; None for a log alone.

        Raises UsageError when the two runs cannot be compared.
        """
        if self.ideal is not None:
            return headroom_of_two(self.run, self.ideal)
        return headroom(self.run) if self.run.header.mode == "alternate" else None

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
        slow = (arm.outliers for arm in iterations_of(self.real) if arm.arm == "real")
        return np.searchsorted(self.rows, next(slow, self.rows[:0]))

    @cached_property
    def wait_ns(self) -> Column:
        """The waits of `rows`."""
        wait_ns: Column = self.real.steps.wait_ns[self.rows]
        return wait_ns

    @cached_property
    def iteration_ns(self) -> Column:
        """The waits and steps of `rows`."""
        iteration_ns: Column = self.wait_ns + self.real.steps.step_ns[self.rows]
        return iteration_ns

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
        """A remark if the run has under `needed` steady-state batches."""
        count = len(self.rows)
        if count >= needed:
            return None
        return Remark(Unknown.TOO_FEW_BATCHES, {"batches": count, "needed": needed})

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
        lost = None if steady_speedup is None else lost_share(steady_speedup)
        if lost is None or (lost.low is not None and lost.low <= 0):
            return None
        return lost if lost.value >= MODERATE_SHARE else None

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

    @property
    def recorded(self) -> Recorded | None:
        """The run and its loader as predictions take them; None where too little is known."""
        return recorded_of(self.run, self.ideal)

    @cached_property
    def inside(self) -> Inside | None:
        """The same, with what changing the loader would bring; None also without a step's time."""
        recorded = self.recorded
        return None if recorded is None or not recorded.costs.step_ns else Inside(recorded)

    @cached_property
    def model(self) -> LoaderModel | None:
        """The same, for predictions of other settings.

        None where what spins makes them wrong, and of a log, whose steps without loading are not
        known.
        """
        is_known = self.headroom is not None and self.spinning is None
        return self.inside.model if self.inside is not None and is_known else None

    @property
    def spinning(self) -> Spinning | None:
        """The step's threads that spin, for there are fewer CPUs than they and workers; or None."""
        return None if self.recorded is None else self.recorded.spinning

    @property
    def waiting_share(self) -> float:
        """The share of the steady state lost in waiting; of a log by itself all that it waited."""
        gain = self.headroom
        if gain is None or gain.waiting_ns is None or not gain.real_ns or not gain.ideal_ns:
            return self.summary.wait_share or 0.0
        # Where steps are faster than the ideal ones, waiting exceeds what is lost.
        lost_ns = gain.real_ns - gain.ideal_ns
        return max(min(gain.waiting_ns.value, lost_ns), 0.0) / gain.real_ns

    @property
    def contention_share(self) -> float:
        """The rest of what is lost, in slower steps."""
        speedup = None if self.headroom is None else self.headroom.steady_speedup
        return max(1 - 1 / speedup.value - self.waiting_share, 0.0) if speedup else 0.0

    @property
    def epoch_starts_share(self) -> float | None:
        """The share of whole epochs lost at their starts and ends; None: not known."""
        gain = self.headroom
        if gain is None or gain.epoch_starts_ns is None or not gain.whole_ns:
            return None
        return gain.epoch_starts_ns.value / gain.whole_ns

    @property
    def loads_synchronously(self) -> bool:
        """Whether the loader works only while training waits for it."""
        gain = self.headroom
        if gain is None:
            return loads_on_request(self.loader, 0.0, None, None)
        wait_ns = gain.real_wait_ns or 0.0
        return loads_on_request(self.loader, wait_ns, gain.loader_only_ns, gain.ideal_ns)

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
        gain = self.headroom
        if gain is None:
            return ()
        return facts(
            ("real iteration", gain.real_ns, "ns"),
            ("ideal iteration", gain.ideal_ns, "ns"),
            ("loader alone", gain.loader_only_ns, "ns"),
        )

    def reading(self, subject: str, name: str) -> Quantity | None:
        """What was read of one quantity while batches that count were served."""
        quantities = (
            quantity
            for quantity in self._quantities
            if (quantity.subject, quantity.name) == (subject, name)
        )
        return next(quantities, None)

    def readings_named(self, name: str) -> list[Quantity]:
        """What was read of a quantity of every subject that has it."""
        return [quantity for quantity in self._quantities if quantity.name == name]

    @cached_property
    def _quantities(self) -> tuple[Quantity, ...]:
        return tuple(quantity for quantity in quantities(self.real) if quantity.probe != THREADS)

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
