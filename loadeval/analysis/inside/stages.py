"""Inside the loader: where a batch's loading time goes, by stage, transform, sample and worker."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from loadeval.analysis.estimate.steady import warmup_of
from loadeval.analysis.inside.timeline import LoaderTimeline, Stage, or_0
from loadeval.analysis.inside.transforms import (
    TransformSizes,
    TransformTime,
    sizes_of,
    transforms_of,
)
from loadeval.analysis.once import once_per_run
from loadeval.analysis.remark import Remark
from loadeval.data.columns import UNKNOWN, Columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.inside.timeline import Charges
    from loadeval.data.columns import Column
    from loadeval.data.run import Run

MOST_SAMPLES = 10
"""The most slow samples that are listed."""
SLOW_SAMPLE = 3.0
"""A sample is slow if it takes more than this many times the typical one."""
LEAST_SLOW_NS = 100_000
"""No sample below this is slow, whatever is typical."""
MOST_KNOWN = 0.5
"""The kernel's figures count only if they are known for this share of the time."""
FROM_DISK = 0.3
"""The disk blocks workers if at least this share of the bytes is read from it."""
LEAST_FROM_DISK = 16_384
"""The least bytes of a batch from the disk: less may be Python's own files."""
LOCKS = ("futex", "flock", "locks_", "do_lock_file", "fcntl_setlk", "sem_", "semaphore")
FUTEX = "futex"
THREADS = re.compile(r"(concurrent\.futures|queue|threading|multiprocessing\.pool|fsspec)\..+")
"""Functions in which a thread waits for others of its own process, by their full names."""
MOSTLY = 0.5
"""A worker waits for its own threads where it is seen in these, or they compute, for so long."""
SLEEPS = "nanosleep"
DISKS = ("folio_wait", "io_schedule", "bit_wait_io", "wait_on_page", "filemap", "blk", "dio_")
"""How Linux names the places where a process waits for a lock, or for a disk."""
ONE_AT_A_TIME = 0.35
"""If one worker works at a time, all work differs from the loader's time by at most this share."""
UNEVEN = 1.2
"""Workers differ if the slowest takes more than this many times as long as the fastest."""


class Basis(Enum):
    """Which time is attributed to the stages."""

    LOADER_ALONE = "loader alone"
    WAITS = "waits"


class Blockage(Enum):
    """What workers are blocked by."""

    NONE = "nothing"
    LOCK = "a lock"
    DISK = "a disk"
    OTHER = "storage, the network or another process"


@dataclass(frozen=True, slots=True)
class StageShare:
    """One stage, in nanoseconds a batch.

    `charged_ns` is its part of the time that is attributed: how long the loader was waited for
    while it did this for the batch that came next. `work_ns` is what it takes whether or not
    anyone waits. Of `charged_ns`, `cpu_ns` is on a CPU, `run_queue_ns` runnable without one and
    `blocked_ns` neither; None where that is not known.
    """

    stage: Stage
    charged_ns: float
    work_ns: float
    cpu_ns: float | None = None
    run_queue_ns: float | None = None
    blocked_ns: float | None = None


@dataclass(frozen=True, slots=True)
class CodeLine:
    """A function that workers were often seen in: its share of fetching and collating.

    `place` is its line that they were seen in most, `data.py:31 __getitem__`, and `leaf` the
    function of a library that it mostly called, or "". `blocked_share` is the part of `share` in
    which it was blocked, and `blocked_in` where, as the kernel names it; "" if unknown.
    """

    place: str
    leaf: str
    share: float
    blocked_share: float
    blocked_in: str

    @property
    def function(self) -> str:
        """The function alone."""
        return self.place.partition(" ")[2]

    @property
    def name(self) -> str:
        """`place`, and behind it `leaf` where there is one."""
        return f"{self.place}{LEAF}{self.leaf}" if self.leaf else self.place


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """A function of a library that workers were in: its share of fetching and collating.

    `function` has its module, `json.loads`; `place` is the line of the program that calls it most.
    """

    function: str
    place: str
    share: float

    @property
    def name(self) -> str:
        """The line, and behind it the function."""
        return f"{self.place}{LEAF}{self.function}"


@dataclass(frozen=True, slots=True)
class SlowSample:
    """A sample that was the slowest of its batch, and slow: how often, and how long at most.

    `index` is the one in the dataset; for an iterable dataset, the place in its worker's epoch.
    `times_typical` compares `longest_ns` with the median sample.
    """

    index: int
    times: int
    longest_ns: int
    times_typical: float


@dataclass(frozen=True, slots=True)
class WorkerTime:
    """What one worker did: batches, and the time for one in nanoseconds, mean and median."""

    worker: int
    batches: int
    batch_ns: float
    typical_ns: float
    samples: int


@dataclass(frozen=True, slots=True)
class StageReport:
    """Where a loader's time goes. Times are means in nanoseconds a batch.

    `total_ns` is what `basis` says, and the sum of what `stages` are charged and of
    `not_attributed_ns`. `fetch_ns` and `collate_ns` are work; `sample_ns` is the median over
    batches of their mean sample. `head_of_line_ns` is how long training waited while a later
    batch lay ready, `queue_ns` how long a batch lay in the queue. `read_bytes` are read by the
    workers, `disk_bytes` of them from the disk; `other_cpu_ns` is CPU time of other threads of
    the workers while they fetched. `opened_files`, `connections` and `requests` are
    for a sample, not a batch. None is not known. `callers` are methods that do little but call
    transforms, which are among `transforms` instead. `sizes` are known of some transforms, in the
    order in which they are called.
    """

    basis: Basis
    batches: int
    total_ns: float
    stages: tuple[StageShare, ...]
    not_attributed_ns: float
    transforms: tuple[TransformTime, ...]
    callers: tuple[str, ...]
    sizes: tuple[TransformSizes, ...]
    code: tuple[CodeLine, ...]
    calls: tuple[LibraryCall, ...]
    slow_samples: tuple[SlowSample, ...]
    workers: tuple[WorkerTime, ...]
    fetch_ns: float
    collate_ns: float
    sample_ns: float | None
    queue_ns: float | None
    head_of_line_ns: float | None
    pickled_bytes: float | None
    read_bytes: float | None
    disk_bytes: float | None
    major_faults: float | None
    opened_files: float | None
    connections: float | None
    requests: float | None
    cpu_ns: float | None
    run_queue_ns: float | None
    blocked_ns: float | None
    other_cpu_ns: float | None

    @property
    def work_ns(self) -> float:
        """What all stages take for a batch, one after the other."""
        return sum(share.work_ns for share in self.stages)

    def share_of(self, stage: Stage) -> StageShare | None:
        """The share of one stage; None where it did not take part."""
        return next((share for share in self.stages if share.stage == stage), None)

    def share(self, charged_ns: float | None) -> float | None:
        """The part of `total_ns` that `charged_ns` is; None where either is not known."""
        if charged_ns is None or not self.total_ns:
            return None
        return charged_ns / self.total_ns

    def charged_share(self, *stages: Stage) -> float | None:
        """The part of `total_ns` that these stages are charged in all."""
        return self.share(sum(share.charged_ns for share in self.stages if share.stage in stages))

    def transform_share(self, transform: TransformTime) -> float | None:
        """The part of `total_ns` that fetching is charged for this transform."""
        fetching = self.charged_share(Stage.FETCH)
        return fetching and min(transform.ns / max(self.fetch_ns, 1.0), 1.0) * fetching

    def code_share(self, part: float) -> float | None:
        """The part of `total_ns` for a `part` of fetching and collating."""
        fetching = self.charged_share(Stage.FETCH, Stage.COLLATE)
        return fetching and part * fetching

    @property
    def blocked_line(self) -> CodeLine | None:
        """The function that workers were blocked in most often."""
        blocked = (line for line in self.code if line.blocked_share)
        return max(blocked, key=lambda line: line.blocked_share, default=None)

    @property
    def awaits_threads(self) -> bool:
        """Whether a worker that is blocked by a futex waits for threads of its own process.

        No other worker can hold these up. The functions that it waits in say so, or the threads
        compute meanwhile.
        """
        blocked = sum(line.blocked_share for line in self.code)
        awaited = sum(call.share for call in self.calls if THREADS.fullmatch(call.function))
        return awaited >= MOSTLY * blocked or self.computing_threads > 0

    @property
    def computing_threads(self) -> float:
        """The share of the time blocked by a futex in which other threads of a worker compute.

        0 where that is so little that it may be for something else.
        """
        line, blocked_ns = self.blocked_line, self.blocked_ns or 0.0
        if line is None or FUTEX not in line.blocked_in or not blocked_ns:
            return 0.0
        share = min((self.other_cpu_ns or 0.0) / blocked_ns, 1.0)
        return share if share >= MOSTLY else 0.0

    @property
    def workers_differ(self) -> bool:
        """Whether the slowest worker typically takes over UNEVEN times as long as the fastest."""
        batch_ns = [worker.typical_ns for worker in self.workers]
        return len(batch_ns) > 1 and max(batch_ns) > UNEVEN * min(batch_ns)


class NoStages(Enum):
    """Why a run has no stages."""

    NOT_ASKED_FOR = "not asked for"
    NOT_RECORDED = "not recorded"
    ENDED = "looking into the loader ended"
    NO_BATCH = "no batch"
    LOADER = "loader not looked into"


@once_per_run
def stages_of(run: Run) -> StageReport | None:
    """Where the time of `run`'s loader goes; None where it was not looked into.

    For an alternating run, the time of the loader alone, where batches were taken back to back;
    else the waits of training.
    """
    epochs = [
        LoaderTimeline(*part, run.loader.prefetch_depth or 0) for part in run.stages.by("epoch")
    ]
    epochs = [epoch for epoch in epochs if len(epoch)]
    if not epochs:
        return None
    alone = [(epoch, epoch.prefetched(run)) for epoch in epochs]
    is_alone = any(rows.any() for _, rows in alone)
    basis = Basis.LOADER_ALONE if is_alone else Basis.WAITS
    chosen = alone if is_alone else [(epoch, epoch.steady(warmup_of(run))) for epoch in epochs]
    charges = [epoch.charged(rows, back_to_back=is_alone) for epoch, rows in chosen]
    return _report(run, basis, epochs, charges)


def why_no_stages(run: Run) -> Remark | None:
    """Why `run` has no stages; None where it has, or operators, or where it replayed."""
    if run.stages or run.operators or run.header.mode == "replay":
        return None
    message = next((event.message for event in run.events if event.kind == "stages missing"), None)
    if message is not None:
        return Remark(NoStages.ENDED, {"message": message})
    settings = run.header.settings
    if "stages" not in settings:
        return Remark(NoStages.NOT_RECORDED)
    setting = settings["stages"]
    if not (run.header.mode == "alternate" if setting is None else setting):
        return Remark(NoStages.NOT_ASKED_FOR)
    if not run.batches:
        return Remark(NoStages.NO_BATCH)
    return Remark(NoStages.LOADER, {"loader": run.header.loader.backend})


def blockage_of(stages: StageReport, workers: int, blocked: float) -> Blockage:
    """What blocks `workers` that are blocked for a share of fetching and collating."""
    line = stages.blocked_line
    blocked_in = "" if line is None else line.blocked_in
    read, from_disk = stages.read_bytes, stages.disk_bytes
    is_read = read and from_disk and from_disk >= max(FROM_DISK * read, LEAST_FROM_DISK)
    if blocked_in.startswith(DISKS) or is_read:
        return Blockage.DISK
    if FUTEX in blocked_in and (workers <= 1 or stages.awaits_threads):
        return Blockage.OTHER
    if blocked_in.startswith(LOCKS):
        return Blockage.LOCK
    # SQLite, for one, sleeps and tries again while another has its lock. Then what workers do
    # meanwhile adds up to the loader's time.
    active_ns = (1 - blocked) * (stages.fetch_ns + stages.collate_ns)
    is_serial = abs(active_ns - stages.total_ns) <= ONE_AT_A_TIME * stages.total_ns
    is_lock = blocked_in.endswith(SLEEPS) and workers > 1 and is_serial
    return Blockage.LOCK if is_lock else Blockage.OTHER


def _report(
    run: Run, basis: Basis, epochs: Sequence[LoaderTimeline], charges: Sequence[Charges]
) -> StageReport:
    batches = max(sum(charge.batches for charge in charges), 1)
    times = [epoch.times.take(epoch.steady(1)) for epoch in epochs]
    times = [part for part in times if len(part)] or [epoch.times for epoch in epochs]
    splits = split_of(times)
    fetch_ns, collate_ns = _mean(times, "fetch_ns") or 0.0, _mean(times, "collate_ns") or 0.0
    shares = []
    for stage in Stage:
        charged_ns = sum(charge.stages[stage] for charge in charges) / batches
        work_ns = _work_ns(times, stage)
        if work_ns is None:
            continue
        split = splits if stage in (Stage.FETCH, Stage.COLLATE) else None
        parts = [None] * 3 if split is None else [charged_ns * part for part in split]
        shares.append(StageShare(stage, charged_ns, work_ns, *parts))
    total_ns = sum(charge.total_ns for charge in charges) / batches
    queue_ns = [
        (epoch.received_ns - or_0(epoch.times.receive_ns) - epoch.ready_ns).clip(min=0)[
            epoch.times.received_ns != UNKNOWN
        ]
        for epoch in epochs
    ]
    cpu, run_queue, blocked = splits or (None, None, None)
    work_ns = fetch_ns + collate_ns
    transforms, callers = transforms_of(run, work_ns)
    return StageReport(
        basis=basis,
        batches=sum(charge.batches for charge in charges),
        total_ns=total_ns,
        stages=tuple(shares),
        not_attributed_ns=total_ns - sum(share.charged_ns for share in shares),
        transforms=transforms,
        callers=callers,
        sizes=sizes_of(run),
        code=tuple(_code(run)),
        calls=tuple(_calls(run)),
        slow_samples=tuple(_slow_samples(times)),
        workers=tuple(_workers(times)),
        fetch_ns=fetch_ns,
        collate_ns=collate_ns,
        sample_ns=typical_sample_ns(times),
        queue_ns=_mean_of(np.concatenate(queue_ns)),
        head_of_line_ns=_mean_of(np.concatenate([epoch.head_of_line_ns() for epoch in epochs]))
        if (run.header.loader.workers or 0) > 1
        else None,
        pickled_bytes=_mean(times, "pickled_bytes"),
        read_bytes=_mean(times, "read_bytes"),
        disk_bytes=_mean(times, "disk_bytes"),
        major_faults=_mean(times, "major_faults"),
        opened_files=_for_a_sample(times, "opened_files"),
        connections=_for_a_sample(times, "connections"),
        requests=_for_a_sample(times, "requests"),
        cpu_ns=None if cpu is None else cpu * work_ns,
        run_queue_ns=None if run_queue is None else run_queue * work_ns,
        blocked_ns=None if blocked is None else blocked * work_ns,
        other_cpu_ns=_mean(times, "other_cpu_ns"),
    )


def _work_ns(times: Sequence[Columns], stage: Stage) -> float | None:
    """What a stage takes for a batch; None where it did not take part, or is not known."""
    name = {
        Stage.INDICES: "index_ns",
        Stage.FETCH: "fetch_ns",
        Stage.COLLATE: "collate_ns",
        Stage.PICKLE: "pickle_ns",
        Stage.RECEIVE: "receive_ns",
        Stage.PIN: "pin_ns",
    }[stage]
    return _mean(times, name)


def split_of(times: Sequence[Columns]) -> tuple[float, float, float] | None:
    """The shares of fetching and collating: on a CPU, waiting for a CPU, blocked."""
    total = whole = cpu = run_queue = 0.0
    for part in times:
        known = (part.cpu_ns != UNKNOWN) & (part.run_queue_ns != UNKNOWN)
        taken_ns = or_0(part.fetch_ns) + or_0(part.collate_ns)
        whole += float(taken_ns.sum())
        total += float(taken_ns[known].sum())
        cpu += float(part.cpu_ns[known].sum())
        run_queue += float(part.run_queue_ns[known].sum())
    if not total or total < MOST_KNOWN * whole:
        return None
    cpu = min(cpu / total, 1.0)
    run_queue = min(run_queue / total, 1.0 - cpu)
    return cpu, run_queue, 1.0 - cpu - run_queue


def _code(run: Run) -> list[CodeLine]:
    """The functions that workers were seen in, the most frequent first."""
    seen: dict[tuple[str, str], _Seen] = {}
    for samples in run.code:
        for spot, count in samples.running.items():
            place, _, leaf = spot.partition(LEAF)
            tally = seen.setdefault(_function(place), _Seen(Counter(), Counter(), Counter()))
            tally.lines[place] += count
            tally.leaves[leaf] += count
        for spot, count in samples.blocked.items():
            place, _, blocked_in = spot.partition(LEAF)
            tally = seen.setdefault(_function(place), _Seen(Counter(), Counter(), Counter()))
            tally.lines[place] += count
            tally.blocked[blocked_in] += count
    total = max(sum(tally.lines.total() for tally in seen.values()), 1)
    lines = [
        CodeLine(
            place=tally.lines.most_common(1)[0][0],
            leaf=_most_common(tally.leaves),
            share=tally.lines.total() / total,
            blocked_share=tally.blocked.total() / total,
            blocked_in=_most_common(tally.blocked),
        )
        for tally in seen.values()
    ]
    return sorted(lines, key=lambda line: -line.share)


def _calls(run: Run) -> list[LibraryCall]:
    """The functions that the program's lines called, the most frequent first."""
    total = max(
        sum(sum((*samples.running.values(), *samples.blocked.values())) for samples in run.code),
        1,
    )
    seen: dict[str, Counter[str]] = {}
    for samples in run.code:
        for spot, count in samples.calls.items():
            place, _, function = spot.partition(LEAF)
            seen.setdefault(function, Counter())[place] += count
    calls = [
        LibraryCall(function, _most_common(places), places.total() / total)
        for function, places in seen.items()
    ]
    return sorted(calls, key=lambda call: -call.share)


LEAF = " > "
"""Separates a line of code from what it calls, or is blocked in."""


class _Seen(NamedTuple):
    """How often workers were seen in a function: by line, by what it called, by what blocked it."""

    lines: Counter[str]
    leaves: Counter[str]
    blocked: Counter[str]


def _function(place: str) -> tuple[str, str]:
    """The file and function of `FILE:LINE FUNCTION`."""
    where, _, name = place.partition(" ")
    return where.rpartition(":")[0], name


def _most_common(counts: Counter[str]) -> str:
    return counts.most_common(1)[0][0] if counts else ""


def _slow_samples(times: Sequence[Columns]) -> list[SlowSample]:
    """Samples over SLOW_SAMPLE times the typical one, the slowest first."""
    typical_ns = typical_sample_ns(times)
    if not typical_ns:
        return []
    slow_ns = slow_from_ns(typical_ns)
    longest: dict[int, tuple[int, int]] = {}
    for part in times:
        slow = (part.slowest_ns > slow_ns) & (part.slowest_index != UNKNOWN)
        for index, ns in zip(
            part.slowest_index[slow].tolist(), part.slowest_ns[slow].tolist(), strict=True
        ):
            count, longest_ns = longest.get(index, (0, 0))
            longest[index] = count + 1, max(longest_ns, ns)
    samples = [
        SlowSample(index, count, longest_ns, longest_ns / typical_ns)
        for index, (count, longest_ns) in longest.items()
    ]
    return sorted(samples, key=lambda sample: -sample.longest_ns)[:MOST_SAMPLES]


def slow_from_ns(typical_ns: float) -> float:
    """The time above which a sample is slow, given the typical time."""
    return max(SLOW_SAMPLE * typical_ns, LEAST_SLOW_NS)


def typical_sample_ns(times: Sequence[Columns]) -> float | None:
    """The median over batches of their mean sample, without its slowest where there are more."""
    means = []
    for part in times:
        known = (part.samples > 0) & (part.fetch_ns != UNKNOWN)
        samples, fetch_ns = part.samples[known], part.fetch_ns[known]
        slowest = part.slowest_ns[known]
        without = (samples > 1) & (slowest != UNKNOWN)
        rest = (fetch_ns - np.where(without, slowest, 0)) / (samples - without)
        means.append(rest)
    joined = np.concatenate(means) if means else np.empty(0)
    return float(np.median(joined)) if len(joined) else None


def _workers(times: Sequence[Columns]) -> list[WorkerTime]:
    worker, samples = (
        np.concatenate([getattr(part, name) for part in times]) for name in ("worker", "samples")
    )
    batch_ns = np.concatenate([or_0(part.fetch_ns) + or_0(part.collate_ns) for part in times])
    return [
        WorkerTime(
            number,
            int((worker == number).sum()),
            float(batch_ns[worker == number].mean()),
            float(np.median(batch_ns[worker == number])),
            int(samples[worker == number].clip(min=0).sum()),
        )
        for number in np.unique(worker[worker != UNKNOWN]).tolist()
    ]


def _mean(times: Sequence[Columns], name: str) -> float | None:
    return _mean_of(np.concatenate([getattr(part, name) for part in times]))


def _for_a_sample(times: Sequence[Columns], name: str) -> float | None:
    counts, samples = (
        np.concatenate([getattr(part, column) for part in times]) for column in (name, "samples")
    )
    known = (counts != UNKNOWN) & (samples > 0)
    return float(counts[known].sum() / samples[known].sum()) if known.any() else None


def _mean_of(column: Column) -> float | None:
    known = column[column != UNKNOWN]
    return float(known.mean()) if len(known) else None
