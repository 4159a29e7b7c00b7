"""What loads for a training that runs already: by stage, by line, and by the kernel's figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from loadeval.analysis.attach.marks import Activity, is_library, place_of, plain_name, read_stack
from loadeval.analysis.attach.shares import share_of
from loadeval.analysis.estimate.stats import Estimate
from loadeval.analysis.inside.stages import DISKS, FROM_DISK, LEAST_FROM_DISK, LOCKS, Blockage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loadeval.analysis.attach.marks import Marks, Reading, Sources
    from loadeval.probes.observing import ObservedProcess, ProcessGrowth
    from loadeval.probes.stacks import Frame, ProcessSamples, ThreadSamples

STAGES = (Activity.ASKS, Activity.FETCHES, Activity.COLLATES, Activity.SENDS, Activity.LOADS)
"""LOADS stands for all that is of no other stage."""
MOST_LINES = 5
LEAST_SHARE = 0.02
"""A line that was seen for a smaller share is left out."""
ASKING = ("poll", "pipe")
"""The kernel's functions in which a worker waits for what to load next have these in their name."""
LEAST_BLOCKED = 0.2
"""A place is named where workers were blocked at this share of the moments or more."""
SLEEPING = ("S", "D")


@dataclass(frozen=True, slots=True)
class LineShare:
    """A line of the program, FOLDER/FILE:LINE FUNCTION, and the share of the moments there.

    `leaf` is the function of a library that it was mostly in, or "".
    """

    place: str
    leaf: str
    share: Estimate

    @property
    def function(self) -> str:
        """The function alone."""
        return self.place.partition(" ")[2]


@dataclass(frozen=True, slots=True)
class BlockedIn:
    """Where workers were mostly blocked: the kernel's function, the system call, what it is of.

    `share` is that of the moments in which a worker was asked.
    """

    share: float
    kernel: str
    call: str | None
    path: str | None


@dataclass(frozen=True, slots=True)
class LoadingShares:
    """What `count` processes or threads that load do, and in which lines.

    `stages` are shares of their time, in which LOADS is what is of no other one. `lines` are shares
    of the time in which they neither wait for what to load nor hand it over.
    """

    count: int
    stages: Mapping[Activity, Estimate]
    lines: tuple[LineShare, ...]

    @property
    def line(self) -> LineShare | None:
        """The line in which most of the loading is."""
        return next(iter(self.lines), None)

    @property
    def asks(self) -> float | None:
        """The share of the time in which they wait for what to load; None where it is not known."""
        share = self.stages.get(Activity.ASKS)
        return None if share is None else share.value


@dataclass(frozen=True, slots=True)
class WorkersReport:
    """What the worker processes do, as means of them; None is not known.

    There were `count` at a time, some of which are in `loading`. `run_queue` and `blocked` are
    shares of the time in which they do not wait for what to load next: runnable without a CPU, and
    neither on a CPU nor runnable. `cpu_cores` is that of each, and what they read is of all.
    """

    count: int
    loading: LoadingShares
    cpu_cores: float | None
    run_queue: float | None
    blocked: float | None
    blocked_in: BlockedIn | None
    read_bytes_per_s: float | None
    disk_bytes_per_s: float | None

    @property
    def blockage(self) -> Blockage:
        """What blocks the workers, of what the kernel tells."""
        kernel = "" if self.blocked_in is None else self.blocked_in.kernel
        read, disk = self.read_bytes_per_s or 0.0, self.disk_bytes_per_s or 0.0
        if kernel.startswith(DISKS) or disk >= max(FROM_DISK * read, LEAST_FROM_DISK):
            return Blockage.DISK
        return Blockage.LOCK if kernel.startswith(LOCKS) else Blockage.OTHER


def workers_report(
    workers: Sequence[ObservedProcess], at_once: int, marks: Marks, sources: Sources
) -> WorkersReport | None:
    """What they do, `at_once` of them at a time; None where there are none."""
    if not workers:
        return None
    threads = [
        thread
        for worker in workers
        for samples in worker.samples
        if (thread := loading_thread(samples, marks)) is not None
    ]
    recorded = sum(bool(worker.samples) for worker in workers)
    loading = loading_of(min(recorded, at_once), threads, marks, sources)
    growths = [worker.growth for worker in workers if worker.growth is not None]
    cpu, queued = _mean_rate(growths, "cpu_ns"), _mean_rate(growths, "run_queue_ns")
    return WorkersReport(
        count=at_once,
        loading=loading,
        cpu_cores=cpu,
        run_queue=_of_work(queued, loading.asks),
        blocked=_blocked(cpu, queued, loading.asks),
        blocked_in=_blocked_in(workers, loading.asks or 0.0),
        read_bytes_per_s=_rate_of_all(growths, "read_bytes", at_once),
        disk_bytes_per_s=_rate_of_all(growths, "disk_read_bytes", at_once),
    )


def loading_of(
    count: int, threads: Sequence[ThreadSamples], marks: Marks, sources: Sources
) -> LoadingShares:
    """What these threads, one or more of each of `count` processes or threads, do."""
    parts = [[read_stack(stack, marks, sources) for stack in thread.stacks] for thread in threads]
    stages = {
        stage: share
        for stage in STAGES
        if (share := share_of([[reading.stage == stage for reading in part] for part in parts]))
    }
    idle = (Activity.ASKS, Activity.SENDS)
    loading = [[reading for reading in part if reading.stage not in idle] for part in parts]
    return LoadingShares(count, stages, lines_of(loading, line_inside))


def threads_loading(
    process: ObservedProcess, marks: Marks, sources: Sources
) -> LoadingShares | None:
    """What the threads of a training process do that load; None where it has none."""
    threads = [
        thread
        for samples in process.samples
        for thread in samples.threads
        if thread.tid != process.pid
        and any(read_stack(stack, marks, {}).loads_for_others for stack in thread.stacks)
    ]
    count = len({thread.tid for thread in threads})
    return loading_of(count, threads, marks, sources) if threads else None


def loading_thread(samples: ProcessSamples, marks: Marks) -> ThreadSamples | None:
    """The thread of a worker that loads: its main one, or another that is seen to."""
    threads = sorted(samples.threads, key=lambda thread: thread.tid != samples.pid)
    seen = (
        thread
        for thread in threads
        if any(read_stack(stack, marks, {}).loads_for_others for stack in thread.stacks)
    )
    return next(seen, None)


def lines_of(
    parts: Sequence[Sequence[Reading]],
    line_of: Callable[[Reading], tuple[Frame, Frame | None] | None],
) -> tuple[LineShare, ...]:
    """The lines in which these were seen, by function, those of the greatest share first.

    `line_of` has a line and the function of a library that it called, or None. The line of a
    function is that in which it was seen most.
    """
    functions: dict[tuple[str, str], Counter[tuple[str, str]]] = {}
    keys: list[list[tuple[str, str] | None]] = []
    for part in parts:
        keys.append([])
        for reading in part:
            line = line_of(reading)
            key = None
            if line is not None:
                frame, leaf = line
                key = (frame.file, plain_name(frame))
                leaf_name = "" if leaf is None else leaf.function
                functions.setdefault(key, Counter())[place_of(frame), leaf_name] += 1
            keys[-1].append(key)
    lines = []
    for key, places in functions.items():
        share = share_of([[other == key for other in part] for part in keys])
        if share is not None and share.value >= LEAST_SHARE:
            place, leaf_name = places.most_common(1)[0][0]
            lines.append(LineShare(place, leaf_name, share))
    return tuple(sorted(lines, key=lambda line: -line.share.value)[:MOST_LINES])


def line_inside(reading: Reading) -> tuple[Frame, Frame | None] | None:
    """The innermost line of the program that loads; the outermost of a library where none is."""
    if not reading.inside:
        return None
    for index, frame in enumerate(reading.inside):
        if not is_library(frame):
            return frame, reading.inside[index - 1] if index else None
    return reading.inside[-1], reading.inside[0] if len(reading.inside) > 1 else None


def _mean_rate(growths: Sequence[ProcessGrowth], counter: str) -> float | None:
    """The mean growth of a counter, by the time that it was counted."""
    rates = [
        value / growth.elapsed_ns
        for growth in growths
        if growth.elapsed_ns and (value := getattr(growth, counter)) is not None
    ]
    return fmean(rates) if rates else None


def _rate_of_all(growths: Sequence[ProcessGrowth], counter: str, count: int) -> float | None:
    """The growth of a counter in a second, of `count` processes together."""
    rate = _mean_rate(growths, counter)
    return None if rate is None else 1e9 * count * rate


def _of_work(share: float | None, asks: float | None) -> float | None:
    """`share` of all time as one of the time in which workers do not wait for what to load."""
    if share is None or asks is None or asks >= 1:
        return None
    return min(share / (1 - asks), 1.0)


def _blocked(cpu: float | None, run_queue: float | None, asks: float | None) -> float | None:
    if cpu is None or run_queue is None or asks is None:
        return None
    return _of_work(max(1 - asks - cpu - run_queue, 0.0), asks)


def _blocked_in(workers: Sequence[ObservedProcess], asks: float) -> BlockedIn | None:
    """Where workers sleep, besides waiting for what to load next, for a share `asks` of the time.

    Both may be in the same place: what is beyond that share is of loading.
    """
    moments = [state for worker in workers for state in worker.moments]
    asleep = [state for state in moments if state.state in SLEEPING]
    counts = Counter(state.wchan or "" for state in asleep)
    idle = asks * len(moments)
    for name in sorted(counts, key=lambda name: not any(part in name for part in ASKING)):
        if any(part in name for part in ASKING):
            taken = min(idle, counts[name])
            counts[name] -= round(taken)
            idle -= taken
    kernel, most = next(iter(counts.most_common(1)), ("", 0))
    if not moments or most < LEAST_BLOCKED * len(moments):
        return None
    calls = Counter(
        (state.call.name, state.call.path)
        for state in asleep
        if (state.wchan or "") == kernel and state.call is not None
    )
    call, path = next(iter(calls.most_common(1)), ((None, None), 0))[0]
    return BlockedIn(most / len(moments), kernel, call, path)
