"""Where the time of loading a batch goes: by stage, transform, line of code, sample and worker.

A batch is made by one worker, in order: fetch, collate, pickle; then the training process receives
and pins it. What the worker did before was for batches that training had before, so that it is in
no later wait. Without workers the training process does it all, and pickles nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import numpy as np

from loadeval.data.columns import UNKNOWN, Column, Columns, mean_known
from loadeval.data.run import Run, keys_of
from loadeval.estimate.steady import Mask, once_per_run, warmup_of
from loadeval.inside.code import CodeLine, LibraryCall, code_lines, library_calls, looks

Stage = Literal["indices", "fetch", "collate", "pickle", "receive", "pin"]
STAGES: dict[Stage, str] = {
    "indices": "index_ns",
    "fetch": "fetch_ns",
    "collate": "collate_ns",
    "pickle": "pickle_ns",
    "receive": "receive_ns",
    "pin": "pin_ns",
}
"""What is done for a batch, in order, and the column that tells how long it takes."""

MOST_SAMPLES = 10
"""The most slow samples that are listed."""
SLOW_SAMPLE = 3.0
"""A sample is slow if it takes more than this many times the typical one."""
LEAST_SLOW_NS = 100_000
"""No sample below this is slow, whatever is typical."""
MOST_KNOWN = 0.5
"""The kernel's figures count only if they are known for this share of the time."""
OWN_CODE = (".__call__", ".forward")
"""So end the names of transforms that call other transforms: that is their own code."""
LEAST_OWN_CODE = 0.05
"""Own code that takes a smaller share of fetching and collating only calls transforms."""
OF_A_BATCH = ("pickled_bytes", "read_bytes", "disk_bytes", "other_cpu_ns")
OF_A_SAMPLE = ("connections", "requests")


@dataclass(frozen=True, slots=True)
class StageShare:
    """One stage, in nanoseconds a batch.

    `charged_ns` is its part of the time that is divided up: how long the loader was waited for
    while it did this for the batch that came next. `work_ns` is what it takes whether or not
    anyone waits.
    """

    stage: Stage
    charged_ns: float
    work_ns: float


@dataclass(frozen=True, slots=True)
class TransformTime:
    """One transform, or function of the dataset: its calls and its own time for a batch.

    `share` is its part of fetching and collating a batch. One that calls other transforms has the
    name of the method that does, `Compose.__call__`, and the time of that method's own code.
    """

    name: str
    calls: float
    ns: float
    share: float

    @property
    def function(self) -> str:
        """Its name, without the number that tells it from others of that name."""
        return self.name.partition(" (")[0]

    @property
    def calls_others(self) -> bool:
        """Whether it calls other transforms."""
        return self.function.endswith(OWN_CODE)


@dataclass(frozen=True, slots=True)
class TransformSizes:
    """The numbers that a sample has before and after a transform: pixels, times their channels."""

    name: str
    before: float
    after: float


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


@dataclass(frozen=True, kw_only=True)
class Stages:
    """Where a loader's time goes. Times are means in nanoseconds a batch; None is not known.

    `total_ns` is the time that is divided up: that of the loader alone, or, as `basis` says, the
    waits of training. It is the sum of what `stages` are charged and of `not_attributed_ns`.
    `fetch_ns` and `collate_ns` are work, of which `cpu_ns`, `run_queue_ns` and `blocked_ns` are the
    parts; `sample_ns` is the median over batches of their mean sample. `head_of_line_ns` is how
    long training waited while a later batch lay ready, `queue_ns` how long a batch lay in the
    queue. `read_bytes` are read by the workers, `disk_bytes` of them from the disk; `other_cpu_ns`
    is CPU time of other threads of the workers while they fetched. `connections` and `requests` are
    for a sample, not a batch. `callers` are methods that do little but call transforms, which are
    among `transforms` instead. `sizes` are known of some transforms, in the order of their calls.
    """

    basis: Literal["loader alone", "waits"]
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
    connections: float | None
    requests: float | None
    cpu_ns: float | None
    run_queue_ns: float | None
    blocked_ns: float | None
    other_cpu_ns: float | None

    def share_of(self, stage: Stage) -> StageShare | None:
        """The share of one stage; None where it did not take part."""
        return next((share for share in self.stages if share.stage == stage), None)

    def share(self, charged_ns: float) -> float | None:
        """The part of `total_ns` that `charged_ns` is; None where nothing was waited for."""
        return charged_ns / self.total_ns if self.total_ns else None

    @property
    def lines(self) -> list[CodeLine]:
        """The functions that workers were seen in, the most often first; none that call transforms.

        Until Python 3.10 a method has no name of its class.
        """
        callers = {*self.callers, *(caller.rpartition(".")[2] for caller in self.callers)}
        return [line for line in self.code if line.function not in callers]

    @property
    def line(self) -> CodeLine | None:
        """The function that workers were seen in most often."""
        return next(iter(self.lines), None)

    @property
    def blocked_line(self) -> CodeLine | None:
        """The function that workers were blocked in most often."""
        blocked = (line for line in self.code if line.blocked_share)
        return max(blocked, key=lambda line: line.blocked_share, default=None)


@once_per_run
def loaded(run: Run) -> Columns:
    """The batches that the loader was seen to load, of all epochs: `Run.stages` and more columns.

    `fetched_ns` and `collated_ns` are when each was; `ready_ns` when it could be received: pickled,
    or collated where nothing is pickled; `arrived_ns` when the training process had it, or, if that
    is unknown, when it was ready; `head_of_line_ns` how long it was waited for while a later one
    lay ready. Batches of which it is not known when they were asked for, fetched and delivered are
    left out.
    """
    times = run.stages
    known = (times.requested_ns != UNKNOWN) & (times.delivered_ns != UNKNOWN)
    times = times.take(known & (times.fetch_start_ns != UNKNOWN))
    # UNKNOWN is under 0, and before any moment.
    fetched_ns = times.fetch_start_ns + times.fetch_ns.clip(0)
    collated_ns = fetched_ns + times.collate_ns.clip(0)
    ready_ns = np.maximum(times.pickle_start_ns + times.pickle_ns.clip(0), collated_ns)
    later_ns = np.full(len(times), np.iinfo(np.int64).max)
    for ahead in range(1, min(max(run.loader.prefetch_depth or 0, 1), len(times) - 1) + 1):
        is_same = times.epoch[ahead:] == times.epoch[:-ahead]
        earlier_ns = np.minimum(later_ns[:-ahead], ready_ns[ahead:])
        later_ns[:-ahead] = np.where(is_same, earlier_ns, later_ns[:-ahead])
    waited_until_ns = np.clip(ready_ns, times.requested_ns, times.delivered_ns)
    return times.replace(
        fetched_ns=fetched_ns,
        collated_ns=collated_ns,
        ready_ns=ready_ns,
        arrived_ns=np.maximum(times.received_ns, ready_ns),
        head_of_line_ns=(waited_until_ns - np.maximum(times.requested_ns, later_ns)).clip(0),
    )


@once_per_run
def stages(run: Run) -> Stages | None:
    """Where the time of `run`'s loader goes; None where it was not looked into.

    For an alternating run, the time of the loader alone, where batches were taken back to back;
    else the waits of training.
    """
    batches = loaded(run)
    if not len(batches):
        return None
    alone = _taken_back_to_back(run, batches)
    is_alone = bool(alone.any())
    rows = alone if is_alone else batches.batch >= max(warmup_of(run), 1)
    count = max(int(rows.sum()), 1)
    charged_ns, total_ns = _charged(batches, rows, back_to_back=is_alone)
    work = batches.take(batches.batch >= 1) if (batches.batch >= 1).any() else batches

    def for_a_sample(name: str) -> float | None:
        known = (work[name] != UNKNOWN) & (work.samples > 0)
        return float(work[name][known].sum() / work.samples[known].sum()) if known.any() else None

    shares = [
        StageShare(stage, charged_ns[stage] / count, work_ns)
        for stage, column in STAGES.items()
        if (work_ns := mean_known(work[column])) is not None
    ]
    fetch_ns, collate_ns = mean_known(work.fetch_ns) or 0.0, mean_known(work.collate_ns) or 0.0
    cpu_ns, run_queue_ns, blocked_ns = (
        part and (fetch_ns + collate_ns) * part for part in split_of(work) or (None, None, None)
    )
    seen = looks(run, fetch_ns, collate_ns)
    lay_ns = batches.arrived_ns - batches.receive_ns.clip(0) - batches.ready_ns
    sample_ns = typical_sample_ns(work)
    transforms, callers = _transforms(run, work, fetch_ns + collate_ns)
    return Stages(
        basis="loader alone" if is_alone else "waits",
        batches=int(rows.sum()),
        total_ns=total_ns / count,
        stages=tuple(shares),
        not_attributed_ns=round(total_ns / count - sum(each.charged_ns for each in shares), 3)
        + 0.0,
        transforms=transforms,
        callers=callers,
        sizes=tuple(
            TransformSizes(name, *sizes)
            for name, sizes in run.sizes.items()
            if not name.partition(" (")[0].endswith(OWN_CODE)
        ),
        code=code_lines(seen),
        calls=library_calls(seen),
        slow_samples=_slow_samples(run, work, sample_ns),
        workers=_workers(work),
        fetch_ns=fetch_ns,
        collate_ns=collate_ns,
        sample_ns=sample_ns,
        queue_ns=mean_known(lay_ns.clip(0)[batches.received_ns != UNKNOWN]),
        head_of_line_ns=(
            mean_known(batches.head_of_line_ns) if (run.loader.workers or 0) > 1 else None
        ),
        cpu_ns=cpu_ns,
        run_queue_ns=run_queue_ns,
        blocked_ns=blocked_ns,
        **{name: mean_known(work[name]) for name in OF_A_BATCH},
        **{name: for_a_sample(name) for name in OF_A_SAMPLE},
    )


def why_no_stages(run: Run) -> str:
    """Why `run` has no stages; "" where it has, or operators, or where it replayed."""
    if len(run.stages) or run.operators or run.header.mode == "replay":
        return ""
    said = [event.message for event in run.events if event.kind == "stages missing"]
    if said:
        return said[0]
    asked = run.header.settings.get("stages")
    if not (run.header.mode == "alternate" if asked is None else asked):
        how = 'measure with stages=True or mode="alternate"'
        return f"this run was not asked to look; to look inside, {how}"
    if not run.batches:
        return "no batch was served"
    loader = run.loader.backend.rpartition(".")[2]
    return f"loadeval cannot look into {loader}; the page on adapters says how to"


MOMENT_NS = 1_000_000
"""By how much our own work between batches taken back to back may differ; a block follows them."""


def _taken_back_to_back(run: Run, batches: Columns) -> Mask:
    """Which batches were taken back to back, and timed: see Prefetch."""
    rows = np.zeros(len(batches), dtype=np.bool_)
    for prefetch in run.prefetches:
        if prefetch.began_ns is None or not prefetch.timed:
            continue
        first, last = np.searchsorted(batches.epoch, [prefetch.epoch, prefetch.epoch + 1])
        requested_ns, batch = batches.requested_ns[first:last], batches.batch[first:last]
        untimed = prefetch.batches - prefetch.timed
        between_ns = (prefetch.elapsed_ns - sum(prefetch.waits_ns[untimed:])) / prefetch.timed
        untimed_ns = sum(prefetch.waits_ns[:untimed]) + untimed * between_ns + MOMENT_NS
        until_ns = prefetch.began_ns + untimed_ns + prefetch.elapsed_ns
        taken = (requested_ns >= prefetch.began_ns) & (requested_ns < until_ns)
        if taken.any():  # by their numbers, for rows may be missing
            rows[first:last] |= taken & (batch > batch[taken].max() - prefetch.timed)
    return rows


def _charged(
    batches: Columns, rows: Mask, *, back_to_back: bool
) -> tuple[dict[Stage, float], float]:
    """How long each stage was waited for in the requests of `rows`, and the sum of the waits.

    `back_to_back` adds what lies between them and the batch before, in which the workers went on,
    and training did not.
    """
    in_worker = batches.worker != UNKNOWN
    begin_ns, end_ns = batches.requested_ns.copy(), batches.delivered_ns
    if back_to_back:
        follows = in_worker[1:] & (np.diff(batches.batch) == 1) & (np.diff(batches.epoch) == 0)
        begin_ns[1:][follows] = end_ns[:-1][follows]
    fetch, fetched, collated = batches.fetch_start_ns, batches.fetched_ns, batches.collated_ns
    ready, arrived = batches.ready_ns, batches.arrived_ns
    index_ns = batches.index_ns.clip(0)
    pickles = np.clip(batches.pickle_start_ns, collated, ready)  # UNKNOWN is before any moment
    pinned = arrived + batches.pin_ns.clip(0)
    handed_over = np.where(in_worker, np.maximum(end_ns - index_ns, pinned), pinned)
    # What was done for each batch, one after the other.
    done: list[tuple[Stage, Column, Column]] = [
        ("indices", np.where(in_worker, fetch, fetch - index_ns), fetch),
        ("fetch", fetch, fetched),
        ("collate", fetched, collated),
        # Its queue's thread waits for Python's lock, with which the worker fetches the next batch.
        ("fetch", collated, pickles),
        ("pickle", pickles, ready),
        ("receive", ready, arrived),
        ("pin", arrived, pinned),
        # To hand it over the training process needs a CPU, and Python's lock.
        ("receive", pinned, handed_over),
        ("indices", handed_over, np.where(in_worker, end_ns, handed_over)),
    ]
    begin_ns, end_ns = begin_ns[rows], end_ns[rows]
    charged_ns: dict[Stage, float] = dict.fromkeys(STAGES, 0.0)
    for stage, start, stop in done:
        overlap_ns = np.minimum(stop[rows], end_ns) - np.maximum(start[rows], begin_ns)
        charged_ns[stage] += float(overlap_ns.clip(0).sum())
    return charged_ns, float((end_ns - begin_ns).sum())


def split_of(batches: Columns) -> tuple[float, float, float] | None:
    """The shares of fetching and collating: on a CPU, waiting for a CPU, blocked."""
    known = (batches.cpu_ns != UNKNOWN) & (batches.run_queue_ns != UNKNOWN)
    work_ns = batches.fetch_ns.clip(0) + batches.collate_ns.clip(0)
    known_ns = float(work_ns[known].sum())
    if not known_ns or known_ns < MOST_KNOWN * float(work_ns.sum()):
        return None
    # The kernel counts in ticks, which may be more than the time that passed.
    cpu = min(float(batches.cpu_ns[known].sum()) / known_ns, 1.0)
    run_queue = min(float(batches.run_queue_ns[known].sum()) / known_ns, 1.0 - cpu)
    return cpu, run_queue, 1.0 - cpu - run_queue


def _transforms(
    run: Run, work: Columns, work_ns: float
) -> tuple[tuple[TransformTime, ...], tuple[str, ...]]:
    """The transforms, the longest first, and the methods that do little but call them."""
    transforms, batches = [], keys_of(work)
    for name, table in run.transforms.items():
        is_of_work = np.isin(keys_of(table), batches)
        own_ns, calls = table.ns[is_of_work], table.calls[is_of_work]
        calls = calls[~np.isnan(calls)]
        if len(own_ns) and calls.any():
            ns = float(own_ns.mean())
            share = ns / work_ns if work_ns else 0.0
            transforms.append(TransformTime(name, float(calls.mean()), ns, share))
    transforms.sort(key=lambda transform: -transform.ns)
    shown = [each for each in transforms if not each.calls_others or each.share >= LEAST_OWN_CODE]
    functions = {transform.function for transform in shown}
    callers = dict.fromkeys(each.function for each in transforms if each.function not in functions)
    return tuple(shown), tuple(callers)


def first_batches_ns(run: Run) -> dict[tuple[int, int], float]:
    """How much longer a worker takes for its first batch of an epoch than for others, in ns.

    By epoch and worker. Of a stream it counts from when the worker could begin, had started or was
    asked for the epoch; with a sampler it may have waited for indices until it began. Empty where
    no other batches were seen.
    """
    times = run.stages.take((run.stages.fetch_ns >= 0) & (run.stages.fetch_start_ns != UNKNOWN))
    is_first = times.batch < max(run.loader.workers or 0, 1)
    if is_first.all():
        return {}
    usual_ns = float(np.median(times.fetch_ns[~is_first]))
    firsts_ns = dict[tuple[int, int], float]()
    ready_ns = {
        (each.epoch, each.worker): each.ready_ns + each.init_ns for each in run.worker_starts
    }
    for epoch, own in times.take(is_first).by("epoch"):
        for worker, began_ns, took_ns in zip(
            own.worker.tolist(), own.fetch_start_ns.tolist(), own.fetch_ns.tolist(), strict=True
        ):
            asked_ns = began_ns if worker == UNKNOWN else min(int(own.requested_ns[0]), began_ns)
            could_ns = began_ns if run.loader.sampler else ready_ns.get((epoch, worker), asked_ns)
            longer_ns = max(began_ns + took_ns - could_ns - usual_ns, 0.0)
            firsts_ns.setdefault((epoch, worker), longer_ns)
    return firsts_ns


def _slow_samples(run: Run, batches: Columns, typical_ns: float | None) -> tuple[SlowSample, ...]:
    """Samples over SLOW_SAMPLE times the typical one, the slowest first."""
    if not typical_ns:
        return ()
    is_slow = slow_rows(run, batches, typical_ns) & (batches.slowest_index != UNKNOWN)
    found = []
    for index, seen in batches.take(is_slow).by("slowest_index"):
        longest_ns = int(seen.slowest_ns.max())
        found.append(SlowSample(index, len(seen), longest_ns, longest_ns / typical_ns))
    return tuple(sorted(found, key=lambda sample: -sample.longest_ns)[:MOST_SAMPLES])


def slow_rows(run: Run, batches: Columns, typical_ns: float) -> Mask:
    """Which batches have a slow sample, given the typical time of one.

    A sample that was slow once is not, where its worker waited for a CPU so long, or where another
    epoch was looked at whole.
    """
    least_ns = max(SLOW_SAMPLE * typical_ns, LEAST_SLOW_NS)
    is_slow = np.asarray(batches.slowest_ns > least_ns)
    indices, times = np.unique(batches.slowest_index[is_slow], return_counts=True)
    once = is_slow & np.isin(batches.slowest_index, indices[times == 1])
    is_slow &= ~(once & (batches.slowest_ns - batches.run_queue_ns.clip(0) <= least_ns))
    epochs, counts = np.unique(batches.epoch, return_counts=True)
    # The first batches of an epoch may be left out.
    length = run.loader.length or len(batches) + (run.loader.workers or 1) + 1
    whole = epochs[counts + (run.loader.workers or 1) >= length]
    is_another_whole = len(whole) > np.isin(batches.epoch, whole)
    return is_slow & ~(once & is_another_whole)


def typical_sample_ns(batches: Columns) -> float | None:
    """The median over batches of their mean sample, without its slowest where there are more."""
    known = (batches.samples > 0) & (batches.fetch_ns != UNKNOWN)
    samples, slowest_ns = batches.samples[known], batches.slowest_ns[known]
    is_left_out = (samples > 1) & (slowest_ns != UNKNOWN)
    rest_ns = batches.fetch_ns[known] - np.where(is_left_out, slowest_ns, 0)
    return float(np.median(rest_ns / (samples - is_left_out))) if len(rest_ns) else None


def _workers(batches: Columns) -> tuple[WorkerTime, ...]:
    times = []
    for number, own in batches.take(batches.worker != UNKNOWN).by("worker"):
        work_ns = own.fetch_ns.clip(0) + own.collate_ns.clip(0)
        mean_ns, typical_ns = float(work_ns.mean()), float(np.median(work_ns))
        times.append(WorkerTime(number, len(own), mean_ns, typical_ns))
    return tuple(times)


# What blocks workers

FROM_DISK = 0.3
"""The disk blocks workers if at least this share of the bytes is read from it."""
LEAST_FROM_DISK = 16_384
"""The least bytes of a batch from the disk: less may be Python's own files."""
FUTEX, SLEEPS = "futex", "nanosleep"
LOCKS = (FUTEX, "flock", "locks_", "do_lock_file", "fcntl_setlk", "sem_", "semaphore")
DISKS = ("folio_wait", "io_schedule", "bit_wait_io", "wait_on_page", "filemap", "blk", "dio_")
"""How Linux names the places where a process waits for a lock, or for a disk."""
ONE_AT_A_TIME = 0.35
"""If one worker works at a time, all work differs from the loader's time by at most this share."""
PIPE = re.compile(r"(Connection|BaseProxy|_ForkingPickler)\.")
"""Functions of multiprocessing's that ask another process, such as a Manager's."""
THREADS = re.compile(r"(concurrent\.futures|queue|threading|multiprocessing\.pool|fsspec)\..+")
"""Functions in which a thread waits for others of its own process, by their full names."""
MOSTLY = 0.5
"""A worker waits for its own threads where it is seen in these, or they compute, for so long."""


def blockage(
    stages: Stages, workers: int, blocked: float
) -> Literal["lock", "disk", "server", "other"]:
    """What blocks `workers` that are blocked for a share of fetching and collating.

    A server is one process that all of them ask by a pipe of multiprocessing. Other is storage, the
    network, another process, or threads of their own.
    """
    line = stages.blocked_line
    blocked_in = "" if line is None else line.blocked_in
    read, from_disk = stages.read_bytes, stages.disk_bytes
    is_read = read and from_disk and from_disk >= max(FROM_DISK * read, LEAST_FROM_DISK)
    if blocked_in.startswith(DISKS) or is_read:
        return "disk"
    if FUTEX in blocked_in and (workers <= 1 or awaits_threads(stages)):
        return "other"
    if blocked_in.startswith(LOCKS):
        return "lock"
    if line is not None and asks_by_pipe(stages, line):
        return "server"
    # SQLite, for one, sleeps and tries again while another has its lock. Then what workers do
    # meanwhile adds up to the loader's time.
    active_ns = (1 - blocked) * (stages.fetch_ns + stages.collate_ns)
    is_serial = abs(active_ns - stages.total_ns) <= ONE_AT_A_TIME * stages.total_ns
    return "lock" if blocked_in.endswith(SLEEPS) and workers > 1 and is_serial else "other"


def asks_by_pipe(stages: Stages, line: CodeLine) -> bool:
    """Whether a line asks another process by a pipe; not by one that the program itself reads.

    Each worker may have that with a process of its own.
    """
    called = {call.function for call in stages.calls if call.place == line.place}
    own = any(function.startswith("multiprocessing.connection.") for function in called)
    return not own and PIPE.match(line.leaf) is not None


def awaits_threads(stages: Stages) -> bool:
    """Whether a worker that is blocked by a futex waits for threads of its own process.

    No other worker can hold these up. The functions that it waits in say so, or the threads compute
    meanwhile.
    """
    blocked = sum(line.blocked_share for line in stages.code)
    awaited = sum(call.share for call in stages.calls if THREADS.fullmatch(call.function))
    return awaited >= MOSTLY * blocked or computing_threads(stages) > 0


def computing_threads(stages: Stages) -> float:
    """The share of the time blocked by a futex in which other threads of a worker compute.

    0 where that is so little that it may be for something else.
    """
    line, blocked_ns = stages.blocked_line, stages.blocked_ns or 0.0
    if line is None or FUTEX not in line.blocked_in or not blocked_ns:
        return 0.0
    share = min((stages.other_cpu_ns or 0.0) / blocked_ns, 1.0)
    return share if share >= MOSTLY else 0.0


# Batch by batch

MOST_BATCHES = 200
"""Batches of a stretch: more are narrower than a pixel, and slow to draw."""


def spans(batches: Columns) -> dict[str, tuple[Column, Column]]:
    """When each stage of each batch began, and how long it took; UNKNOWN where either is.

    Indices are drawn before the batch is fetched where the training process does that itself, and
    for a later batch, before this one is handed over, where workers do.
    """
    indexed_ns = np.where(batches.worker == UNKNOWN, batches.fetch_start_ns, batches.delivered_ns)
    moments = {
        "indices": (indexed_ns, batches.index_ns, -batches.index_ns),
        "fetch": (batches.fetch_start_ns, batches.fetch_ns, 0),
        "collate": (batches.fetch_start_ns, batches.collate_ns, batches.fetch_ns.clip(0)),
        "pickle": (batches.pickle_start_ns, batches.pickle_ns, 0),
        "receive": (batches.received_ns, batches.receive_ns, -batches.receive_ns),
        "pin": (batches.received_ns, batches.pin_ns, 0),
    }
    began = {}
    for stage, (moment_ns, took_ns, after_ns) in moments.items():
        known = (moment_ns != UNKNOWN) & (took_ns != UNKNOWN)
        begin_ns = np.where(known, moment_ns + after_ns, UNKNOWN)
        began[stage] = begin_ns, np.where(known, took_ns, UNKNOWN)
    return began


@dataclass(frozen=True, eq=False)
class Lanes:
    """Consecutive batches of one epoch, which `says` tells; times are since the run's start.

    `batches` are as in `loaded`, and `steps` has `start_ns` and `end_ns` of the training steps of
    that time.
    """

    says: str
    batches: Columns
    steps: Columns


def lanes(run: Run) -> Lanes | None:
    """The middle of the last of the longest epochs; None where the loader was not looked into."""
    batches = loaded(run)
    if not len(batches):
        return None
    epoch, shown = max(reversed(batches.by("epoch")), key=lambda each: len(each[1]))
    first = max((len(shown) - MOST_BATCHES) // 2, 0)
    stretch = shown.take(slice(first, first + MOST_BATCHES))
    numbers = f"{stretch.batch[0]} to {stretch.batch[-1]}, {len(stretch)} of them drawn"
    steps, start_ns = run.steps, run.steps.request_ns + run.steps.wait_ns
    within = (start_ns >= stretch.requested_ns[0]) & (start_ns <= stretch.delivered_ns[-1])
    rows = within & (steps.request_ns != UNKNOWN) & (steps.step_ns != UNKNOWN)
    return Lanes(
        says=f"Epoch {epoch}, batches {numbers}",
        batches=stretch,
        steps=Columns({"start_ns": start_ns[rows], "end_ns": (start_ns + steps.step_ns)[rows]}),
    )
