"""What feeding devices takes of a machine, and how busy that keeps them, by one recorded run.

Each device has a training process and workers of its own, whose batches take what those of the run
took, and all share the machine's CPUs, memory and storage equally. How busy a device is, is MLPerf
Storage's accelerator utilisation (AU): the time that it computes over time in all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping  # noqa: TC003 - dataclass fields
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property, reduce
from operator import add
from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.predict.change import Change
from loadeval.analysis.predict.prediction import Limit, Range
from loadeval.analysis.predict.recorded import Recorded
from loadeval.analysis.predict.whatif import LoaderModel, spread
from loadeval.analysis.run_memory import plan_of_run
from loadeval.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loadeval.analysis.predict.change import ChangedLoader
    from loadeval.analysis.predict.costs import Costs
    from loadeval.analysis.predict.prediction import Prediction
    from loadeval.analysis.predict.recorded import PresentReplay
    from loadeval.runlog.model import Run

MLPERF_STEPS = {
    "cosmoflow-a100": (0.00551, 1),
    "cosmoflow-h100": (0.00350, 1),
    "resnet50-a100": (0.435, 400),
    "resnet50-h100": (0.224, 400),
    "unet3d-a100": (0.636, 7),
    "unet3d-h100": (0.323, 7),
}
"""Seconds of a step, and the samples in its batch, by the workloads of MLPerf Storage.

Their `computation_time` and `batch_size`, in configs/dlio/workload of github.com/mlcommons/storage.
"""
BUSY = 0.98
"""Devices that compute for this share of the most that they could need no more."""
LEAST_LIFT = 0.02
"""What adds less than this to the utilisation is not worth saying."""
TIMES = 2.0
"""How many times as fast the heaviest part of loading is to become."""
MOST_WORKERS = 64
"""Of one device."""
LEAST_CPUS = 0.1
"""However few CPUs there are, loading gets so much of one for each device."""
FEW_CPUS = 2.0
"""Where a device needs fewer, parts of a CPU are looked at too."""
LEAST_ERROR = 0.05
"""Utilisation of the same training differs by so much from run to run; see docs/benchmarks.md."""
ERROR_OF_CPU_TIME = 0.1
"""CPU time of a batch differs by this much where more CPUs are in use, and from day to day."""


class Need(Enum):
    """What feeding devices needs."""

    SAMPLES = "samples"
    CPUS = "CPUs for loading"
    FETCH_CPUS = "CPUs to fetch and collate"
    PICKLE_CPUS = "CPUs to pickle"
    TRAINING_CPUS = "CPUs of training"
    RECEIVE_CPUS = "CPUs to receive"
    WORKERS = "workers of each device"
    MEMORY = "memory"
    SHARED_MEMORY = "shared memory"
    PAGE_CACHE = "page cache"
    READ_FIRST = "read, first epoch"
    READ_LATER = "read, later epochs"
    FILES = "files opened"


class Basis(Enum):
    """What a need rests on."""

    STEP = "step"
    CPU_TIME = "CPU time"
    PASSING = "passing batches"
    REPLAY = "replay"
    MEMORY_READ = "memory read"
    BATCH_SIZE = "batch size"
    DATA_GIVEN = "data given"
    BYTES_READ = "bytes read"
    FITS = "fits in memory"
    FILES_COUNTED = "files counted"


class NotKnown(Enum):
    """Why a need is not known, each with what would tell it."""

    NO_BYTES_READ = "no bytes read"
    NO_FILES_COUNTED = "no files counted"
    NO_MEMORY_READ = "no memory read"
    NO_DATA_BYTES = "no data bytes"
    NO_SAMPLES = "no samples"
    NO_WORKERS = "no workers"


class Lift(Enum):
    """What would make devices busier."""

    CPUS = "CPUs"
    FASTER = "faster"
    READ = "read"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Machine:
    """What there is; None is not known.

    `devices` share `cpus` CPUs, `memory_bytes` of memory, `shared_memory_bytes` of /dev/shm, and
    storage that gives `read_bytes_per_s`.
    """

    devices: int
    cpus: float
    memory_bytes: float | None = None
    shared_memory_bytes: float | None = None
    read_bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Demand:
    """What all devices together need, `for_device` what one does, and what there is.

    Seconds are those in which devices always compute. None is not known; `why` says so then.
    """

    need: Need
    amount: Range | None
    for_device: float | None = None
    there: float | None = None
    basis: Basis | None = None
    why: NotKnown | None = None


@dataclass(frozen=True, slots=True)
class Lifted:
    """What the utilisation would be with one change alone.

    `amount` is how many CPUs, bytes per second, bytes, or times as fast; `part` is what of loading
    becomes faster, "" for other changes.
    """

    lift: Lift
    amount: float
    utilisation: Range
    part: str = ""


@dataclass(frozen=True, slots=True)
class MachinePlan:
    """What feeding the devices of a machine takes, and how busy that keeps them.

    `step_ns` is one of a device, for `batch_size` samples; None where these are not known.
    `utilisation` is a share of the time in later epochs, which is held up by `limit`, and
    `first_epoch` that in the first one, in which all data are read from storage. `by_cpus` has the
    utilisation for other numbers of CPUs for each device, and `cache_places` where samples could be
    kept in memory, with what later epochs gain there.
    """

    machine: Machine
    step_ns: float
    batch_size: int | None
    num_workers: int
    utilisation: Range
    first_epoch: Range
    limit: Limit
    demands: tuple[Demand, ...]
    lifts: tuple[Lifted, ...]
    by_cpus: tuple[tuple[float, Range], ...]
    data_bytes: float | None = None

    @property
    def unlimited_read(self) -> float | None:
        """Bytes per second that are read from storage, where nobody said what it gives."""
        read = next(each for each in self.demands if each.need is Need.READ_FIRST)
        is_known = self.machine.read_bytes_per_s is not None
        return None if is_known or read.amount is None else read.amount.value


def plan(
    run: Run,
    *,
    machine: Machine,
    step_ns: float | None = None,
    batch_size: int | None = None,
    data_bytes: float | None = None,
) -> MachinePlan:
    """What feeding the devices of `machine` takes, from one run whose loader was looked into.

    `step_ns` is what a device takes for a batch, by default the step of the run with ideal loading;
    with another `batch_size` that step is scaled to it, and one that is given is of such a batch.
    `data_bytes` is the size of the data set.

    Raises UsageError where the run does not tell what happens inside the loader, or for a value
    that no machine can have.
    """
    _check(machine, step_ns, data_bytes)
    return _Planner(run, machine, step_ns, batch_size, data_bytes).plan()


def mlperf_step_ns(name: str, batch_size: float) -> float:
    """The step of a workload of MLPerf Storage, for a batch of so many samples."""
    seconds, samples = MLPERF_STEPS[name]
    return seconds * 1e9 * batch_size / samples


def batch_size_of(run: Run) -> float | None:
    """The samples in a batch of `run`. Raises UsageError where nothing is known of its loader."""
    recorded = Recorded.of(run)
    return recorded.loader.batch_size or recorded.summary.samples_per_batch


def _check(machine: Machine, step_ns: float | None, data_bytes: float | None) -> None:
    if type(machine.devices) is not int or machine.devices < 1:
        raise UsageError(f"devices is {machine.devices!r}; expected a whole number, 1 or more")
    for name, value in (
        ("cpus", machine.cpus),
        ("memory_bytes", machine.memory_bytes),
        ("shared_memory_bytes", machine.shared_memory_bytes),
        ("read_bytes_per_s", machine.read_bytes_per_s),
        ("step_ns", step_ns),
        ("data_bytes", data_bytes),
    ):
        if value is not None and not 0 < value < math.inf:
            raise UsageError(f"{name} is {value!r}; expected a number above 0")


class _Planner:
    """Makes one plan."""

    def __init__(
        self,
        run: Run,
        machine: Machine,
        step_ns: float | None,
        batch_size: int | None,
        data_bytes: float | None,
    ) -> None:
        self.run = run
        self.machine = machine
        self.data_bytes = data_bytes
        self.model = LoaderModel.of(run)
        self.recorded = Recorded.of(run)
        size = batch_size_of(run)
        if batch_size is not None and not size:
            raise UsageError("the run does not tell its batch size; leave batch_size out")
        self.batch_size = batch_size
        self.batches = 1.0 if batch_size is None else batch_size / (size or 1)
        self.samples = None if size is None else size * self.batches
        costs = self.recorded.costs
        self.step_ns = costs.step_ns * self.batches if step_ns is None else step_ns
        # A device's own step takes no CPU from loading, other than what the training process uses.
        self.change = None if step_ns is None else Change(costs=self._on_device)
        self.taken_cpus = 0.0 if step_ns is None else costs.step_cpus

    def _on_device(self, costs: Costs) -> Costs:
        return replace(costs, step_ns=self.step_ns / self.batches, step_cpus=0.0)

    def plan(self) -> MachinePlan:
        busy = self._now
        first, later = (
            self._held_by_storage(busy, is_first=is_first) for is_first in (True, False)
        )
        lifts = tuple(self._lifts(later))
        limit = self._predicted.limit
        if any(lifted.lift is Lift.CPUS for lifted in lifts):  # however many workers share them
            limit = Limit.CPUS
        return MachinePlan(
            machine=self.machine,
            step_ns=self.step_ns,
            batch_size=None if self.samples is None else round(self.samples),
            num_workers=self.num_workers,
            utilisation=later,
            first_epoch=first,
            limit=Limit.STORAGE if later.value < busy.value else limit,
            demands=tuple(self._demands()),
            lifts=lifts,
            by_cpus=tuple(self._by_cpus()),
            data_bytes=self.data_bytes,
        )

    def _sped_up(self, change: Change) -> Range:
        """How many times as fast a batch of a device is with `change`."""
        present_ns = self._predicted.iteration_ns.value
        cpus = self.machine.cpus / self.machine.devices
        iteration = self.model.iteration(self._changed(cpus, self.num_workers, change=change))
        ends = (iteration.value, iteration.high, iteration.low)
        return Range(*(present_ns / end_ns for end_ns in ends))

    @property
    def _left_bytes(self) -> float | None:
        """Memory that training leaves; all there is where it is not known what that takes."""
        left = self._cache_bytes
        return self.machine.memory_bytes if left is None else left

    @cached_property
    def num_workers(self) -> int:
        """The fewest workers of a device with which it is about as busy as with any number."""
        cpus = self.machine.cpus / self.machine.devices
        most = min(max(2 * math.ceil(cpus), self.model.num_workers, 2), MOST_WORKERS)
        busy = [(count, self._busy(cpus, count).value) for count in spread(1, most)]
        best = max(share for _, share in busy)
        return next(count for count, share in busy if share >= BUSY * best)

    @cached_property
    def _predicted(self) -> Prediction:
        cpus = self.machine.cpus / self.machine.devices
        return self.model.prediction(self._changed(cpus, self.num_workers))

    @cached_property
    def _now(self) -> Range:
        """How busy a device is, but for storage."""
        return self._busy_for(self._predicted.iteration_ns)

    def _changed(
        self,
        cpus: float,
        workers: int,
        faster: Mapping[str, float] | None = None,
        change: Change | None = None,
    ) -> ChangedLoader:
        """The loader of a device that has so many CPUs and workers."""
        changes = [each for each in (self.change, change) if each is not None]
        return self.model.asked(
            num_workers=workers,
            cpus=max(cpus - self.taken_cpus, LEAST_CPUS),
            batch_size=self.batch_size,
            faster=faster,
            change=reduce(add, changes) if changes else None,
        )

    def _busy(self, cpus: float, workers: int, faster: Mapping[str, float] | None = None) -> Range:
        return self._busy_for(self.model.iteration(self._changed(cpus, workers, faster)))

    def _busy_for(self, iteration: Range) -> Range:
        """How busy a device is whose iterations take so long."""
        ends = (iteration.value, iteration.high, iteration.low)
        # What the replay does not explain may be of the recorded machine: a step that ends without
        # a CPU, for one. It is taken to be there by half.
        unexplained = 1.0 if self.is_recorded else self._unexplained
        least, most = sorted((1.0, unexplained))
        factors = (math.sqrt(unexplained), least / (1 + LEAST_ERROR), most * (1 + LEAST_ERROR))
        busy = (factor * self.step_ns / ns for factor, ns in zip(factors, ends, strict=True))
        return Range(*(min(share, 1.0) for share in busy))

    @property
    def is_recorded(self) -> bool:
        """Whether the machine is as large as the one that the run was recorded on."""
        return self.machine.devices == 1 and self.machine.cpus == self.recorded.setting.cpus

    @cached_property
    def _present(self) -> PresentReplay:
        return self.recorded.present(self.model.growth[1])

    @cached_property
    def _unexplained(self) -> float:
        """How many times as long an iteration took as its replay, uncalibrated, takes."""
        present = self._present
        return self.recorded.measured_ns / present.iteration_ns

    @cached_property
    def _read_ns(self) -> float | None:
        """What reading a batch takes of a device's share of the storage; None is not known."""
        read, per_s = self.recorded.stages.read_bytes, self.machine.read_bytes_per_s
        if not read or per_s is None:
            return None
        return 1e9 * read * self.batches * self.machine.devices / per_s

    def _held_by_storage(self, busy: Range, *, is_first: bool) -> Range:
        """What is left of `busy` by the storage, which data in memory needs only at first."""
        if self._read_ns is None or (self._fits and not is_first):
            return busy
        share = min(self.step_ns / self._read_ns, 1.0)
        by_storage = (share, share / (1 + LEAST_ERROR), min(share * (1 + LEAST_ERROR), 1.0))
        return Range(*map(min, (busy.value, busy.low, busy.high), by_storage))

    @property
    def _fits(self) -> bool:
        """Whether the data set stays in memory that nothing else needs, as far as is known."""
        left = self._cache_bytes
        return self.data_bytes is not None and left is not None and self.data_bytes <= left

    @cached_property
    def _memory_bytes(self) -> float | None:
        """What all training processes and their workers take."""
        memory = plan_of_run(self.run).memory
        process = None if memory is None else memory.process_bytes
        own = self._predicted.memory_bytes
        return None if process is None or own is None else self.machine.devices * (process + own)

    @property
    def _cache_bytes(self) -> float | None:
        there, taken = self.machine.memory_bytes, self._memory_bytes
        return None if there is None or taken is None else max(there - taken, 0.0)

    def _demands(self) -> Iterator[Demand]:
        machine, recorded = self.machine, self.recorded
        per_s = 1e9 / self.step_ns
        yield self._demand(Need.SAMPLES, self._exactly(self.samples, per_s), Basis.STEP)
        costs = self._present.costs
        fetch, pickle = (
            float(column.mean()) * self.batches / self.step_ns
            for column in (costs.cpu_ns, costs.pickle_ns)
        )
        has_workers = recorded.setting.workers > 0
        training = costs.step_cpus + costs.handed_ns * self.batches / self.step_ns
        yield self._demand(Need.CPUS, self._about(fetch + pickle), Basis.CPU_TIME, machine.cpus)
        yield self._demand(Need.FETCH_CPUS, self._about(fetch), Basis.CPU_TIME)
        passing = [
            self._demand(
                need,
                self._about(value) if has_workers else None,
                Basis.PASSING,
                why=NotKnown.NO_WORKERS,
            )
            for need, value in (
                (Need.PICKLE_CPUS, pickle),
                (Need.RECEIVE_CPUS, training - costs.step_cpus),
            )
        ]
        yield passing[0]
        yield self._demand(Need.TRAINING_CPUS, self._about(training), Basis.CPU_TIME)
        yield passing[1]
        workers = float(self.num_workers)
        yield Demand(Need.WORKERS, Range(workers, workers, workers), workers, basis=Basis.REPLAY)
        yield self._of_all(
            Need.MEMORY,
            self._memory_bytes,
            machine.memory_bytes,
            Basis.MEMORY_READ,
            NotKnown.NO_MEMORY_READ,
        )
        shared = self._predicted.shared_memory_bytes
        yield self._of_all(
            Need.SHARED_MEMORY,
            None if shared is None else shared * machine.devices,
            machine.shared_memory_bytes,
            Basis.BATCH_SIZE,
            NotKnown.NO_MEMORY_READ,
        )
        yield self._of_all(
            Need.PAGE_CACHE,
            self.data_bytes,
            self._cache_bytes,
            Basis.DATA_GIVEN,
            NotKnown.NO_DATA_BYTES,
        )
        read = self._exactly(recorded.stages.read_bytes, self.batches * per_s)
        first = self._demand(
            Need.READ_FIRST,
            read,
            Basis.BYTES_READ,
            machine.read_bytes_per_s,
            NotKnown.NO_BYTES_READ,
        )
        yield first
        if self._fits and read is not None:
            nothing = Range(0.0, 0.0, 0.0)
            yield replace(
                first, need=Need.READ_LATER, amount=nothing, for_device=0.0, basis=Basis.FITS
            )
        else:
            yield replace(first, need=Need.READ_LATER)
        opened = recorded.stages.opened_files
        files = None if not opened or self.samples is None else opened * self.samples
        yield self._demand(
            Need.FILES,
            self._exactly(files, per_s),
            Basis.FILES_COUNTED,
            why=NotKnown.NO_FILES_COUNTED,
        )

    def _exactly(self, amount: float | None, per_s: float) -> Range | None:
        """So much a batch, in a second of a device; None where that is not known, or none."""
        if not amount:
            return None
        return Range(*(amount * per_s,) * 3)

    def _about(self, cpus: float) -> Range:
        """CPUs of one device, which are known about."""
        return Range(cpus, cpus * (1 - ERROR_OF_CPU_TIME), cpus * (1 + ERROR_OF_CPU_TIME))

    def _demand(
        self,
        need: Need,
        of_device: Range | None,
        basis: Basis,
        there: float | None = None,
        why: NotKnown = NotKnown.NO_SAMPLES,
    ) -> Demand:
        if of_device is None:
            return Demand(need, None, there=there, why=why)
        ends = (of_device.value, of_device.low, of_device.high)
        of_all = Range(*(end * self.machine.devices for end in ends))
        return Demand(need, of_all, of_device.value, there, basis)

    def _of_all(
        self, need: Need, amount: float | None, there: float | None, basis: Basis, why: NotKnown
    ) -> Demand:
        if amount is None:
            return Demand(need, None, there=there, why=why)
        return Demand(need, Range(*(amount,) * 3), None, there, basis)

    def _lifts(self, now: Range) -> Iterator[Lifted]:
        """What would make devices busier, each by itself, the most effective first."""
        lifts = [
            lifted
            for lifted in (
                self._more_cpus(),
                self._faster_part(),
                self._more_read(),
                self._cached(),
            )
            if lifted is not None and lifted.utilisation.value >= now.value + LEAST_LIFT
        ]
        yield from sorted(lifts, key=lambda lifted: -lifted.utilisation.value)

    def _more_cpus(self) -> Lifted | None:
        devices = self.machine.devices
        busy = [(cpus, self._with_cpus(cpus)) for cpus in self._cpu_counts()]
        best = max(share.value for _, share in busy)
        cpus, share = next(each for each in busy if each[1].value >= BUSY * best)
        if cpus * devices <= self.machine.cpus:
            return None
        return Lifted(Lift.CPUS, cpus * devices, self._held_by_storage(share, is_first=False))

    def _faster_part(self) -> Lifted | None:
        """The heaviest transform, or the function of the user's that takes most, made faster."""
        named = self.recorded.costs.named_ns
        transforms = [transform.name for transform in self.recorded.stages.transforms]
        offered = [name for name in (*transforms, *self.recorded.nameable) if name in named]
        if not offered:
            return None
        known = [name for name in offered if name in transforms] or offered
        heaviest = max(known, key=lambda name: float(np.mean(named[name])))
        cpus = self.machine.cpus / self.machine.devices
        busy = self._busy(cpus, self.num_workers, {heaviest: TIMES})
        return Lifted(Lift.FASTER, TIMES, self._held_by_storage(busy, is_first=False), heaviest)

    def _more_read(self) -> Lifted | None:
        if self._read_ns is None or self._fits:
            return None
        busy = self._now
        per_s = self.machine.read_bytes_per_s or 0.0
        return Lifted(Lift.READ, per_s * self._read_ns / self.step_ns * busy.value, busy)

    def _cached(self) -> Lifted | None:
        taken = self._memory_bytes
        if self._read_ns is None or self._fits or self.data_bytes is None or taken is None:
            return None
        return Lifted(Lift.MEMORY, taken + self.data_bytes, self._now)

    def _by_cpus(self) -> Iterator[tuple[float, Range]]:
        for cpus in self._cpu_counts():
            busy = self._with_cpus(cpus)
            yield cpus, self._held_by_storage(busy, is_first=False)

    def _cpu_counts(self) -> list[float]:
        """CPUs for each device: up to what it needs, and some more."""
        costs = self.recorded.costs
        needed_ns = float((costs.cpu_ns + costs.pickle_ns).mean()) + costs.handed_ns
        needed = needed_ns * self.batches / self.step_ns + costs.step_cpus
        given = self.machine.cpus / self.machine.devices
        counts = {*map(float, spread(1, math.ceil(1.5 * max(needed, given)))), given}
        if needed < FEW_CPUS:
            counts |= {0.25, 0.5}
        return sorted(counts)

    def _with_cpus(self, cpus: float) -> Range:
        """How busy a device with so many CPUs is, with as many workers or with those chosen."""
        counts = {self.num_workers, min(max(math.ceil(cpus), 1), MOST_WORKERS)}
        busy = [self._busy(cpus, workers) for workers in counts]
        return max(busy, key=lambda share: share.value)
