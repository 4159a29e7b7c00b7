"""What in a pipeline of threads or operators makes training wait, and Python's lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.estimate.verdict import MODERATE_SHARE
from loadeval.analysis.inside.operators import OperatorLimit, operators_of, threads_of
from loadeval.analysis.remark import Remark
from loadeval.analysis.rules.case import severity_of
from loadeval.analysis.rules.finding import (
    Advice,
    Fact,
    Finding,
    Problem,
    Rule,
    Unknown,
    facts,
)
from loadeval.analysis.rules.inside import LEAST_GAIN

if TYPE_CHECKING:
    from loadeval.analysis.inside.operators import (
        LockWait,
        Operator,
        OperatorReport,
        ThreadReport,
        ThreadUse,
    )
    from loadeval.analysis.remark import Value
    from loadeval.analysis.rules.case import Answer, Case
    from loadeval.analysis.rules.finding import Confidence
    from loadeval.data.lines import Arm

LONG_NS = 500_000
"""A wait for Python's lock from which on it matters: a tenth of the switch interval."""
TIMES_IDEAL = 3.0
"""Several times what it is while nothing is loaded, or the training step itself holds the lock."""
FEWEST_READINGS = 2
"""Each arm needs so many."""
LEAST_CPUS = 0.1
"""Threads of a loader of processes, or of no worker, load if they use so many CPUs to do so."""
MOSTLY = 0.5
"""What takes this share of the time by which steps are slower is why they are: longer waits for a
CPU, or many short ones for the lock."""
TRAINING_THREAD = "training thread"
SWITCH_INTERVAL_NS = 5_000_000
"""Python takes its lock from a thread after this, unless `sys.setswitchinterval` changed it."""


HOW_SURE: dict[OperatorLimit, Confidence] = {
    OperatorLimit.BUSY: "measured",
    OperatorLimit.THREADS_BUSY: "measured",
    OperatorLimit.QUEUES: "likely",
}


def slow_operator(case: Case) -> Answer:
    """One stage or operator of the loader's pipeline keeps the others waiting."""
    report = operators_of(case.real)
    if report is None:
        return None
    if case.loss_unknown:
        return case.loss_unknown
    bottleneck, limit, share = report.bottleneck, report.limit, case.waiting_share
    if case.lost is None or not share or bottleneck is None or limit is None:
        return None
    return Finding(
        Rule.SLOW_OPERATOR,
        severity_of(share),
        HOW_SURE[limit],
        _problem(case, report, bottleneck, limit),
        _changes(case, bottleneck, limit),
        (
            Fact("spent waiting", share, "share"),
            *facts(
                ("busy", bottleneck.busy_share, "share"),
                ("threads busy", report.threads_share, "share"),
                ("a task", bottleneck.task_ns, "ns"),
                ("of it in a thread", bottleneck.run_ns, "ns"),
                ("of it on a CPU", bottleneck.cpu_ns, "ns"),
                ("tasks a batch", bottleneck.tasks_per_batch, "tasks"),
                ("queue behind it not empty", bottleneck.queue_share, "share"),
            ),
        ),
        share,
    )


def _problem(
    case: Case, report: OperatorReport, operator: Operator, limit: OperatorLimit
) -> Remark:
    values: dict[str, Value] = {"name": operator.name}
    if limit is OperatorLimit.BUSY:
        values |= {"busy_share": operator.busy_share, "concurrency": operator.concurrency}
        return Remark(Problem.OPERATOR_BUSY, values)
    if limit is OperatorLimit.THREADS_BUSY:
        values |= {
            "busy_share": min(report.threads_share or 0.0, 1.0),
            "threads": case.loader.workers,
        }
        return Remark(Problem.THREADS_BUSY, values)
    return Remark(Problem.OPERATOR_STARVES_NEXT, values)


def _changes(case: Case, operator: Operator, limit: OperatorLimit) -> tuple[Remark, ...]:
    """Advise more at once, unless Python's lock lets only one of them work; or cheaper work."""
    cheaper = Remark(Advice.CHEAPER_OPERATOR, {"name": operator.name})
    if isinstance(python_lock(case), Finding):
        return (cheaper,)
    if limit is OperatorLimit.THREADS_BUSY:
        threads: dict[str, Value] = {"setting": "num_workers", "now": case.loader.workers}
        return Remark(Advice.RAISE_THREADS, threads), cheaper
    if operator.task_ns is None:  # a source, which does one thing at a time
        return (cheaper,)
    values: dict[str, Value] = {
        "name": operator.name,
        "setting": "concurrency",
        "now": operator.concurrency,
    }
    return Remark(Advice.RAISE_CONCURRENCY, values), cheaper


def python_lock(case: Case) -> Answer:
    """Threads that load in the training process hold Python's lock (GIL).

    It costs the time by which steps are slower. Of the waiting it explains what the pipeline's
    threads neither computed nor waited for a CPU, in as far as the lock is held: the wait for it
    by the switch interval. Of a loader whose stages are not timed it explains no waiting. Processes
    do not hold it, but threads that take over their batches may, where these use CPU time.

    Where no wait is long, a step that makes many short calls may wait in each of them: then it
    stops for longer than in the ideal arm, though it has a CPU, while threads load.
    """
    report = threads_of(case.real, case.ideal)
    waits = _lock_waits(case, report)
    if report is None or not isinstance(waits, tuple):
        return None if isinstance(waits, tuple) else waits
    real, ideal = waits
    is_held, stopped_ns = _is_held(real, ideal), _stopped_ns(case, report)
    if not is_held and not _is_often_taken(case, report):
        return None
    waiting = case.waiting_share * _share_in_lock(case, report, real)
    cost = case.contention_share + waiting
    names = _busiest(report)
    queued_ns = _longer_queued_ns(case, report)
    slower = None if case.headroom is None else case.headroom.contention_ns
    problem = Remark(Problem.PYTHON_LOCK_OFTEN_TAKEN, {"threads": names, "stopped_ns": stopped_ns})
    if is_held:
        values: dict[str, Value] = {"real_ns": real.wait_ns, "ideal_ns": ideal.wait_ns}
        problem = Remark(Problem.PYTHON_LOCK_HELD, {"threads": names, **values})
    lacks_cpus = slower is not None and queued_ns > MOSTLY * slower.value > 0
    return Finding(
        Rule.PYTHON_LOCK,
        severity_of(cost),
        "likely" if is_held and not lacks_cpus else "possible",
        problem,
        _without_lock(case, report, names),
        (
            Fact("wait for the GIL, real", real.wait_ns, "ns"),
            Fact("wait for the GIL, ideal", ideal.wait_ns, "ns"),
            Fact("lost in slower steps", case.contention_share, "share"),
            Fact(WAITING_FOR_LOCK, waiting, "share"),
            Fact("CPUs used by threads only while loading", _loading_cpus(report), "CPUs"),
            Fact("longer stops of the training thread in a step", stopped_ns, "ns"),
            Fact("longer wait of the training thread for a CPU, in a batch", queued_ns, "ns"),
        ),
        cost,
    )


def _without_lock(case: Case, report: ThreadReport, names: str) -> tuple[Remark, ...]:
    """What to change; processes are as good as the CPUs that there are for them."""
    if case.loader.start_method:
        return (Remark(Advice.LESS_IN_THREADS, {"threads": names}),)
    release = Remark(Advice.RELEASE_LOCK)
    most = _share_without_threads(case, report)
    if most < LEAST_GAIN:
        return (release,)
    return Remark(Advice.USE_PROCESSES, {"most_share": most}), release


def _share_without_threads(case: Case, report: ThreadReport) -> float:
    """The share of an iteration that is gone at most if processes load on the same CPUs."""
    gain, cpus = case.headroom, case.cpus
    if gain is None or not gain.real_ns or cpus is None:
        return 1.0
    training = _training_thread(report)
    of_step = 0.0 if training is None else training.cpu_cores["ideal"] or 0.0
    work_ns = of_step * (gain.ideal_ns or 0.0) + _loading_cpus(report) * gain.real_ns
    return max(1 - work_ns / cpus / gain.real_ns, 0.0)


def _is_held(real: LockWait, ideal: LockWait) -> bool:
    return real.wait_ns >= max(LONG_NS, TIMES_IDEAL * ideal.wait_ns)


def _is_often_taken(case: Case, report: ThreadReport) -> bool:
    """Whether steps are slower because the training thread stops, though it has a CPU."""
    if case.contention_share < MODERATE_SHARE or _loading_cpus(report) < LEAST_CPUS:
        return False
    slower = None if case.headroom is None else case.headroom.contention_ns
    return slower is not None and _stopped_ns(case, report) >= MOSTLY * slower.value


def _stopped_ns(case: Case, report: ThreadReport) -> float:
    """How much longer a real step neither computes nor waits for a CPU than an ideal one."""
    gain, use = case.headroom, _training_thread(report)
    if gain is None or use is None or None in use.cpu_cores.values():
        return 0.0

    def stops_ns(arm: Arm, iteration_ns: float | None) -> float:
        on_cpu = (use.cpu_cores[arm] or 0.0) + (use.run_queue_cores[arm] or 0.0)
        return max(1 - on_cpu, 0.0) * (iteration_ns or 0.0)

    waiting_ns = 0.0 if gain.waiting_ns is None else gain.waiting_ns.value
    return max(stops_ns("real", gain.real_ns) - stops_ns("ideal", gain.ideal_ns) - waiting_ns, 0.0)


def is_lock_free(case: Case) -> bool:
    """Whether it was measured that Python's lock is free while batches are loaded."""
    report = threads_of(case.real, case.ideal)
    waits = None if report is None else _both_waits(report)
    if report is None or waits is None:
        return False
    return not _is_held(*waits) and not _is_often_taken(case, report)


def _loading_cpus(report: ThreadReport) -> float:
    """CPUs that threads use in the real arm more than in the ideal one."""
    return sum(
        max((thread.cpu_cores["real"] or 0.0) - (thread.cpu_cores["ideal"] or 0.0), 0.0)
        for thread in _beside_training(report)
    )


def _longer_queued_ns(case: Case, report: ThreadReport) -> float:
    """How much longer the training thread waits for a CPU in a real batch than in an ideal one."""
    gain, use = case.headroom, _training_thread(report)
    if gain is None or use is None:
        return 0.0
    real, ideal = (use.run_queue_cores[arm] or 0.0 for arm in ("real", "ideal"))
    return max(real * (gain.real_ns or 0.0) - ideal * (gain.ideal_ns or 0.0), 0.0)


def _training_thread(report: ThreadReport) -> ThreadUse | None:
    return next((thread for thread in report.threads if thread.name == TRAINING_THREAD), None)


def _beside_training(report: ThreadReport) -> list[ThreadUse]:
    """The threads beside those of training and ours."""
    return [
        thread
        for thread in report.threads
        if thread.name != TRAINING_THREAD and not thread.name.startswith("loadeval")
    ]


def _busiest(report: ThreadReport) -> str:
    """The name of the threads, beside those of training and ours, that use most CPU time."""
    return next((thread.name for thread in _beside_training(report)), "threads of the loader")


WAITING_FOR_LOCK = "lost in waiting, for the GIL"


def waiting_for_lock(finding: Finding) -> float:
    """The share of the steady state that is waited because of the lock, of a `python_lock`."""
    return next(fact.value for fact in finding.evidence if fact.name == WAITING_FOR_LOCK)


def _lock_waits(
    case: Case, report: ThreadReport | None
) -> tuple[LockWait, LockWait] | Remark | None:
    """The wait for the lock in the real and the ideal arm, where threads make training wait."""
    loader = case.loader
    in_processes = loader.start_method is not None or loader.persistent_workers is not None
    reads_ahead = report is not None and _loading_cpus(report) >= LEAST_CPUS
    if in_processes or loader.workers == 0:
        if reads_ahead and case.loss_unknown:
            return case.loss_unknown
        if not reads_ahead or case.contention_share < MODERATE_SHARE:
            return None
    if report is None:
        return None if loader.workers is None else Remark(Unknown.LOCK_NOT_READ)
    if case.loss_unknown or case.lost is None or case.loads_synchronously:
        return case.loss_unknown
    waits = _both_waits(report)
    if waits is None:
        read = [0 if wait is None else wait.readings for wait in report.lock_wait.values()]
        values: dict[str, Value] = {"readings": min(read), "needed": FEWEST_READINGS}
        return Remark(Unknown.FEW_LOCK_READINGS, values)
    return waits


def _both_waits(report: ThreadReport) -> tuple[LockWait, LockWait] | None:
    """The wait for the lock in the real and the ideal arm; None where either has few readings."""
    real, ideal = report.lock_wait["real"], report.lock_wait["ideal"]
    if real is None or ideal is None or min(real.readings, ideal.readings) < FEWEST_READINGS:
        return None
    return real, ideal


def _share_in_lock(case: Case, threads: ThreadReport, real: LockWait) -> float:
    """The share of the pipeline's work that is waiting for Python's lock."""
    operators = operators_of(case.real)
    timed = [] if operators is None else list(operators.operators)
    run_ns = sum(operator.batch_ns or 0.0 for operator in timed if operator.cpu_ns is not None)
    cpu_ns = sum((thread.cpu_ns or 0.0) * thread.tasks_per_batch for thread in timed)
    if not run_ns:
        return 0.0
    loading = [operator for operator in threads.threads if operator.name != TRAINING_THREAD]
    cores = sum(thread.cpu_cores["real"] or 0.0 for thread in loading)
    queued = sum(thread.run_queue_cores["real"] or 0.0 for thread in loading)
    queued_ns = cpu_ns * queued / cores if cores else 0.0
    blocked = max(1 - (cpu_ns + queued_ns) / run_ns, 0.0)
    return blocked * min(real.wait_ns / SWITCH_INTERVAL_NS, 1.0)
