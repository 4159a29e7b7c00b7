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
from loadeval.probes.observing import Observation, ObservedMachine, ObservedProcess
from loadeval.probes.stacks import Frame, ProcessStacks

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

Line = tuple[Frame | None, Frame | None]
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

    There are `count`, some of which are in `loading`. `run_queue_share` and `blocked_share` are of
    the time in which they do not wait for what to load next: runnable without a CPU, and neither on
    a CPU nor runnable. `cpu_cores` is that of each, and what they read is of all.
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
    stacks = process.stacks or ProcessStacks(process.pid, ())
    threads = {thread.tid: thread for thread in stacks.threads}
    read = {
        tid: [marks.read(stack, sources) for stack in thread.stacks]
        for tid, thread in threads.items()
    }
    # The main thread trains, unless it never asks for a batch: then the one that does most often.
    asked = {process.pid: 0} | {tid: sum(map(_waits, readings)) for tid, readings in read.items()}
    trains = process.pid if asked[process.pid] else max(asked, key=lambda tid: asked[tid])
    readings = read.get(trains, [])
    workers = _workers(observation, marks, sources) if observation.workers else None
    waiting = [reading for reading in readings if reading.waits]
    # With workers it is known that its loader is; else it may be one that no adapter declares.
    is_known = bool(waiting) or workers is not None

    def share(is_so: Callable[[Reading], bool]) -> Estimate | None:
        return (
            share_of([is_so(reading) for reading in readings], stacks.failed) if is_known else None
        )

    wait = share(_waits)
    loading = [
        of_thread for tid, of_thread in read.items() if tid != process.pid and _load(of_thread)
    ]
    return Attached(
        pid=training.pid,
        command=training.command,
        elapsed_ns=observation.elapsed_ns,
        ended=observation.ended,
        moments=len(readings),
        failed_moments=stacks.failed,
        no_stacks=process.problem,
        thread=None if trains == process.pid else threads[trains].name,
        loader=waiting[0].loader if waiting else None,
        wait_share=wait,
        loads_itself_share=share(lambda reading: reading.loads_itself),
        epoch_starts_share=share(lambda reading: reading.starts),
        at_most=_without(wait),
        callers=_lines(readings, lambda each: (each.caller, None) if each.waits else None),
        own_lines=_lines([each for each in readings if each.loads_itself], _line_inside),
        threads=_loading(len(loading), [each for part in loading for each in part])
        if loading
        else None,
        workers=workers,
        processes=tuple(
            Process(
                each.pid,
                each is not process,
                each.cpu_cores,
                each.run_queue_cores,
            )
            for each in (process, *observation.workers)
        ),
        machine=machine,
        cost_share=observation.cost_ns / observation.elapsed_ns / max(machine.cpus, 1),
    )


def _waits(reading: Reading) -> bool:
    return reading.waits


def _load(readings: Sequence[Reading]) -> bool:
    return any(reading.loads_for_others for reading in readings)


def share_of(moments: Sequence[bool], failed: int = 0) -> Estimate | None:
    """The share of the moments that were true, with its 95% interval; None of no moment.

    They follow each other. At `failed` further moments it is not known, so that the interval holds
    both. Without an interval where the moments are too few.
    """
    count = len(moments)
    if not count:
        return None
    seen = np.asarray(moments, float)
    value = float(seen.mean())
    if count < FEWEST_MOMENTS:
        return Estimate(value)
    variance = float(np.var([part.mean() for part in np.array_split(seen, PARTS)], ddof=1)) / PARTS
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


def _loading(count: int, readings: Sequence[Reading]) -> Loading:
    """What `count` processes or threads do, whose stacks at some moments are in `readings`."""
    shares = {stage: share_of([each.stage == stage for each in readings]) for stage in STAGES}
    stages = {stage: share for stage, share in shares.items() if share is not None}
    loading = [reading for reading in readings if reading.stage not in {"asks", "sends"}]
    return Loading(count, stages, _lines(loading, _line_inside))


def _workers(observation: Observation, marks: Marks, sources: Sources) -> Workers:
    workers, readings = observation.workers, list[Reading]()
    recorded = [worker.stacks for worker in workers if worker.stacks is not None]
    for stacks in recorded:
        # The main thread loads, or another that is seen to.
        for thread in sorted(stacks.threads, key=lambda thread: thread is not stacks.main):
            of_thread = [marks.read(stack, sources) for stack in thread.stacks]
            if _load(of_thread):
                readings += of_thread
                break
    loading = _loading(len(recorded), readings)
    asks = loading.stages["asks"].value if "asks" in loading.stages else None
    cpu, queued = _mean(workers, "cpu_cores"), _mean(workers, "run_queue_cores")
    read, disk = _mean(workers, "read_bytes_per_s"), _mean(workers, "disk_read_bytes_per_s")
    run_queue_share = blocked_share = None
    if asks is not None and asks < 1 and queued is not None:
        run_queue_share = min(queued / (1 - asks), 1.0)
        if cpu is not None:
            blocked_share = min(max(1 - asks - cpu - queued, 0.0) / (1 - asks), 1.0)
    return Workers(
        count=len(workers),
        loading=loading,
        cpu_cores=cpu,
        run_queue_share=run_queue_share,
        blocked_share=blocked_share,
        blocked_in=_blocked_in(workers, asks or 0.0),
        read_bytes_per_s=None if read is None else len(workers) * read,
        disk_read_bytes_per_s=None if disk is None else len(workers) * disk,
    )


def _mean(workers: Sequence[ObservedProcess], name: str) -> float | None:
    values = [getattr(worker, name) for worker in workers]
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _blocked_in(workers: Sequence[ObservedProcess], asks: float) -> BlockedIn | None:
    """Where workers sleep, besides waiting for what to load next, for a share `asks` of the time.

    Both may be in the same place: what is beyond that share is of loading.
    """
    moments = [state for worker in workers for state in worker.moments]
    asleep = [state for state in moments if state.state in {"S", "D"}]
    counts = Counter(state.wchan or "" for state in asleep)
    idle = asks * len(moments)
    for name in counts:
        if any(part in name for part in ASKING):
            taken = min(idle, counts[name])
            counts[name] -= round(taken)
            idle -= taken
    if not moments or max(counts.values(), default=0) < LEAST_BLOCKED * len(moments):
        return None
    ((kernel, most),) = counts.most_common(1)
    calls = Counter(
        (state.call, state.path)
        for state in asleep
        if (state.wchan or "") == kernel and state.call is not None
    )
    call, path = calls.most_common(1)[0][0] if calls else (None, None)
    return BlockedIn(most / len(moments), kernel, call, path)


def _lines(
    readings: Sequence[Reading], line_of: Callable[[Reading], Line | None]
) -> tuple[SeenLine, ...]:
    """The lines in which these were seen, by function, those of the greatest share first.

    The line of a function is that in which it was seen most.
    """
    functions: dict[tuple[str, str], Counter[tuple[str, str]]] = {}
    keys: list[tuple[str, str] | None] = []
    for reading in readings:
        frame, leaf = line_of(reading) or (None, None)
        keys.append(None if frame is None else (frame.file, plain_name(frame)))
        if frame is not None:
            leaf_name = "" if leaf is None else leaf.function
            places = functions.setdefault((frame.file, plain_name(frame)), Counter())
            places[place_of(frame), leaf_name] += 1
    lines = []
    for key, places in functions.items():
        share = share_of([other == key for other in keys])
        if share is not None and share.value >= LEAST_SHARE:
            place, leaf_name = places.most_common(1)[0][0]
            lines.append(SeenLine(place, leaf_name, share))
    return tuple(sorted(lines, key=lambda line: -line.share.value)[:MOST_LINES])


def _line_inside(reading: Reading) -> Line | None:
    """The innermost line of the program that loads; the outermost of a library where none is."""
    inside = reading.inside
    for index, frame in enumerate(inside):
        if not is_library(frame):
            return frame, inside[index - 1] if index else None
    return (inside[-1], inside[0] if len(inside) > 1 else None) if inside else None
