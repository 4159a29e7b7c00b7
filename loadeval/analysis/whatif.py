"""What if: throughput under other settings, predicted from a recorded run, never measured.

The batches of the run are replayed by the rules of torch's DataLoader (see `simulation`), under
the new settings and under those that it had (see `recorded`).

The CPU time of a batch grows with the CPUs in use, for they share caches and memory. By how much
is fitted where runs with different numbers of workers are given, and else taken from GROWTH.
"""

from __future__ import annotations

import math
from collections.abc import Mapping  # noqa: TC003 - dataclass fields
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from loadeval.analysis.faster import FasterError, full_name, sped_up
from loadeval.analysis.recorded import (
    MOSTLY_BLOCKED,
    NO_EFFECT,
    RESUME_NS,
    Calibrated,
    Recorded,
)
from loadeval.analysis.remark import Remark
from loadeval.analysis.simulation import Costs, Replayed, Setting, iteration_ns, replayed
from loadeval.analysis.stages import Blockage
from loadeval.analysis.stats import Estimate  # noqa: TC001 - as above
from loadeval.errors import UsageError
from loadeval.runlog.columns import UNKNOWN
from loadeval.runlog.model import Run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from loadeval.analysis.stats import Series

    Fix: TypeAlias = Callable[[Costs, Setting], tuple[Costs, Setting]]

GROWTH = (0.0, 0.04, 0.12)
"""By how much the CPU time of a batch grows for each further CPU in use: least, usual, most."""
MOST_GROWTH = 0.5
USUAL_ERROR = 0.03
"""Of any prediction; see the table in docs/how-it-measures.md."""
ERROR_OF_CHANGE = 0.1
"""Of a prediction, for each factor of e that it is from what was measured."""
CROWDED = 0.18
"""How much longer an iteration takes where workers and training are more than there are CPUs.

Of CPUs that are in use all the time; a part of it of those that are in use for a part. 6% to 31%
were measured with 4 and 6 workers on four CPUs, see the table in docs/how-it-measures.md.
"""
HAND_OVER_NS = 200_000
"""To pickle a batch, and to receive it, where the run had no workers to show it."""
PICKLE_TENSOR_NS = 50_000
RECEIVE_TENSOR_NS = (300_000, 900_000)
"""What each tensor adds to that, for the worker is asked for a file descriptor.

The latter with all CPUs in use, as docs/how-it-measures.md tells.
"""
PIPE_NS_PER_BYTE = (1.0, 2.0)
"""What each byte of a batch without tensors adds to it: it goes through a pipe."""
SHARED_NS_PER_BYTE = 0.7
"""To collate into shared memory rather than into a process's own."""


class Limit(Enum):
    """What a loader would be held up by."""

    STEP = "training step"
    WORKERS = "workers"
    CPUS = "CPUs"
    TRAINING_PROCESS = "training process"
    STORAGE = "storage"
    LOCK = "a lock"
    PREFETCH = "prefetched batches"


class Assumption(Enum):
    """What a prediction takes for granted, which the run does not show."""

    CPU_TIME_GROWS = "cpu_time_grows"
    BLOCKED_IN_PARALLEL = "blocked_in_parallel"
    DISK_IN_PARALLEL = "disk_in_parallel"
    LOCK_LIMITS = "lock_limits"
    CPUS_NOT_READ = "cpus_not_read"
    STEP_PER_SAMPLE = "step_per_sample"
    HAND_OVER_USUAL = "hand_over_usual"
    TENSORS_NOT_COUNTED = "tensors_not_counted"
    WORKERS_START = "workers_start"
    STEP_IN_LOG = "step_in_log"
    STEP_SPINS = "step_spins"
    UNLIKE_REPLAY = "unlike_replay"


class Shortage(Enum):
    """What settings would need more of than there is."""

    MEMORY = "memory"
    SHARED_MEMORY = "shared_memory"


OF_BLOCKED = {
    Blockage.NONE: Assumption.BLOCKED_IN_PARALLEL,
    Blockage.OTHER: Assumption.BLOCKED_IN_PARALLEL,
    Blockage.DISK: Assumption.DISK_IN_PARALLEL,
    Blockage.LOCK: Assumption.LOCK_LIMITS,
}


LIMIT_OF = {Blockage.DISK: Limit.STORAGE, Blockage.LOCK: Limit.LOCK}
"""What workers share that are blocked by it."""


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


class Length(NamedTuple):
    """How many batches an epoch has, and how many epochs there are."""

    batches: float
    epochs: int


class LoaderModel:
    """A recorded loader, and what it would do under other settings."""

    def __init__(self, recorded: Sequence[Recorded]) -> None:
        self._recorded = list(recorded)
        self._calibrated: dict[tuple[int, float], Calibrated] = {}

    @classmethod
    def of(cls, runs: Run | Sequence[Run]) -> LoaderModel:
        """Of one run with stages, or of several of one loader that differ in `num_workers`.

        Raises UsageError where a run does not tell what happens inside the loader.
        """
        given = [runs] if isinstance(runs, Run) else list(runs)
        if not given:
            raise UsageError("no run was given; expected one at least, with stages")
        return cls([Recorded.of(run) for run in given])

    @property
    def num_workers(self) -> int:
        """The workers of the present run."""
        return self._recorded[-1].setting.workers

    @cached_property
    def growth(self) -> tuple[float, float, float]:
        """By how much the CPU time of a batch grows for each further CPU in use: least to most.

        Fitted where runs differ in their number of workers.
        """
        if len({one.setting.workers for one in self._recorded if one.setting.workers}) <= 1:
            return GROWTH
        candidates = np.linspace(0.0, MOST_GROWTH, 26)
        errors = [self._misfit(growth) for growth in candidates.tolist()]
        best = float(candidates[int(np.argmin(errors))])
        return max(best - 0.02, 0.0), best, best + 0.02

    def _misfit(self, growth: float) -> float:
        found = 0.0
        for at, one in enumerate(self._recorded):
            costs = self._at(at, growth).costs
            for other in self._recorded:
                setting = replace(other.setting, growth=growth)
                if setting.workers and one.setting.workers and other is not one:
                    predicted_ns = iteration_ns(costs, setting)
                    found += math.log(predicted_ns / other.measured_ns) ** 2
        return found

    def _at(self, at: int, growth: float) -> Calibrated:
        if (at, growth) not in self._calibrated:
            self._calibrated[at, growth] = self._recorded[at].calibrated(growth)
        return self._calibrated[at, growth]

    def predict(
        self,
        *,
        num_workers: int | None = None,
        prefetch_factor: int | None = None,
        cpus: float | None = None,
        in_order: bool | None = None,
        batch_size: int | None = None,
        faster: Mapping[str, float] | None = None,
    ) -> Prediction:
        """What training would do under these settings, as `whatif`."""
        _check(num_workers, prefetch_factor, cpus, batch_size, faster)
        last = self._recorded[-1]
        workers = self.num_workers if num_workers is None else num_workers
        if prefetch_factor is not None and not workers:
            raise UsageError(
                f"prefetch_factor is {prefetch_factor} and num_workers is 0; expected workers, for "
                "only they prefetch: leave it out, or ask for 1 worker or more"
            )
        at, one = self._nearest(workers)
        setting = replace(
            last.setting,
            workers=workers,
            prefetch_factor=prefetch_factor or last.setting.prefetch_factor,
            in_order=last.setting.in_order if in_order is None else in_order,
            cpus=last.setting.cpus if cpus is None else cpus,
            others_cpus=last.setting.others_cpus if cpus is None else 0.0,
        )
        changed = _Changed(one, setting, batch_size, _in_full(one, faster or {}))
        return self._predicted(at, changed)

    def speedup(self, num_workers: int, length: Length) -> float:
        """With so many workers, as `predict` and `with_starts` have it, in less time."""
        last, (at, one) = self._recorded[-1], self._nearest(num_workers)
        changed = _Changed(one, replace(last.setting, workers=num_workers), None, {})
        found_ns = changed.usual(self._at(at, self.growth[1])).iteration_ns
        return last.measured_ns / self.with_starts(found_ns, num_workers, length)

    def with_starts(self, iteration_ns: float, num_workers: int, length: Length) -> float:
        """A mean iteration over whole epochs of a run without workers that is to have some.

        These start once, and live on. Nothing is loaded ahead of the first batch of an epoch: where
        the step is the limit, loading it comes on top, and else the last step does.
        """
        if self.num_workers or not num_workers:
            return iteration_ns
        starts_ns = self.starts_ns(num_workers, length.epochs)
        costs = self._recorded[-1].costs
        fetch_ns = float(costs.fetch_ns.mean())
        edge_ns = fetch_ns if fetch_ns <= num_workers * costs.step_ns else costs.step_ns
        return iteration_ns + (starts_ns + edge_ns) / length.batches

    def starts_ns(self, num_workers: int, epochs: float) -> float:
        """What starting so many workers takes of each epoch, where they live on for `epochs`."""
        _, one = self._nearest(num_workers)
        return num_workers * (one.start_ns / epochs + RESUME_NS)

    @property
    def is_passing_known(self) -> bool:
        """Whether it is known what passing a batch from a worker would take."""
        one = self._recorded[-1]
        return bool(one.setting.workers) or one.tensors is not None

    def _nearest(self, workers: int) -> tuple[int, Recorded]:
        """The run whose number of workers is the nearest, and which it is."""

        def distance(numbered: tuple[int, Recorded]) -> float:
            return abs(math.log((numbered[1].setting.workers + 0.5) / (workers + 0.5)))

        return min(enumerate(self._recorded), key=distance)

    def without(self, fix: Fix) -> Prediction:
        """The same as it was, but for what `fix` changes of its costs and its setting."""
        one = self._recorded[-1]
        return self._predicted(len(self._recorded) - 1, _Changed(one, one.setting, None, {}, fix))

    def _predicted(self, at: int, changed: _Changed) -> Prediction:
        last = self._recorded[-1]
        calibrated = [self._at(at, growth) for growth in self.growth]
        usual = changed.usual(calibrated[1])
        least, most = (changed.replayed(calibrated[end]) for end in (0, 2))
        cases = [least.iteration_ns, usual.iteration_ns, most.iteration_ns]
        if changed.may_be_hindered:
            hindered = [changed.replayed(one, hindered=True) for one in calibrated[1:]]
            cases = [min(cases), cases[1], max(*cases, *(one.iteration_ns for one in hindered))]
        is_fitted = self.growth != GROWTH
        return changed.prediction(
            cases, usual.spread, calibrated[1], last.measured_ns, is_fitted=is_fitted
        )

    def curve(self) -> WorkerCurve:
        """Throughput without workers and with some, until twice the CPUs, or those there are."""
        last = self._recorded[-1]
        most = 2 * max(last.setting.workers, math.ceil(last.setting.cpus or 1), 2)
        counts = {0, *spread(1, most), *(one.setting.workers for one in self._recorded)}
        return WorkerCurve(
            tuple((one.setting.workers, one.rate) for one in self._recorded),
            tuple(self.predict(num_workers=count) for count in sorted(counts)),
            last.unit,
            last.setting.cpus,
            last.setting.others_cpus,
        )


def whatif(
    runs: Run | Sequence[Run],
    *,
    num_workers: int | None = None,
    prefetch_factor: int | None = None,
    cpus: float | None = None,
    in_order: bool | None = None,
    batch_size: int | None = None,
    faster: Mapping[str, float] | None = None,
) -> Prediction:
    """What training would do under other settings; None leaves one as it was.

    `runs` is one with stages (mode "alternate", or stages=True), or several of the same loader with
    different numbers of workers, which show how its CPU time grows with them. `cpus` are those that
    training and its workers may share. `faster` maps a transform or function, or "fetch",
    "collate", "indices", "hand-over", "pin" or "step", to how many times as fast it becomes. The
    last part of a name, behind a dot, will do where no other ends so.

    Raises UsageError where a run does not tell what happens inside the loader, or for a value that
    no loader can have.
    """
    return LoaderModel.of(runs).predict(
        num_workers=num_workers,
        prefetch_factor=prefetch_factor,
        cpus=cpus,
        in_order=in_order,
        batch_size=batch_size,
        faster=faster,
    )


@dataclass(frozen=True)
class _Changed:
    """A recorded loader under other settings."""

    recorded: Recorded
    setting: Setting
    batch_size: int | None
    faster: Mapping[str, float]
    fix: Fix | None = None

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

    @property
    def may_be_hindered(self) -> bool:
        """Whether workers may hinder each other, or training, which the run does not show."""
        return self.are_first or self.recorded.blockage == Blockage.DISK

    def changed(self, calibrated: Calibrated, *, hindered: bool = False) -> tuple[Costs, Setting]:
        """What each batch takes then, and the setting.

        `hindered` is if a disk gives all workers no more than now, and if workers that load keep
        Python's lock from training, which receives.
        """
        costs = calibrated.costs
        for name, factor in self.faster.items():
            costs = sped_up(costs, name, factor)
        if self.are_first:
            costs = handed_over(self.recorded, costs, hindered=hindered)
        costs = costs if self.batches == 1 else _resized(costs, self.batches)
        blockage, present = self.recorded.blockage, max(self.recorded.setting.workers, 1)
        is_serial = blockage == Blockage.LOCK or (hindered and blockage == Blockage.DISK)
        if is_serial and self.setting.workers:  # all together pass it no faster than they do now
            taken_ns = costs.fetch_ns * self.setting.workers / present
            costs = replace(costs, blocked_ns=np.maximum(taken_ns - costs.cpu_ns, 0.0))
        setting = replace(self.setting, growth=calibrated.growth)
        return (costs, setting) if self.fix is None else self.fix(costs, setting)

    def usual(self, calibrated: Calibrated) -> Replayed:
        """As `replayed`; a disk or lock that workers wait for gives way as far as is likely."""
        found = self.replayed(calibrated)
        if not self.may_be_hindered:
            return found
        hindered_ns = self.replayed(calibrated, hindered=True).iteration_ns
        several = self.recorded.setting.workers > 1  # then they wait for it already
        usual_ns = hindered_ns if several else math.sqrt(found.iteration_ns * hindered_ns)
        return replace(found, iteration_ns=usual_ns)

    def replayed(self, calibrated: Calibrated, *, hindered: bool = False) -> Replayed:
        """For a batch of the run."""
        costs, setting = self.changed(calibrated, hindered=hindered)
        found = replayed(costs, setting)
        longer = _crowded(costs, setting, found.iteration_ns)
        longer /= _crowded(calibrated.costs, self.recorded.setting, calibrated.base_ns)
        share = found.iteration_ns / self.batches / calibrated.base_ns
        return replace(found, iteration_ns=self.recorded.measured_ns * longer * share)

    def prediction(
        self,
        cases: Sequence[float],
        spread: float,
        calibrated: Calibrated,
        present_ns: float,
        *,
        is_fitted: bool,
    ) -> Prediction:
        least_ns, usual_ns, most_ns = cases
        one, setting = self.recorded, self.setting
        rate = one.rate
        noise = (rate.high - rate.low) / 2 / rate.value if rate.low and rate.high else 0.0
        further = ERROR_OF_CHANGE * abs(math.log(one.measured_ns / usual_ns))
        error = math.hypot(USUAL_ERROR + further, noise, _noise_of(one.costs.fetch_ns))
        error = math.hypot(error, calibrated.spread, spread)
        limit = self._limit(calibrated)
        crowded = _crowded(calibrated.costs, setting, usual_ns) - 1
        slower = math.hypot(most_ns / usual_ns - 1, error, crowded)
        faster = math.hypot(usual_ns / least_ns - 1, error, crowded)
        if setting == one.setting and not self.faster and not self.fix and self.batches == 1:
            slower = faster = noise

        def range_of(value: float) -> Range:
            return Range(value, value / (1 + slower), value * (1 + faster))

        iteration = usual_ns * self.batches
        low_high = (iteration / (1 + faster), iteration * (1 + slower))
        workers, depth = setting.workers, setting.workers * setting.prefetch_factor
        queued = None if one.batch_bytes is None else (depth + 1) * one.batch_bytes * self.batches
        memory = None
        if one.worker_bytes is not None and queued is not None:
            memory = workers * one.worker_bytes + queued
        memory = memory if workers else queued
        piped = (one.stages.pickled_bytes or 0.0) * 2 >= (one.batch_bytes or math.inf)
        shared = 0.0 if piped or not workers else queued
        return Prediction(
            num_workers=workers,
            prefetch_factor=setting.prefetch_factor,
            in_order=setting.in_order,
            cpus=setting.cpus,
            batch_size=self.batch_size or one.loader.batch_size,
            faster=self.faster,
            iteration_ns=Range(iteration, *low_high),
            throughput=range_of(rate.value * one.measured_ns / usual_ns),
            unit=one.unit,
            speedup=range_of(present_ns / usual_ns),
            limit=limit,
            memory_bytes=memory,
            shared_memory_bytes=shared,
            assumptions=tuple(self._assumptions(calibrated, is_fitted=is_fitted)),
            shortages=tuple(
                Remark(code, {"needed_bytes": needed, "there_bytes": there})
                for code, needed, there in (
                    (Shortage.MEMORY, memory, one.machine_bytes),
                    (Shortage.SHARED_MEMORY, shared, one.shm_free_bytes),
                )
                if needed and there and needed > there
            ),
        )

    def _limit(self, calibrated: Calibrated) -> Limit:
        costs, setting = self.changed(calibrated, hindered=self.recorded.setting.workers > 1)
        found_ns = iteration_ns(costs, setting)
        free = iteration_ns(costs.fetched_in(0.0), setting)
        if found_ns <= (1 + 3 * NO_EFFECT) * free:
            alone = max(costs.step_ns, 1.0)
            return Limit.STEP if free <= 1.1 * alone else Limit.TRAINING_PROCESS
        workers = setting.workers
        if not workers:
            return Limit.WORKERS

        def helps(changed: Setting) -> bool:
            return iteration_ns(costs, changed) < (1 - 3 * NO_EFFECT) * found_ns

        more_cpus, more_workers = replace(setting, cpus=None), replace(setting, workers=2 * workers)
        shared = LIMIT_OF.get(self.recorded.blockage)
        if helps(more_cpus) and (
            shared or iteration_ns(costs, more_cpus) <= iteration_ns(costs, more_workers)
        ):
            return Limit.CPUS
        if helps(replace(setting, prefetch_factor=4 * setting.prefetch_factor)):
            return Limit.PREFETCH
        if not helps(more_workers):
            return Limit.TRAINING_PROCESS
        return shared or Limit.WORKERS

    def _assumptions(self, calibrated: Calibrated, *, is_fitted: bool) -> list[Remark]:
        one, workers = self.recorded, self.setting.workers
        found = []
        if workers > max(one.setting.workers, 1):
            if one.blocked >= MOSTLY_BLOCKED:
                found.append(Remark(OF_BLOCKED[one.blockage], {"share": one.blocked}))
            if not is_fitted:
                growth = {"least": GROWTH[0], "most": GROWTH[2]}
                found.append(Remark(Assumption.CPU_TIME_GROWS, growth))
            if self.setting.cpus is None:
                found.append(Remark(Assumption.CPUS_NOT_READ))
        found += _of_first_workers(one) if self.are_first else []
        if self.batches != 1:
            found.append(Remark(Assumption.STEP_PER_SAMPLE))
        if not one.alternates:
            found.append(Remark(Assumption.STEP_IN_LOG))
        if one.step_spins:
            found.append(Remark(Assumption.STEP_SPINS))
        ratio = calibrated.base_ns / one.measured_ns
        if abs(math.log(ratio)) > UNLIKE:
            found.append(Remark(Assumption.UNLIKE_REPLAY, {"ratio": ratio}))
        return found


UNLIKE = 0.1


def handed_over(one: Recorded, costs: Costs, *, hindered: bool = False) -> Costs:
    """`costs` of a run without workers, as if these handed the batches over.

    Receiving needs Python's lock in the worker too: `hindered` is if that is busy all the time.
    """
    passing_ns = _passing_ns(one, hindered=hindered)
    pickle_ns, receive_ns = (np.full(len(costs), each_ns) for each_ns in passing_ns)
    shared_ns = 0.0 if one.tensors == 0 else SHARED_NS_PER_BYTE * (one.batch_bytes or 0.0)
    return replace(
        costs,
        cpu_ns=costs.cpu_ns + shared_ns,
        pickle_ns=pickle_ns,
        receive_ns=receive_ns,
        lock_ns=math.inf if hindered and one.tensors else 0.0,
    )


def _of_first_workers(one: Recorded) -> list[Remark]:
    """What is assumed of workers where the run had none."""
    _, receive_ns = _passing_ns(one)
    return [
        Remark(Assumption.HAND_OVER_USUAL, {"hand_over_ns": receive_ns}),
        Remark(Assumption.WORKERS_START, {"start_ns": one.start_ns}),
        *([Remark(Assumption.TENSORS_NOT_COUNTED)] if one.tensors is None else []),
    ]


def _passing_ns(one: Recorded, *, hindered: bool = False) -> tuple[float, float]:
    """What pickling and receiving a batch takes by what it has; few tensors are not counted."""
    if one.tensors == 0:
        pickle_ns, receive_ns = ((one.batch_bytes or 0.0) * each for each in PIPE_NS_PER_BYTE)
    else:
        pickle_ns, receive_ns = (
            (one.tensors or 0.0) * each for each in (PICKLE_TENSOR_NS, RECEIVE_TENSOR_NS[hindered])
        )
    return HAND_OVER_NS + pickle_ns, HAND_OVER_NS + receive_ns


def spread(first: int, last: int) -> list[int]:
    """Numbers from `first` to `last`, the larger ones some 20% apart."""
    counts = [first]
    while counts[-1] < last:
        counts.append(min(counts[-1] + max(counts[-1] // 5, 1), last))
    return counts


def _in_full(one: Recorded, faster: Mapping[str, float]) -> dict[str, float]:
    """`faster` with full names. Raises FasterError where two of its names mean the same."""
    found: dict[str, float] = {}
    for given, factor in faster.items():
        name = full_name(given, one.costs.named_ns, one.nameable)
        if name in found:
            raise FasterError(f"faster has {name!r} twice; expected each part once")
        found[name] = factor
    return found


def _crowded(costs: Costs, setting: Setting, found_ns: float) -> float:
    """How many times as long an iteration of `found_ns` takes for want of CPUs, see CROWDED."""
    cpus = setting.cpus
    if cpus is None or setting.workers + 1 <= cpus - round(setting.others_cpus) or not found_ns:
        return 1.0
    each_ns = float((costs.cpu_ns + costs.receive_ns + costs.index_ns).mean())
    used = (each_ns + costs.step_ns * costs.step_cpus) / found_ns
    return 1 + CROWDED * min(used / cpus, 1.0)


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


def _check(
    num_workers: int | None,
    prefetch_factor: int | None,
    cpus: float | None,
    batch_size: int | None,
    faster: Mapping[str, float] | None,
) -> None:
    for name, value, least in (
        ("num_workers", num_workers, 0),
        ("prefetch_factor", prefetch_factor, 1),
        ("batch_size", batch_size, 1),
    ):
        if value is not None and (type(value) is not int or value < least):
            raise UsageError(f"{name} is {value!r}; expected a whole number, {least} or more")
    if cpus is not None and not cpus > 0:
        raise UsageError(f"cpus is {cpus!r}; expected a number above 0")
    factors: Mapping[str, object] = faster or {}
    for part, factor in factors.items():
        if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not factor > 0:
            raise FasterError(
                f"faster has {factor!r} for {part!r}; expected how many times as fast it becomes, "
                "above 0: 2 is twice as fast"
            )
