"""A recorded loader with a change: other settings or other costs, and what it would do then."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from loadeval.analysis.inside.stages import Blockage
from loadeval.analysis.predict.faster import sped_up
from loadeval.analysis.predict.first_workers import assumed_of_first_workers, handed_over
from loadeval.analysis.predict.prediction import (
    Assumption,
    Limit,
    Prediction,
    Range,
    Shortage,
)
from loadeval.analysis.predict.recorded import (
    BLOCKAGE_MATTERS,
    NO_EFFECT,
    PresentReplay,
    Recorded,
)
from loadeval.analysis.predict.simulation import Replayed, Setting, iteration_ns, replayed
from loadeval.analysis.remark import Remark
from loadeval.data.columns import UNKNOWN
from loadeval.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loadeval.analysis.estimate.stats import Series
    from loadeval.analysis.predict.costs import Costs

GROWTH = (0.0, 0.04, 0.12)
"""The share that each further CPU in use adds to a batch's CPU time: least, usual, most."""
USUAL_ERROR = 0.03
"""Any prediction may be off by this share; see the table in docs/how-it-measures.md."""
ERROR_OF_CHANGE = 0.1
"""A prediction may be off by more for each factor of e that it is from what was measured."""
CROWDED = 0.03
"""How much longer an iteration takes, for each CPU, where workers and training are more than these.

Of CPUs that are in use all the time; a part of it of those that are in use for a part. Longer by 0%
to 12% was measured with 2 to 6 workers on two CPUs, and by 6% to 31% with 4 and 6 workers on four,
see the tables in docs/how-it-measures.md.
"""
MOST_CROWDED = 0.12
ERROR_OF_CROWDED = 0.12
"""A prediction may be off by this share more where workers and training are more than the CPUs."""
LIMIT_OF = {Blockage.DISK: Limit.STORAGE, Blockage.LOCK: Limit.LOCK}
"""What workers share that are blocked by it."""


@dataclass(frozen=True)
class Change:
    """What may become of a loader: other `settings`, by the names of Setting, and other `costs`.

    With `more_workers` more CPUs may be in use than ever were, and CPU time grows as usual then.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    costs: Callable[[Costs], Costs] | None = None
    more_workers: bool = False

    def __add__(self, other: Change) -> Change:
        def both(costs: Costs) -> Costs:
            return other.applied(self.applied(costs))

        more_workers = self.more_workers or other.more_workers
        return Change({**self.settings, **other.settings}, both, more_workers)

    def applied(self, costs: Costs) -> Costs:
        """What batches take then."""
        return costs if self.costs is None else self.costs(costs)


@dataclass(frozen=True)
class ChangedLoader:
    """A recorded loader under other settings."""

    recorded: Recorded
    setting: Setting
    batch_size: int | None
    faster: Mapping[str, float]
    change: Change | None = None

    @property
    def batches(self) -> float:
        """How many batches of the run one batch is worth."""
        size = self.recorded.loader.batch_size or self.recorded.summary.samples_per_batch
        if self.batch_size is None:
            return 1.0
        if not size:
            raise UsageError("the run does not tell its batch size; leave batch_size out")
        return self.batch_size / size

    @property
    def are_first(self) -> bool:
        """Whether there are workers, and the run had none."""
        return bool(self.setting.workers) and not self.recorded.setting.workers

    def changed(self, present: PresentReplay, *, hindered: bool = False) -> tuple[Costs, Setting]:
        """What each batch takes then, and the setting.

        `hindered` is if workers that load keep Python's lock from training, which receives.
        """
        costs = present.costs if self.change is None else self.change.applied(present.costs)
        for name, factor in self.faster.items():
            costs = sped_up(costs, name, factor)
        if self.are_first:
            costs = handed_over(self.recorded, costs, hindered=hindered)
        costs = costs if self.batches == 1 else _resized(costs, self.batches)
        if self.recorded.blockage == Blockage.LOCK and self.setting.workers:
            # All together pass it no faster than they do now.
            taken_ns = costs.fetch_ns * self.setting.workers / self.recorded.setting.workers
            others_ns = costs.cpu_ns + costs.run_queue_ns
            costs = replace(costs, blocked_ns=np.maximum(taken_ns - others_ns, 0.0))
        return costs, replace(self.setting, growth=present.setting.growth)

    def usual(self, present: PresentReplay) -> Replayed:
        """The replay if first workers keep Python's lock from training as far as is likely."""
        replay = self.replayed(present)
        if not self.are_first:
            return replay
        hindered_ns = self.replayed(present, hindered=True).iteration_ns
        return replace(replay, iteration_ns=math.sqrt(replay.iteration_ns * hindered_ns))

    def replayed(self, present: PresentReplay, *, hindered: bool = False) -> Replayed:
        """The replay, with its time for a batch of the run."""
        costs, setting = self.changed(present, hindered=hindered)
        replay = replayed(costs, setting)
        longer = _crowded(costs, setting, replay.iteration_ns)
        longer /= _crowded(present.costs, self.recorded.setting, present.iteration_ns)
        share = replay.iteration_ns / self.batches / present.iteration_ns
        return replace(replay, iteration_ns=self.recorded.measured_ns * longer * share)

    def _memory_bytes(self) -> tuple[float | None, float | None]:
        """The memory of workers and batches in the queue, and what of it is shared memory."""
        recorded, workers = self.recorded, self.setting.workers
        if recorded.batch_bytes is None:
            return None, None if workers else 0.0
        depth = workers * self.setting.prefetch_factor
        queued = (depth + 1) * recorded.batch_bytes * self.batches
        if not workers:
            return queued, 0.0
        is_piped = (recorded.stages.pickled_bytes or 0.0) * 2 >= recorded.batch_bytes
        each = recorded.worker_bytes
        return None if each is None else workers * each + queued, 0.0 if is_piped else queued

    def iteration(self, cases: Sequence[float], spread: float, present: PresentReplay) -> Range:
        """The time of an iteration, from the replays of least, usual and most growth, `cases`."""
        least_ns, usual_ns, most_ns = cases
        recorded, setting = self.recorded, self.setting
        rate = recorded.rate
        noise = (rate.high - rate.low) / 2 / rate.value if rate.low and rate.high else 0.0
        further = ERROR_OF_CHANGE * abs(math.log(recorded.measured_ns / usual_ns))
        error = math.hypot(USUAL_ERROR + further, noise, _noise_of(recorded.costs.fetch_ns))
        error = math.hypot(error, present.spread, spread)
        crowded = ERROR_OF_CROWDED * _crowding(present.costs, setting, usual_ns)
        slower = math.hypot(most_ns / usual_ns - 1, error, crowded)
        faster = math.hypot(usual_ns / least_ns - 1, error, crowded)
        is_present = setting == recorded.setting and self.change is None
        if is_present and not self.faster and self.batches == 1:
            slower = faster = noise
        iteration_ns = usual_ns * self.batches
        return Range(iteration_ns, iteration_ns / (1 + faster), iteration_ns * (1 + slower))

    def prediction(
        self,
        iteration: Range,
        present: PresentReplay,
        present_ns: float,
        *,
        is_fitted: bool,
    ) -> Prediction:
        """What training does if an iteration takes so long, beside the `present_ns` of now."""
        recorded, setting = self.recorded, self.setting
        usual_ns = iteration.value / self.batches

        def range_of(value: float) -> Range:
            ends = (iteration.high, iteration.low)
            return Range(value, *(value * iteration.value / end_ns for end_ns in ends))

        memory, shared = self._memory_bytes()
        return Prediction(
            num_workers=setting.workers,
            prefetch_factor=setting.prefetch_factor,
            in_order=setting.in_order,
            cpus=setting.cpus,
            batch_size=self.batch_size or recorded.loader.batch_size,
            faster=self.faster,
            iteration_ns=iteration,
            throughput=range_of(recorded.rate.value * recorded.measured_ns / usual_ns),
            unit=recorded.unit,
            speedup=range_of(present_ns / usual_ns),
            limit=self._limit(present),
            memory_bytes=memory,
            shared_memory_bytes=shared,
            assumptions=tuple(self._assumptions(present, is_fitted=is_fitted)),
            shortages=tuple(
                Remark(code, {"needed_bytes": needed, "there_bytes": there})
                for code, needed, there in (
                    (Shortage.MEMORY, memory, recorded.machine_bytes),
                    (Shortage.SHARED_MEMORY, shared, recorded.shm_free_bytes),
                )
                if needed and there and needed > there
            ),
        )

    def _limit(self, present: PresentReplay) -> Limit:
        costs, setting = self.changed(present)
        predicted_ns = iteration_ns(costs, setting)
        free = iteration_ns(costs.fetched_in(0.0), setting)
        if predicted_ns <= (1 + 3 * NO_EFFECT) * free:
            alone = max(costs.step_ns, 1.0)
            return Limit.STEP if free <= 1.1 * alone else Limit.TRAINING_PROCESS
        workers = setting.workers
        if not workers:
            return Limit.WORKERS

        def helps(changed: Setting) -> bool:
            return iteration_ns(costs, changed) < (1 - 3 * NO_EFFECT) * predicted_ns

        more_cpus, more_workers = replace(setting, cpus=None), replace(setting, workers=2 * workers)
        shared = LIMIT_OF.get(self.recorded.blockage)
        if helps(more_cpus) and (
            shared or iteration_ns(costs, more_cpus) <= iteration_ns(costs, more_workers)
        ):
            return Limit.CPUS
        if helps(replace(setting, prefetch_factor=4 * setting.prefetch_factor)):
            return Limit.PREFETCH
        if not helps(more_workers):
            apart_ns = iteration_ns(replace(costs, in_turn=False), more_workers)
            is_storage = apart_ns < (1 - 3 * NO_EFFECT) * predicted_ns
            return Limit.STORAGE if is_storage else Limit.TRAINING_PROCESS
        return shared or Limit.WORKERS

    def _assumptions(self, present: PresentReplay, *, is_fitted: bool) -> list[Remark]:
        recorded, workers = self.recorded, self.setting.workers
        assumptions = []
        if workers > max(recorded.setting.workers, 1):
            if recorded.blocked >= BLOCKAGE_MATTERS:
                code = Assumption.BLOCKED_IN_PARALLEL
                if recorded.may_share_bandwidth:
                    code = Assumption.STORAGE_NOT_KNOWN
                elif recorded.blockage is Blockage.LOCK:
                    code = Assumption.LOCK_LIMITS
                assumptions.append(Remark(code, {"share": recorded.blocked}))
            if not is_fitted:
                growth = {"least": GROWTH[0], "most": GROWTH[2]}
                assumptions.append(Remark(Assumption.CPU_TIME_GROWS, growth))
            if self.setting.cpus is None:
                assumptions.append(Remark(Assumption.CPUS_NOT_READ))
        assumptions += assumed_of_first_workers(recorded) if self.are_first else []
        if self.batches != 1:
            assumptions.append(Remark(Assumption.STEP_PER_SAMPLE))
        if recorded.spinning is not None:
            assumptions.append(Remark(Assumption.STEP_SPINS))
        ratio = present.iteration_ns / recorded.measured_ns
        if abs(math.log(ratio)) > UNLIKE:
            assumptions.append(Remark(Assumption.UNLIKE_REPLAY, {"ratio": ratio}))
        return assumptions


UNLIKE = 0.1


def _crowded(costs: Costs, setting: Setting, iteration_ns: float) -> float:
    """How many times as long an iteration takes for want of CPUs, see CROWDED."""
    longer = min(CROWDED * (setting.cpus or 0.0), MOST_CROWDED)
    return 1 + longer * _crowding(costs, setting, iteration_ns)


def _crowding(costs: Costs, setting: Setting, iteration_ns: float) -> float:
    """The share of the CPUs in use where workers and training are more than these; else 0.

    Training counts where it computes for most of an iteration, and others for whole CPUs.
    """
    cpus = setting.cpus
    if cpus is None or not iteration_ns:
        return 0.0
    handed_ns = float((costs.receive_ns + costs.index_ns).mean())
    step_ns = costs.step_ns * costs.step_cpus
    training = round(min((step_ns + handed_ns) / iteration_ns, 1.0))
    if setting.workers + training <= cpus - round(setting.others_cpus):
        return 0.0
    used = (float(costs.cpu_ns.mean()) + handed_ns + step_ns) / iteration_ns
    return min(used / cpus, 1.0)


def _resized(costs: Costs, batches: float) -> Costs:
    """`costs` of batches that hold the samples of `batches` of these, one after the other."""
    count = max(int(len(costs) / batches), 1)
    bounds = np.arange(count + 1) * batches

    def summed(column: Series) -> Series:
        total = np.concatenate([[0.0], np.cumsum(column)])
        places = np.arange(len(total), dtype=np.float64)
        return np.diff(np.interp(bounds, places, total))

    return replace(
        costs,
        cpu_ns=summed(costs.cpu_ns),
        run_queue_ns=summed(costs.run_queue_ns),
        blocked_ns=summed(costs.blocked_ns),
        index_ns=summed(costs.index_ns),
        pin_ns=summed(costs.pin_ns),
        slow_ns=summed(costs.slow_ns),
        pickle_ns=np.full(count, costs.pickle_ns.mean()),
        receive_ns=np.full(count, costs.receive_ns.mean()),
        worker=np.full(count, UNKNOWN),
        step_ns=costs.step_ns * batches,
        named_ns={name: summed(column) for name, column in costs.named_ns.items()},
    )


def _noise_of(column: Series) -> float:
    """The relative standard error of a mean."""
    mean = float(column.mean())
    return float(column.std()) / math.sqrt(len(column)) / mean if mean else 0.0
