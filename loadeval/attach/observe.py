"""What is seen of a training that runs, what is wrong with it, and all that is said of it.

Stacks are read at the moments of a Poisson process, which see what lasts for a share of the time
with that probability ("PASTA": Wolff, "Poisson arrivals see time averages", Operations Research 30,
1982). Neighbouring moments may see the same batch, so that they count for fewer: as many as
independent ones would have the variance p (1 - p) / count that the means of consecutive parts show
(Kish, "Survey Sampling", 1965). The interval is Wilson's ("Probable inference, the law of
succession, and statistical inference", Journal of the American Statistical Association 22, 1927) of
so many, with Student's t for the normal quantile: it stays between 0 and 1, and has a width where
all moments saw the same.

The thresholds are those of `loadeval.findings`, which judge a run that was measured; a cost is not
known.
"""

from __future__ import annotations

import math
import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np

from loadeval.attach.hang import Hang, no_batch_came, numbered, rows
from loadeval.attach.marks import LIBRARY, LineOf, Marks, Reading, Training, place_of, plain_name
from loadeval.estimate.stats import Estimate, student
from loadeval.findings import BLOCKED, DOMINATES, MATTERS, WAITS_FOR_CPU
from loadeval.findings.engine import Do, Finding, Set
from loadeval.findings.inside import remedy_for
from loadeval.inside.stages import DISKS, LOCKS
from loadeval.probes.looks import Observation, ObservedMachine, ObservedProcess
from loadeval.probes.stacks import NO_STACKS, Frame, ProcessStacks
from loadeval.report.blocks import Block, Facts, Findings, FindingText, Number, Section, Table, Text
from loadeval.words import counted, cpus, duration, printable, share, shortened

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
SOURCE = "stacks at random moments, and what the kernel counts meanwhile; nothing is simulated"
NOT_A_SPEEDUP = (
    "What training would gain is not measured: steps may take longer or less long without these "
    "waits, and a GPU may have work meanwhile. This measures it:"
)
BLOCKED_BY = {
    DISKS: (
        "disk",
        "the data is read from the disk, not from the page cache",
        Do(
            "read less, or from a faster disk",
            "smaller or compressed files, few large files read in order, or enough memory to keep "
            "the data in the page cache",
        ),
    ),
    LOCKS: (
        "lock",
        "workers share a lock",
        Do(
            "do not share the lock",
            "open the file or database once in each worker, or hold it for a shorter time; more "
            "workers will not help",
        ),
    ),
    ("",): (
        "storage latency",
        "storage, the network or another process is slow to answer",
        Do(
            "more workers, several requests at once in a sample or batch, or a cache nearby",
            "blocked workers need no CPU, so more of them than there are CPUs help too",
        ),
    ),
}
"""By how the kernel's function begins in which they sleep: the rule, what it means, what to do."""
LONGEST_NAME = 48


@dataclass(frozen=True)
class SeenLine:
    """A line of the program, FOLDER/FILE:LINE FUNCTION, and the share of the moments there.

    `leaf` is the function of a library that it was mostly in, or "".
    """

    place: str
    leaf: str
    share: Estimate


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class Attached:
    """A training, as it was seen from outside, and what is said of it; None is not known.

    Of `moments` its stack was read; `no_stacks` is why there are none. `wait_share` is the share of
    the time in which training waits for a batch, `loads_itself_share` the part of it in which it
    loads in its own thread. `at_most` is how many times as fast training would be at most.
    `callers` are the lines of the program that ask for batches, `own_lines` those in which it loads
    in its own thread, and `threads` what other threads of the process load. `hang` is why no batch
    came, where none did; else `waits_for` is the worker that training waited for while others were
    done.
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


def attached(
    training: Training, observation: Observation, marks: Marks, line_of: LineOf
) -> Attached:
    """What an observation of a training shows, and what is said of it."""
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

    def part(is_so: Callable[[Reading], bool]) -> Estimate | None:
        # With workers its loader is known; else it may be one that no adapter declares.
        is_known = readings and (waiting or workers)
        return share_of(list(map(is_so, readings)), stacks.failed) if is_known else None

    wait = part(lambda each: each.waits)
    threads = [
        each
        for tid, each in read.items()
        if tid != process.pid and any(reading.loads_for_others for reading in each)
    ]
    seen = Attached(
        pid=training.pid,
        command=training.command,
        elapsed_ns=observation.elapsed_ns,
        ended=observation.ended,
        moments=len(readings),
        no_stacks=process.problem,
        loader=waiting[0].loader if waiting else None,
        wait_share=wait,
        loads_itself_share=part(lambda each: each.loads_itself),
        # No more, if steps take as long as now.
        at_most=None if wait is None or wait.value >= 1 else 1 / (1 - wait),
        callers=_lines(readings, lambda each: (each.caller,) if each.waits and each.caller else ()),
        own_lines=_lines([each for each in readings if each.loads_itself], _line_inside),
        threads=_loading(threads, len(threads)) if threads else None,
        workers=_workers(workers, marks, line_of) if workers else None,
        machine=observation.machine,
    )
    loading = {mark.loader for mark in marks.functions if mark.activity == "loads"}
    words = training.command or ("python", "train.py")
    findings = _findings(seen, can_have_workers=seen.loader in loading)
    return replace(
        seen,
        headline=_waits(seen),
        findings=tuple(replace(finding, source=SOURCE) for finding in findings),
        to_measure=f"loadeval diagnose -- {printable(shlex.join(words))}",
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
    often = (where for where, n in asleep.most_common(1) if n >= LEAST_BLOCKED * len(moments))
    return replace(
        loading,
        run_queue_share=run_queue_share,
        blocked_share=blocked_share,
        blocked_in=next(often, None),
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
    places = defaultdict[Any, Counter[tuple[str, str]]](Counter)
    for key, frames in zip(keys, seen, strict=True):
        if frames:
            places[key][place_of(frames[0]), frames[1].function if frames[1:] else ""] += 1
    lines = [
        SeenLine(*of_function.most_common(1)[0][0], share_of([key == function for key in keys]))
        for function, of_function in places.items()
    ]
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


def with_hang(seen: Attached, hang: Hang) -> Attached:
    """The same with what held it up, where no batch came all the time: then no loader is slow."""
    if hang.is_stuck:
        return replace(seen, hang=hang, headline=no_batch_came(hang), findings=())
    owed = f"{hang.who}, at the end of the look; {numbered(hang.idle)} done"
    return replace(seen, waits_for=owed if hang.worker is not None and hang.idle else None)


def _waits(seen: Attached) -> str:
    """How long training waits, and what that bounds."""
    if seen.wait_share is None:
        why = "it was never seen in a loader that loadeval knows"
        why = NO_STACKS[seen.no_stacks] if seen.no_stacks else why
        return f"How long training process {seen.pid} waits is not measured: {why}."
    waits = f"Training process {seen.pid} waits for batches {seen.wait_share:share} of the time"
    if seen.at_most is None:
        return f"{waits}."
    is_enough = " Loading is not what limits it." if seen.wait_share.value < MATTERS else ""
    return (
        f"{waits}. Without these waits it would be {seen.at_most:times} as fast, or less if a GPU "
        f"had work meanwhile.{is_enough}"
    )


def _findings(seen: Attached, *, can_have_workers: bool) -> Iterator[Finding]:
    """What is wrong with the loader; nothing where training does not wait for it."""
    workers, itself, machine = seen.workers, seen.loads_itself_share, seen.machine
    if seen.wait_share is not None and seen.wait_share.value < MATTERS:
        return
    usable = min(machine.cpus, machine.quota_cores or machine.cpus)
    line = next(iter(workers.lines if workers else seen.own_lines), None)
    blocked = (workers and workers.blocked_share) or 0.0
    queued = (workers and workers.run_queue_share) or 0.0
    if itself is not None and itself.value >= MATTERS:
        do = Do("load in the background", "in a worker, or a thread that keeps batches ready")
        if can_have_workers:
            # So many keep up: each takes as long for a batch as training waits for one now.
            most = max(math.floor(usable) - 1, 1)
            needed = most if itself.value >= 1 else math.ceil(itself.value / (1 - itself.value))
            because = "measure: workers take time to start, and to pass each batch on"
            do = Set("num_workers", 0, min(needed, most), because)
        says = (
            f"Nothing is loaded ahead: training waits {share(itself.value)} of its time, while "
            "each batch is loaded."
        )
        yield Finding(says, [do], rule="zero workers")
    if workers is not None and blocked >= BLOCKED:
        kernel, place = workers.blocked_in or "", line.place if line else "a place not seen"
        rule, means, to_do = next(
            told for names, told in BLOCKED_BY.items() if kernel.startswith(names)
        )
        says = (
            f"Loading is blocked {share(blocked)} of its time, neither on a CPU nor waiting for "
            f"one, at {place}: {means}."
        )
        yield Finding(says, [to_do], sure=False, rule=rule)
    elif line is not None and line.share.value >= DOMINATES:
        says = f"{share(line.share.value)} of loading a batch is spent in {_line(line)}."
        remedy = remedy_for(line.leaf)
        do = Do(
            f"make {line.place.partition(' ')[2]} cheaper",
            "smaller inputs, a faster library, on the GPU, or once and for all before training",
            line.place,
        )
        if remedy is not None:
            do = Do(remedy.do, remedy.because, line.place)
        yield Finding(says, [do], sure=False, rule="slow fetch")
    if workers is not None and queued >= WAITS_FOR_CPU:
        do = Do(
            "make decoding and transforms cheaper, or free CPUs",
            "fewer threads in the training process (torch.set_num_threads), or other programs; "
            "more workers will not help",
        )
        says = (
            f"Loading is ready to run but waits for a CPU {share(queued)} of its time: more "
            "threads compute than there are CPUs."
        )
        yield Finding(says, [do], rule="oversubscription")


def sections(seen: Attached) -> list[Section]:
    """All that is known of a training, as a report."""
    hang, workers, machine, blocks = seen.hang, seen.workers, seen.machine, list[Block]()
    if hang is not None:
        blocks.append(Text(_waits(seen)))
    itself = seen.loads_itself_share
    moments = f"{counted(seen.moments, 'moment')}{'; it has ended' if seen.ended else ''}"
    blocks.append(
        _facts(
            ("command", shlex.join(seen.command)),
            ("seen for", f"{duration(seen.elapsed_ns)}, at {moments}"),
            ("loader", seen.loader),
            *(("asks for batches in", f"{x.place}, {x.share:share}") for x in seen.callers),
            ("  loads itself", f"{itself:share} of the time" if itself and itself.value else None),
            ("waits for", seen.waits_for),
        )
    )
    for each, of in ((workers, "worker"), (seen.threads, "thread")):
        if each is not None:
            read = f"{each.read} of " if each.read < each.count else ""
            stages = [(STAGES[name], part) for name, part in each.stages.items() if part.value]
            blocks += _shares(f"{read}{counted(each.count, of)}", "share of their time", stages)
            lines = [(_line(line), line.share) for line in each.lines]
            blocks += _shares(f"lines of {of}s", "share of loading", lines)
    own = [(_line(line), line.share) for line in seen.own_lines]
    blocks += _shares("lines of training", "share of loading", own)
    blocked, queued = (workers.blocked_share, workers.run_queue_share) if workers else (None, None)
    quota, busy = machine.quota_cores, machine.busy_cpus
    has = [cpus(machine.cpus), *([f"{cpus(quota)} at a time (cgroup quota)"] if quota else [])]
    has += [] if busy is None else [f"{cpus(busy)} in use"]
    blocks.append(
        _facts(
            ("workers blocked", None if blocked is None else f"{share(blocked)} of loading"),
            ("waiting for a CPU", None if queued is None else f"{share(queued)} of loading"),
            ("workers sleep in", None if workers is None else workers.blocked_in),
            ("machine", ", ".join(has)),
            *((name, f"busy {share(part / 100)}") for name, part in machine.gpus.items()),
        )
    )
    if seen.findings:
        found = [
            FindingText(
                f"{finding.rule} ({'measured' if finding.sure else 'likely'})",
                finding.says,
                do=[f"{do.says} ({do.because})" if do.because else do.says for do in finding.do],
            )
            for finding in seen.findings
        ]
        blocks.append(Findings(found))
    of_hang = [Facts(rows(hang))] if hang is not None else []
    shown = [Section(seen.headline, of_hang), *(Section("", [block]) for block in blocks)]
    if hang is None:
        measure = [Text(NOT_A_SPEEDUP), Text(f"   {seen.to_measure}", "command")]
        shown.append(Section("", measure))
    return shown


def _shares(name: str, of: str, parts: Sequence[tuple[str, Estimate]]) -> list[Table]:
    rows = [(label, Number(part, "share")) for label, part in parts]
    return [Table((name, of), rows)] if rows else []


def _facts(*known: tuple[str, str | None]) -> Facts:
    return Facts([(label, text) for label, text in known if text])


def _line(line: SeenLine) -> str:
    """A line, and behind it the function that it called."""
    return f"{line.place} > {shortened(line.leaf, LONGEST_NAME)}" if line.leaf else line.place
