"""What is known of a training that runs already, from having looked at it for some time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loadeval.analysis.attach.findings import SeenTraining, findings_of
from loadeval.analysis.attach.marks import Activity, read_stack
from loadeval.analysis.attach.shares import share_of
from loadeval.analysis.attach.workers import (
    LineShare,
    LoadingShares,
    WorkersReport,
    line_inside,
    lines_of,
    threads_loading,
    workers_report,
)
from loadeval.analysis.estimate.stats import Estimate
from loadeval.analysis.rules.finding import Finding
from loadeval.probes.observing import ObservedMachine
from loadeval.probes.stacks import StackProblem

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.analysis.attach.job import Training
    from loadeval.analysis.attach.marks import Marks, Reading, Sources
    from loadeval.probes.observing import Observation, ObservedProcess
    from loadeval.probes.stacks import Frame, ThreadSamples


@dataclass(frozen=True, slots=True)
class ProcessRow:
    """One process: shares of the time on CPUs (above 1 of several threads) and waiting for one."""

    pid: int
    is_worker: bool
    cpu: float | None
    run_queue: float | None


@dataclass(frozen=True, slots=True)
class AttachedReport:
    """A training, as it was seen from outside; None is not known.

    Of `moments` its stack was read, of `failed` others it could not be; `problem` is why there are
    no stacks. `wait` is the share of the time in which training waits for a batch, `loads_itself`
    and `starts` the parts of it in which it loads in its own thread and in which an epoch begins.
    `bound` is how many times as fast training would be at most. `thread` names the thread that asks
    for batches where it is not the main one. `callers` are the lines of the program that do,
    `own_lines` those in which it loads in its own thread, and `threads` what other threads of the
    process load. `cost` is what observing took, as a share of the CPUs.
    """

    training: Training
    elapsed_ns: int
    ended: bool
    moments: int
    failed: int
    problem: StackProblem | None
    thread: str | None
    loader: str | None
    wait: Estimate | None
    loads_itself: Estimate | None
    starts: Estimate | None
    callers: tuple[LineShare, ...]
    own_lines: tuple[LineShare, ...]
    threads: LoadingShares | None
    workers: WorkersReport | None
    processes: tuple[ProcessRow, ...]
    machine: ObservedMachine
    cost: float
    findings: tuple[Finding, ...]

    @property
    def bound(self) -> Estimate | None:
        """1 / (1 - wait): no change of the loader brings more, if steps take as long as now."""
        wait = self.wait
        if wait is None or wait.value >= 1:
            return None
        return Estimate(1 / (1 - wait.value), _bound(wait.low), _bound(wait.high))


def attached_report(
    training: Training, observation: Observation, marks: Marks, sources: Sources
) -> AttachedReport:
    """What an observation of a training says."""
    threads = _training_threads(observation.training, marks)
    parts = [[read_stack(stack, marks, sources) for stack in thread.stacks] for thread in threads]
    failed = sum(samples.failed for samples in observation.training.samples)
    workers = workers_report(observation.workers, observation.at_once, marks, sources)

    def share(is_so: Callable[[Reading], bool]) -> Estimate | None:
        return share_of([[is_so(reading) for reading in part] for part in parts], failed)

    own = [[reading for reading in part if reading.loads_itself] for part in parts]
    own_lines = lines_of(own, line_inside)
    waiting = [reading for part in parts for reading in part if reading.waits or reading.starts]
    loader = next((reading.loader for reading in waiting), None)
    knows = bool(waiting) or workers is not None
    seen = SeenTraining(
        wait=share(lambda reading: reading.waits or reading.starts) if knows else None,
        loads_itself=share(lambda reading: reading.loads_itself) if knows else None,
        observation=observation,
        workers=workers,
        own_line=next(iter(own_lines), None),
        can_have_workers=any(
            mark.activity is Activity.LOADS and mark.loader == loader for mark in marks.functions
        ),
    )
    is_other = threads and threads[0].tid != training.pid
    return AttachedReport(
        training=training,
        elapsed_ns=observation.elapsed_ns,
        ended=observation.ended,
        moments=sum(map(len, parts)),
        failed=failed,
        problem=observation.training.problem,
        thread=threads[0].name if is_other else None,
        loader=loader,
        wait=seen.wait,
        loads_itself=seen.loads_itself,
        starts=share(lambda reading: reading.starts) if knows else None,
        callers=lines_of(parts, _line_that_asks),
        own_lines=own_lines,
        threads=threads_loading(observation.training, marks, sources),
        workers=workers,
        processes=_rows(observation),
        machine=observation.machine,
        cost=observation.cost_ns / observation.elapsed_ns / max(observation.machine.cpus, 1),
        findings=findings_of(seen),
    )


def _training_threads(process: ObservedProcess, marks: Marks) -> list[ThreadSamples]:
    """The thread that asks for batches in each recording: the main one, unless it never does.

    Another is one whose frames do, in most of the moments.
    """
    asked: dict[int, int] = {process.pid: 0}
    for samples in process.samples:
        for thread in samples.threads:
            readings = (read_stack(stack, marks, {}) for stack in thread.stacks)
            count = sum(reading.waits or reading.starts for reading in readings)
            asked[thread.tid] = asked.get(thread.tid, 0) + count
    chosen = process.pid if asked[process.pid] else max(asked, key=lambda tid: asked[tid])
    return [
        thread for samples in process.samples for thread in samples.threads if thread.tid == chosen
    ]


def _line_that_asks(reading: Reading) -> tuple[Frame, Frame | None] | None:
    if reading.caller is None or not (reading.waits or reading.starts):
        return None
    return reading.caller, None


def _rows(observation: Observation) -> tuple[ProcessRow, ...]:
    rows = []
    for process in (observation.training, *observation.workers):
        growth = process.growth
        cpu = queued = None
        if growth is not None and growth.elapsed_ns:
            cpu = _ratio(growth.cpu_ns, growth.elapsed_ns)
            queued = _ratio(growth.run_queue_ns, growth.elapsed_ns)
        is_worker = process is not observation.training
        rows.append(ProcessRow(process.pid, is_worker, cpu, queued))
    return tuple(rows)


def _ratio(part: int | None, whole: int) -> float | None:
    return None if part is None else part / whole


def _bound(share: float | None) -> float | None:
    return None if share is None or share >= 1 else 1 / (1 - share)
