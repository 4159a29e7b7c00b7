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
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from loadeval.attach.hang import Hang
from loadeval.attach.marks import LIBRARY, LineOf, Marks, Reading, place_of, plain_name
from loadeval.attach.trainings import Training
from loadeval.estimate.stats import Estimate, student
from loadeval.findings.engine import Finding
from loadeval.probes.looks import Observation, ObservedMachine, ObservedProcess
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
ASKING = re.compile("poll|pipe")
"""The kernel's functions in which a worker waits for what to load next have this in their name."""
LEAST_BLOCKED = 0.2
"""A place is named where workers were blocked at this share of the moments or more."""


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
    """What `count` processes or threads that load do, and in which lines; None is not known.

    Stacks of `read` of them were read. `stages` are shares of their time, `lines` shares of the
    time in which they neither wait for what to load nor hand it over. Of worker processes,
    `run_queue_share` and `blocked_share` are of the time in which they do not wait for what to load
    next, on average: runnable without a CPU, and neither on a CPU nor runnable. `blocked_in` is the
    kernel's function where they mostly are then, with the system call.
    """

    count: int
    read: int
    stages: Mapping[str, Estimate]
    lines: tuple[SeenLine, ...]
    run_queue_share: float | None = None
    blocked_share: float | None = None
    blocked_in: str | None = None


@dataclass(frozen=True, slots=True)
class Attached:
    """A training, as it was seen from outside, and what is said of it; None is not known.

    Of `moments` its stack was read; `no_stacks` is why there are none. `wait_share` is the share of
    the time in which training waits for a batch, `loads_itself_share` the part of it in which it
    loads in its own thread. `at_most` is how many times as fast training would be at most.
    `callers` are the lines of the program that ask for batches, `own_lines` those in which it loads
    in its own thread, and `threads` what other threads of the process load. `hang` is why no batch
    came, where none did; else `waits_for` is the worker that training waited for while others were
    done. The `headline` and the `findings` are findings.py's.
    """

    pid: int
    command: tuple[str, ...]
    elapsed_ns: int
    ended: bool
    moments: int
    no_stacks: str | None
    loader: str | None
    wait_share: Estimate | None
    loads_itself_share: Estimate | None
    at_most: Estimate | None
    callers: tuple[SeenLine, ...]
    own_lines: tuple[SeenLine, ...]
    threads: Loading | None
    workers: Loading | None
    machine: ObservedMachine
    headline: str = ""
    findings: tuple[Finding, ...] = ()
    hang: Hang | None = None
    waits_for: str | None = None
    to_measure: str = ""


def seen_in(
    observation: Observation, training: Training, marks: Marks, line_of: LineOf
) -> Attached:
    """What an observation of a training shows."""
    process, workers = observation.training, observation.workers
    stacks = process.stacks or ProcessStacks(process.pid, ())
    read = {
        thread.tid: [marks.read(stack, line_of) for stack in thread.stacks]
        for thread in stacks.threads
    }
    # The main thread trains, unless it never asks for a batch: then the one that does most often.
    asked = {tid: sum(each.waits for each in readings) for tid, readings in read.items()}
    trains = process.pid
    if not asked.get(trains):
        trains = max(asked, key=lambda tid: asked[tid], default=trains) or trains
    readings = read.get(trains, [])
    waiting = [each for each in readings if each.waits]

    def share(is_so: Callable[[Reading], bool]) -> Estimate | None:
        # With workers its loader is known; else it may be one that no adapter declares.
        is_known = readings and (waiting or workers)
        return share_of(list(map(is_so, readings)), stacks.failed) if is_known else None

    wait = share(lambda each: each.waits)
    threads = [
        each
        for tid, each in read.items()
        if tid != process.pid and any(reading.loads_for_others for reading in each)
    ]
    return Attached(
        pid=training.pid,
        command=training.command,
        elapsed_ns=observation.elapsed_ns,
        ended=observation.ended,
        moments=len(readings),
        no_stacks=process.problem,
        loader=waiting[0].loader if waiting else None,
        wait_share=wait,
        loads_itself_share=share(lambda each: each.loads_itself),
        # No more, if steps take as long as now.
        at_most=None if wait is None or wait.value >= 1 else 1 / (1 - wait),
        callers=_lines(readings, lambda each: (each.caller,) if each.waits and each.caller else ()),
        own_lines=_lines([each for each in readings if each.loads_itself], _line_inside),
        threads=_loading(threads, len(threads)) if threads else None,
        workers=_workers(workers, marks, line_of) if workers else None,
        machine=observation.machine,
    )


def share_of(moments: Sequence[bool], failed: int = 0) -> Estimate:
    """The share of the moments that were true, with its 95% interval.

    They follow each other. At `failed` further moments it is not known, so that the interval holds
    both. Without an interval where the moments are too few.
    """
    count = len(moments)
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


def _loading(threads: Sequence[Sequence[Reading]], count: int) -> Loading:
    """What some of `count` processes or threads do, by their stacks at some moments."""
    readings = [each for thread in threads for each in thread]
    did = [each.activities[-1] if each.activities else "" for each in readings]
    stages = {stage: share_of([done == stage for done in did]) for stage in STAGES if did}
    ours = [each for each, done in zip(readings, did, strict=True) if done not in {"asks", "sends"}]
    return Loading(count, len(threads), stages, _lines(ours, _line_inside))


def _workers(workers: Sequence[ObservedProcess], marks: Marks, line_of: LineOf) -> Loading:
    """What worker processes do, and where in the kernel they sleep besides waiting for work."""
    threads = [
        [marks.read(stack, line_of) for stack in (main.stacks if main else ())]
        for main in (worker.stacks.main for worker in workers if worker.stacks is not None)
    ]
    loading = _loading(threads, len(workers))
    cpu = [worker.cpu_cores for worker in workers if worker.cpu_cores is not None]
    queued = [worker.run_queue_cores for worker in workers if worker.run_queue_cores is not None]
    works = 1 - loading.stages["asks"].value if loading.stages else 0.0
    run_queue_share = blocked_share = None
    if works and queued:
        run_queue_share = min(fmean(queued) / works, 1.0)
        if cpu:
            blocked_share = min(max(works - fmean(cpu) - fmean(queued), 0.0) / works, 1.0)
    moments = [state for worker in workers for state in worker.moments]
    asleep = Counter(
        state.wchan + (f", system call {state.call}" if state.call else "")
        for state in moments
        if state.state in {"S", "D"} and state.wchan and not ASKING.search(state.wchan)
    )
    where, count = next(iter(asleep.most_common(1)), ("", 0))
    blocked_in = where if count and count >= LEAST_BLOCKED * len(moments) else None
    return replace(
        loading,
        run_queue_share=run_queue_share,
        blocked_share=blocked_share,
        blocked_in=blocked_in,
    )


def _lines(
    readings: Sequence[Reading], frames_of: Callable[[Reading], Sequence[Frame]]
) -> tuple[SeenLine, ...]:
    """The lines in which these were seen, by function, those of the greatest share first.

    A line comes first of its frames, and what it calls second. That of a function is the one in
    which it was seen most.
    """
    seen = [frames_of(reading) for reading in readings]
    keys = [(frames[0].file, plain_name(frames[0])) if frames else None for frames in seen]
    lines = []
    for function in filter(None, dict.fromkeys(keys)):
        places = Counter(
            (place_of(frames[0]), frames[1].function if len(frames) > 1 else "")
            for frames, key in zip(seen, keys, strict=True)
            if key == function
        )
        share = share_of([key == function for key in keys])
        lines.append(SeenLine(*places.most_common(1)[0][0], share))
    return tuple(sorted(lines, key=lambda line: -line.share.value)[:MOST_LINES])


def _line_inside(reading: Reading) -> Sequence[Frame]:
    """The innermost line of the program that loads, and what it calls.

    The outermost of a library where there is none, and the innermost.
    """
    inside = reading.inside
    for index, frame in enumerate(inside):
        if not LIBRARY.search(frame.file):
            return (frame, *inside[max(index - 1, 0) : index])
    return (*inside[-1:], *inside[:-1][:1])
