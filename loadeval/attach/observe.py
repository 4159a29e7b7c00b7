"""What is seen of a training that runs: shares of its time, lines, and the kernel's figures.

Stacks are read at the moments of a Poisson process, which see what lasts for a share of the time
with that probability ("PASTA": Wolff, "Poisson arrivals see time averages", Operations Research 30,
1982). Neighbouring moments may see the same batch, so that they count for fewer: as many as
independent ones would have the variance p (1 - p) / count that the means of consecutive parts show
(Kish, "Survey Sampling", 1965). The interval is Wilson's ("Probable inference, the law of
succession, and statistical inference", Journal of the American Statistical Association 22, 1927) of
so many, with Student's t for the normal quantile: it stays between 0 and 1, and has a width where
all moments saw the same.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from loadeval.attach.hang import Hang
from loadeval.attach.job import Training
from loadeval.attach.marks import Marks, Reading, Sources, is_library, place_of, plain_name
from loadeval.estimate.stats import Estimate, student
from loadeval.findings.engine import Finding
from loadeval.probes.observing import (
    Observation,
    ObservedMachine,
    ObservedProcess,
)
from loadeval.probes.stacks import Frame, ThreadSamples

FEWEST_MOMENTS = 8
"""Of fewer moments there is no interval."""
PARTS = 5
"""Into so many the moments are divided: with fewer, intervals are wider, and hold the truth also
where a batch takes a tenth of the time that was looked at."""
STAGES = {
    "asks": "wait for what to load",
    "fetches": "fetch",
    "collates": "collate",
    "sends": "send",
    "loads": "other work",
}
"""What is done to load, and what it is called: "loads" is all that is none of the others."""
MOST_LINES = 5
LEAST_SHARE = 0.02
"""A line that was seen for a smaller share is left out."""
ASKING = ("poll", "pipe")
"""The kernel's functions in which a worker waits for what to load next have these in their name."""
LEAST_BLOCKED = 0.2
"""A place is named where workers were blocked at this share of the moments or more."""
SLEEPING = ("S", "D")

Line = tuple[Frame, Frame | None]
"""A line, and the function of a library that it calls."""


@dataclass(frozen=True, slots=True)
class SeenLine:
    """A line of the program, FOLDER/FILE:LINE FUNCTION, and the share of the moments there.

    `leaf` is the function of a library that it was mostly in, or "".
    """

    place: str
    leaf: str
    share: Estimate


@dataclass(frozen=True, slots=True)
class Loading:
    """What `count` processes or threads that load do, and in which lines.

    `stages` are shares of their time, `lines` shares of the time in which they neither wait for
    what to load nor hand it over.
    """

    count: int
    stages: Mapping[str, Estimate]
    lines: tuple[SeenLine, ...]


@dataclass(frozen=True, slots=True)
class BlockedIn:
    """Where workers were blocked most: the kernel's function, the system call, what it is of.

    `share` is that of the moments in which a worker was asked.
    """

    share: float
    kernel: str
    call: str | None
    path: str | None


@dataclass(frozen=True, slots=True)
class Workers:
    """What the worker processes do, as means of them; None is not known.

    There were `count` at a time, some of which are in `loading`. `run_queue_share` and
    `blocked_share` are of the time in which they do not wait for what to load next: runnable
    without a CPU, and neither on a CPU nor runnable. `cpu_cores` is that of each, and what they
    read is of all.
    """

    count: int
    loading: Loading
    cpu_cores: float | None
    run_queue_share: float | None
    blocked_share: float | None
    blocked_in: BlockedIn | None
    read_bytes_per_s: float | None
    disk_read_bytes_per_s: float | None


@dataclass(frozen=True, slots=True)
class Process:
    """One process: shares of the time on CPUs (above 1 of several threads) and waiting for one."""

    pid: int
    is_worker: bool
    cpu: float | None
    run_queue: float | None


@dataclass(frozen=True, slots=True)
class Attached:
    """A training, as it was seen from outside, and what is said of it; None is not known.

    Of `moments` its stack was read, of `failed_moments` it could not be; `no_stacks` is why there
    are none. `wait_share` is the share of the time in which training waits for a batch,
    `loads_itself_share` and `epoch_starts_share` the parts of it in which it loads in its own
    thread and in which an epoch begins. `at_most` is how many times as fast training would be at
    most. `thread` names the thread that asks for batches where it is not the main one. `callers`
    are the lines of the program that do, `own_lines` those in which it loads in its own thread, and
    `threads` what other threads of the process load. `cost_share` is what observing took of the
    CPUs. `hang` is why no batch came, where none did; else `waits_for` is the worker that training
    waited for while others were done. The `headline` and the `findings` are findings.py's.
    """

    pid: int
    command: tuple[str, ...] | None
    elapsed_ns: int
    ended: bool
    moments: int
    failed_moments: int
    no_stacks: str | None
    thread: str | None
    loader: str | None
    wait_share: Estimate | None
    loads_itself_share: Estimate | None
    epoch_starts_share: Estimate | None
    at_most: Estimate | None
    callers: tuple[SeenLine, ...]
    own_lines: tuple[SeenLine, ...]
    threads: Loading | None
    workers: Workers | None
    processes: tuple[Process, ...]
    machine: ObservedMachine
    cost_share: float
    headline: str = ""
    findings: tuple[Finding, ...] = ()
    hang: Hang | None = None
    waits_for: str | None = None
    to_measure: str = ""


def seen_in(
    observation: Observation, training: Training, marks: Marks, sources: Sources
) -> Attached:
    """What an observation of a training shows; `sources` has lines of the files of marks."""
    process, machine = observation.training, observation.machine
    threads = _training_threads(process, marks)
    parts = [[marks.read(stack, sources) for stack in thread.stacks] for thread in threads]
    failed = sum(samples.failed for samples in process.samples)
    workers = _workers(observation, marks, sources)
    waiting = [reading for part in parts for reading in part if reading.waits]
    # With workers it is known that its loader is; else it may be one that no adapter declares.
    is_known = bool(waiting) or workers is not None

    def share(is_so: Callable[[Reading], bool]) -> Estimate | None:
        if not is_known:
            return None
        return share_of([[is_so(reading) for reading in part] for part in parts], failed)

    wait = share(lambda reading: reading.waits)
    own = [[reading for reading in part if reading.loads_itself] for part in parts]
    return Attached(
        pid=training.pid,
        command=training.command,
        elapsed_ns=observation.elapsed_ns,
        ended=observation.ended,
        moments=sum(map(len, parts)),
        failed_moments=failed,
        no_stacks=None if process.problem is None else process.problem.value,
        thread=threads[0].name if threads and threads[0].tid != training.pid else None,
        loader=waiting[0].loader if waiting else None,
        wait_share=wait,
        loads_itself_share=share(lambda reading: reading.loads_itself),
        epoch_starts_share=share(lambda reading: reading.starts),
        at_most=_without(wait),
        callers=_lines(
            parts, lambda read: (read.caller, None) if read.caller and read.waits else None
        ),
        own_lines=_lines(own, _line_inside),
        threads=_loading_threads(process, marks, sources),
        workers=workers,
        processes=tuple(
            Process(
                each.pid,
                each is not process,
                _rate([each], "cpu_ns"),
                _rate([each], "run_queue_ns"),
            )
            for each in (process, *observation.workers)
        ),
        machine=machine,
        cost_share=observation.cost_ns / observation.elapsed_ns / max(machine.cpus, 1),
    )


def share_of(parts: Sequence[Sequence[bool]], failed: int = 0) -> Estimate | None:
    """The share of the moments that were true, with its 95% interval; None of no moment.

    Each of `parts` is one after another. At `failed` further moments it is not known, so that the
    interval holds both. Without an interval where the moments are too few.
    """
    seen = np.concatenate([np.empty(0), *(np.asarray(part, float) for part in parts)])
    count = len(seen)
    if not count:
        return None
    value = float(seen.mean())
    if count < FEWEST_MOMENTS:
        return Estimate(value)
    means = [part.mean() for part in np.array_split(seen, PARTS)]
    variance = float(np.var(means, ddof=1)) / PARTS
    effective, quantile = float(count), student(count - 1.0)
    if variance:
        effective = max(min(value * (1 - value) / variance, count), 1.0)
        quantile = student(PARTS - 1.0)
    square = quantile**2 / effective
    middle = (value + square / 2) / (1 + square)
    half = math.sqrt(value * (1 - value) * square + (square / 2) ** 2) / (1 + square)
    known = count / (count + failed)
    low, high = max(middle - half, 0.0), min(middle + half, 1.0)
    return Estimate(value, low * known, high * known + (1 - known))


def _without(wait: Estimate | None) -> Estimate | None:
    """1 / (1 - wait): no change of the loader brings more, if steps take as long as now."""
    if wait is None or wait.value >= 1:
        return None
    low, high = (
        None if bound is None or bound >= 1 else 1 / (1 - bound) for bound in (wait.low, wait.high)
    )
    return Estimate(1 / (1 - wait.value), low, high)


def _training_threads(process: ObservedProcess, marks: Marks) -> list[ThreadSamples]:
    """The thread that asks for batches in each recording: the main one, unless it never does.

    Another is one whose frames do, in most of the moments.
    """
    asked = Counter({process.pid: 0})
    threads = [thread for samples in process.samples for thread in samples.threads]
    for thread in threads:
        asked[thread.tid] += sum(marks.read(stack).waits for stack in thread.stacks)
    chosen = process.pid if asked[process.pid] else max(asked, key=lambda tid: asked[tid])
    return [thread for thread in threads if thread.tid == chosen]


def _loads(thread: ThreadSamples, marks: Marks) -> bool:
    return any(marks.read(stack).loads_for_others for stack in thread.stacks)


def _loading(
    count: int, threads: Sequence[ThreadSamples], marks: Marks, sources: Sources
) -> Loading:
    """What these threads, one or more of each of `count` processes or threads, do."""
    parts = [[marks.read(stack, sources) for stack in thread.stacks] for thread in threads]
    stages = {
        stage: share
        for stage in STAGES
        if (share := share_of([[reading.stage == stage for reading in part] for part in parts]))
    }
    loading = [[read for read in part if read.stage not in {"asks", "sends"}] for part in parts]
    return Loading(count, stages, _lines(loading, _line_inside))


def _loading_threads(process: ObservedProcess, marks: Marks, sources: Sources) -> Loading | None:
    """What the threads of a training process do that load; None where it has none."""
    threads = [
        thread
        for samples in process.samples
        for thread in samples.threads
        if thread.tid != process.pid and _loads(thread, marks)
    ]
    count = len({thread.tid for thread in threads})
    return _loading(count, threads, marks, sources) if threads else None


def _workers(observation: Observation, marks: Marks, sources: Sources) -> Workers | None:
    workers, at_once = observation.workers, observation.at_once
    if not workers:
        return None
    threads = []
    for samples in (each for worker in workers for each in worker.samples):
        # The main thread loads, or another that is seen to.
        in_order = sorted(samples.threads, key=lambda thread: thread.tid != samples.pid)
        threads += [thread for thread in in_order if _loads(thread, marks)][:1]
    recorded = sum(bool(worker.samples) for worker in workers)
    loading = _loading(min(recorded, at_once), threads, marks, sources)
    asks = loading.stages["asks"].value if "asks" in loading.stages else None
    cpu, queued, read, disk = (
        _rate(workers, counter)
        for counter in ("cpu_ns", "run_queue_ns", "read_bytes", "disk_read_bytes")
    )
    blocked = None
    if asks is not None and cpu is not None and queued is not None:
        blocked = max(1 - asks - cpu - queued, 0.0)
    run_queue_share, blocked_share = (
        None if share is None or asks is None or asks >= 1 else min(share / (1 - asks), 1.0)
        for share in (queued, blocked)
    )
    return Workers(
        count=at_once,
        loading=loading,
        cpu_cores=cpu,
        run_queue_share=run_queue_share,
        blocked_share=blocked_share,
        blocked_in=_blocked_in(workers, asks or 0.0),
        read_bytes_per_s=None if read is None else 1e9 * at_once * read,
        disk_read_bytes_per_s=None if disk is None else 1e9 * at_once * disk,
    )


def _rate(processes: Sequence[ObservedProcess], counter: str) -> float | None:
    """The growth of a counter of ProcessGrowth, by the time that it was counted: their mean."""
    growths = [each.growth for each in processes if each.growth and each.growth.elapsed_ns]
    counted = [(getattr(growth, counter), growth.elapsed_ns) for growth in growths]
    rates = [value / elapsed_ns for value, elapsed_ns in counted if value is not None]
    return fmean(rates) if rates else None


def _blocked_in(workers: Sequence[ObservedProcess], asks: float) -> BlockedIn | None:
    """Where workers sleep, besides waiting for what to load next, for a share `asks` of the time.

    Both may be in the same place: what is beyond that share is of loading.
    """
    moments = [state for worker in workers for state in worker.moments]
    asleep = [state for state in moments if state.state in SLEEPING]
    counts = Counter(state.wchan or "" for state in asleep)
    idle = asks * len(moments)
    for name in counts:
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


def _lines(
    parts: Sequence[Sequence[Reading]], line_of: Callable[[Reading], Line | None]
) -> tuple[SeenLine, ...]:
    """The lines in which these were seen, by function, those of the greatest share first.

    The line of a function is that in which it was seen most.
    """
    functions: dict[tuple[str, str], Counter[tuple[str, str]]] = {}
    keys: list[list[tuple[str, str] | None]] = []
    for part in parts:
        keys.append([])
        for line in map(line_of, part):
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
            lines.append(SeenLine(place, leaf_name, share))
    return tuple(sorted(lines, key=lambda line: -line.share.value)[:MOST_LINES])


def _line_inside(reading: Reading) -> Line | None:
    """The innermost line of the program that loads; the outermost of a library where none is."""
    inside = reading.inside
    if not inside:
        return None
    own = (index for index, frame in enumerate(inside) if not is_library(frame))
    index = next(own, None)
    if index is None:
        return inside[-1], inside[0] if len(inside) > 1 else None
    return inside[index], inside[index - 1] if index else None
