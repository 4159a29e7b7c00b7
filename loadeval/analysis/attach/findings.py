"""What is wrong with a training that runs already, as far as it shows from outside.

The thresholds are those of `rules/`, which judge a run that was measured; a cost is not known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from loadeval.analysis.estimate.verdict import MODERATE_SHARE
from loadeval.analysis.predict.allowed_cpus import AllowedCpus, SetBy
from loadeval.analysis.predict.scheduling import Affinity
from loadeval.analysis.remark import Remark
from loadeval.analysis.rules.blocked import NO_KERNEL, NO_PLACE, OF_BLOCKAGE
from loadeval.analysis.rules.case import severity_of
from loadeval.analysis.rules.cpus import CONFINED, WAITS_FOR_CPU
from loadeval.analysis.rules.finding import Advice, Finding, Problem, Rule, facts
from loadeval.analysis.rules.inside import DOMINATES, MOSTLY_BLOCKED
from loadeval.analysis.rules.workers import MUCH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loadeval.analysis.attach.workers import LineShare, WorkersReport
    from loadeval.analysis.estimate.stats import Estimate
    from loadeval.analysis.remark import Value
    from loadeval.analysis.rules.finding import Confidence, Fact
    from loadeval.probes.observing import Observation

BLOCKED = {
    Rule.LOCK: (Problem.WORKERS_WAIT_FOR_LOCK, Advice.SHORTER_LOCK),
    Rule.DISK: (Problem.WORKERS_BLOCKED, Advice.READ_LESS),
    Rule.STORAGE_LATENCY: (Problem.WORKERS_BLOCKED, Advice.MORE_REQUESTS_AT_ONCE),
}


@dataclass(frozen=True, slots=True)
class SeenTraining:
    """What findings are made of; None is not known.

    `wait` is the share of the time in which training waits, `loads_itself` that in which it loads
    in its own thread, mostly in `own_line`, though its loader perhaps `can_have_workers`.
    """

    wait: Estimate | None
    loads_itself: Estimate | None
    observation: Observation
    workers: WorkersReport | None
    own_line: LineShare | None = None
    can_have_workers: bool = False

    @property
    def line(self) -> LineShare | None:
        """The line in which most of loading is: of the workers, or of training where it loads."""
        return self.own_line if self.workers is None else self.workers.loading.line

    @property
    def cpus(self) -> float:
        """How many CPUs the job may use at a time."""
        machine = self.observation.machine
        quota = machine.quota_cores
        return machine.cpus if quota is None else min(machine.cpus, quota)

    @property
    def own_cpus(self) -> float | None:
        """How many CPUs the training and its workers use."""
        processes = (self.observation.training, *self.observation.workers)
        growths = (process.growth for process in processes if process.growth is not None)
        used_ns = [growth.cpu_ns for growth in growths if growth.cpu_ns is not None]
        return sum(used_ns) / self.observation.elapsed_ns if used_ns else None


def findings_of(seen: SeenTraining) -> tuple[Finding, ...]:
    """What is wrong; nothing of the loader where training does not wait for it."""
    findings = [*_shared_machine(seen)]
    if seen.wait is None or seen.wait.value >= MODERATE_SHARE:
        findings = [*_confined(seen), *_oversubscribed(seen), *findings]
    if seen.wait is not None and seen.wait.value >= MODERATE_SHARE:
        of_loader = [*_nothing_ahead(seen), *_blocked(seen), *_slow_line(seen)]
        findings = [*of_loader, *findings]
        if not findings:
            values = {"wait_share": seen.wait.value}
            problem = Remark(Problem.WAIT_UNEXPLAINED, values)
            findings = [_finding(seen, Rule.WAITING, problem, (Advice.ADD_WORKERS_OR_THREADS,))]
    return tuple(findings)


def _finding(
    seen: SeenTraining,
    rule: Rule,
    problem: Remark,
    changes: tuple[Advice | Remark, ...],
    evidence: tuple[Fact, ...] = (),
    confidence: Confidence = "likely",
) -> Finding:
    """A finding that costs no more than what is waited."""
    remarks = tuple(change if isinstance(change, Remark) else Remark(change) for change in changes)
    severity = severity_of(None if seen.wait is None else seen.wait.value)
    return Finding(rule, severity, confidence, problem, remarks, evidence)


def _nothing_ahead(seen: SeenTraining) -> Iterator[Finding]:
    """The training process loads its batches itself."""
    share = None if seen.loads_itself is None else seen.loads_itself.value
    if share is not None and share >= MODERATE_SHARE:
        problem = Remark(Problem.NOTHING_LOADED_AHEAD, {"wait_share": share})
        change = Remark(Advice.LOAD_IN_BACKGROUND)
        if seen.can_have_workers:
            # So many keep up: each takes as long for a batch as training waits for one now.
            most = max(math.floor(seen.cpus) - 1, 1)
            workers = most if share >= 1 else min(math.ceil(share / (1 - share)), most)
            values: dict[str, Value] = {"setting": "num_workers", "present": 0, "proposed": workers}
            change = Remark(Advice.TRY_WORKERS, values)
        yield _finding(seen, Rule.ZERO_WORKERS, problem, (change,), confidence="measured")


def _blocked(seen: SeenTraining) -> Iterator[Finding]:
    """Workers sleep most of the time in which they load."""
    workers = seen.workers
    if workers is None or workers.blocked is None or workers.blocked < MOSTLY_BLOCKED:
        return
    rule = OF_BLOCKAGE[workers.blockage]
    problem, advice = BLOCKED[rule]
    line, where = seen.line, workers.blocked_in
    values: dict[str, Value] = {
        "share": workers.blocked,
        "place": NO_PLACE if line is None else line.place,
        "kernel": NO_KERNEL if where is None else where.kernel or NO_KERNEL,
    }
    evidence = facts(
        ("blocked", workers.blocked, "share"),
        ("read by all workers in a second", workers.read_bytes_per_s, "bytes"),
        ("from the disk in a second", workers.disk_bytes_per_s, "bytes"),
        (
            "received over the network in a second",
            seen.observation.machine.received_bytes_per_s,
            "bytes",
        ),
    )
    yield _finding(seen, rule, Remark(problem, values), (advice,), evidence)


def _slow_line(seen: SeenTraining) -> Iterator[Finding]:
    """One function takes most of loading, which computes."""
    line, blocked = seen.line, None if seen.workers is None else seen.workers.blocked
    if line is None or line.share.value < DOMINATES or (blocked or 0.0) >= MOSTLY_BLOCKED:
        return
    place = f"{line.place} > {line.leaf}" if line.leaf else line.place
    problem = Remark(Problem.CODE_SLOW, {"place": place, "share": line.share.value})
    change = Remark(Advice.CHEAPER_NAMED, {"name": line.function})
    evidence = facts(("its share of loading a batch", line.share.value, "share"))
    yield _finding(seen, Rule.SLOW_FETCH, problem, (change,), evidence)


def _confined(seen: SeenTraining) -> Iterator[Finding]:
    """Workers may use fewer CPUs than there are."""
    allowed = _allowed_cpus(seen)
    set_by = None if allowed is None else allowed.set_by
    count = seen.observation.at_once
    if allowed is None or set_by is None or not allowed.are_kept_from(count):
        return
    cpus = allowed.affinity.workers
    problem, advice = CONFINED[set_by]
    values = {"workers": count, "cpus": cpus, "more": allowed.every - cpus, "own": allowed.own}
    evidence = facts(
        ("CPUs that the workers may use", cpus, "CPUs"),
        ("CPUs that the training process may use", allowed.own, "CPUs"),
        ("CPUs that there are", allowed.every, "CPUs"),
    )
    finding = _finding(seen, Rule.CONFINED, Remark(problem, values), (advice,), evidence)
    if set_by is SetBy.STARTER:  # which may be what was meant
        finding = replace(finding, severity="low", confidence="possible")
    yield finding


def _allowed_cpus(seen: SeenTraining) -> AllowedCpus | None:
    own = seen.observation.training.cpus_allowed
    each = [cpus for worker in seen.observation.workers if (cpus := worker.cpus_allowed)]
    if not own or not each:
        return None
    workers = frozenset[int]().union(*each)
    return AllowedCpus(
        affinity=Affinity(len(own), len(workers), len(workers & own)),
        own=len(own),
        first=min(workers),
        most=len(own),
        every=max(seen.observation.machine.cpus, len(own), len(workers)),
        fewest=min(map(len, each)),
    )


def _oversubscribed(seen: SeenTraining) -> Iterator[Finding]:
    """Workers are runnable, and wait for a CPU."""
    workers = seen.workers
    if workers is None or workers.run_queue is None or workers.run_queue < WAITS_FOR_CPU:
        return
    evidence = facts(
        ("waiting for a CPU", workers.run_queue, "share"),
        ("workers", workers.count, "workers"),
        ("threads that are running or runnable", seen.observation.machine.mean_runnable, "threads"),
        ("CPUs", seen.cpus, "CPUs"),
    )
    problem = Remark(Problem.WORKERS_WAIT_FOR_CPU, {"share": workers.run_queue})
    changes: tuple[Advice | Remark, ...] = (Advice.CHEAPER_OR_CPUS,)
    if workers.count <= seen.cpus:
        others = _others(seen) or 0.0
        values = {"others_cpus": others} if others >= MUCH else {}
        changes = (Remark(Advice.FREE_CPUS, values),)
    yield _finding(seen, Rule.OVERSUBSCRIPTION, problem, changes, evidence, confidence="measured")


def _shared_machine(seen: SeenTraining) -> Iterator[Finding]:
    """Other programs use CPUs, and none is left."""
    others, busy = _others(seen), seen.observation.machine.busy_cpus
    if others is None or busy is None or others < MUCH or busy < seen.cpus - MUCH:
        return
    problem = Remark(Problem.OTHERS_USE_CPUS, {"others_cpus": others})
    evidence = facts(("CPUs in use", busy, "CPUs"), ("CPUs available", seen.cpus, "CPUs"))
    yield _finding(
        seen, Rule.SHARED_MACHINE, problem, (Advice.MEASURE_QUIET,), evidence, "measured"
    )


def _others(seen: SeenTraining) -> float | None:
    busy, own = seen.observation.machine.busy_cpus, seen.own_cpus
    return None if busy is None or own is None else max(busy - own, 0.0)
