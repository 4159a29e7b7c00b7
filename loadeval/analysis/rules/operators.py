"""What in a pipeline of threads or operators makes training wait, and Python's lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.operators import Limit, operators_of, threads_of
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

if TYPE_CHECKING:
    from loadeval.analysis.operators import LockWait, Operator, OperatorReport, ThreadReport
    from loadeval.analysis.remark import Value
    from loadeval.analysis.rules.case import Answer, Case
    from loadeval.analysis.rules.finding import Confidence

LONG_NS = 500_000
"""A wait for Python's lock from which on it matters: a tenth of the switch interval."""
TIMES_IDEAL = 3.0
"""Several times what it is while nothing is loaded, or the training step itself holds the lock."""
FEWEST_READINGS = 2
"""In each arm."""
SWITCH_INTERVAL_NS = 5_000_000
"""After which Python takes its lock from a thread, unless `sys.setswitchinterval` changed it."""
SPDL_THREADS = ("spdl.dataloader._dataloader.DataLoader", "spdl.dataloader._cache_dataloader.")
SPDL_PROCESSES = "spdl.dataloader._pytorch_dataloader."


HOW_SURE: dict[Limit, Confidence] = {
    Limit.BUSY: "measured",
    Limit.THREADS_BUSY: "measured",
    Limit.QUEUES: "likely",
    Limit.COSTLIEST: "possible",
}


def slow_operator(case: Case) -> Answer:
    """One stage or operator of the loader's pipeline keeps the others waiting."""
    found = operators_of(case.real)
    if found is None:
        return None
    if case.loss_unknown:
        return case.loss_unknown
    one, limit, share = found.bottleneck, found.limit, case.waiting_share
    if case.lost is None or not share or one is None or limit is None:
        return None
    return Finding(
        Rule.SLOW_OPERATOR,
        severity_of(share),
        HOW_SURE[limit],
        _problem(case, found, one, limit),
        _changes(case, one, limit),
        (
            Fact("spent waiting", share, "share"),
            *facts(
                ("busy", one.busy_share, "share"),
                ("threads busy", found.threads_share, "share"),
                ("a task", one.task_ns, "ns"),
                ("of it in a thread", one.run_ns, "ns"),
                ("of it on a CPU", one.cpu_ns, "ns"),
                ("tasks a batch", one.tasks_per_batch, "tasks"),
                ("queue behind it not empty", one.queue_share, "share"),
            ),
        ),
        share,
    )


def _problem(case: Case, found: OperatorReport, one: Operator, limit: Limit) -> Remark:
    values: dict[str, Value] = {"name": one.name}
    if limit is Limit.BUSY:
        values |= {"busy_share": one.busy_share, "concurrency": one.concurrency}
        return Remark(Problem.OPERATOR_BUSY, values)
    if limit is Limit.THREADS_BUSY:
        values |= {
            "busy_share": min(found.threads_share or 0.0, 1.0),
            "threads": case.loader.workers,
        }
        return Remark(Problem.THREADS_BUSY, values)
    if limit is Limit.QUEUES:
        return Remark(Problem.OPERATOR_STARVES_NEXT, values)
    total_ns = sum(each.batch_ns or 0.0 for each in found.operators)
    values |= {"share": (one.batch_ns or 0.0) / total_ns}
    return Remark(Problem.OPERATOR_COSTLIEST, values)


def _changes(case: Case, one: Operator, limit: Limit) -> tuple[Remark, ...]:
    """More at once, unless Python's lock lets only one of them work; or cheaper work."""
    cheaper = Remark(Advice.CHEAPER_OPERATOR, {"name": one.name})
    if isinstance(python_lock(case), Finding):
        return (cheaper,)
    if limit is Limit.THREADS_BUSY:
        threads: dict[str, Value] = {"setting": "num_threads", "now": case.loader.workers}
        return Remark(Advice.RAISE_THREADS, threads), cheaper
    if one.task_ns is None:  # a source, which does one thing at a time
        return (cheaper,)
    values: dict[str, Value] = {
        "name": one.name,
        "setting": _setting(case.loader.backend),
        "now": one.concurrency,
    }
    return Remark(Advice.RAISE_CONCURRENCY, values), cheaper


def _setting(backend: str) -> str:
    """What sets how many tasks an operator may work on at once."""
    if backend.startswith(SPDL_THREADS):
        return "num_threads"
    return "num_workers" if backend.startswith(SPDL_PROCESSES) else "concurrency"


def python_lock(case: Case) -> Answer:
    """Threads that load in the training process hold Python's lock (GIL).

    It costs the time by which steps are slower. Of the waiting it explains what the pipeline's
    threads neither computed nor waited for a CPU, in as far as the lock is held: the wait for it
    by the switch interval. Of a loader whose stages are not timed it explains no waiting.
    """
    found = threads_of(case.real, case.ideal)
    waits = _lock_waits(case, found)
    if found is None or not isinstance(waits, tuple):
        return None if isinstance(waits, tuple) else waits
    real, ideal = waits
    if real.wait_ns < max(LONG_NS, TIMES_IDEAL * ideal.wait_ns):
        return None
    waiting = case.waiting_share * _share_in_lock(case, found, real)
    cost = case.contention_share + waiting
    return Finding(
        Rule.PYTHON_LOCK,
        severity_of(cost),
        "likely",
        Remark(
            Problem.PYTHON_LOCK_HELD,
            {"threads": _busiest(found), "real_ns": real.wait_ns, "ideal_ns": ideal.wait_ns},
        ),
        (Remark(Advice.USE_PROCESSES),),
        (
            Fact("wait for the GIL, real", real.wait_ns, "ns"),
            Fact("wait for the GIL, ideal", ideal.wait_ns, "ns"),
            Fact("lost in slower steps", case.contention_share, "share"),
            Fact(WAITING_FOR_LOCK, waiting, "share"),
        ),
        cost,
    )


def _busiest(found: ThreadReport) -> str:
    """The name of the threads, beside those of training and ours, that use most CPU time."""
    others = [
        one
        for one in found.threads
        if one.name != "training thread" and not one.name.startswith("loadeval")
    ]
    others.sort(key=lambda one: -(one.cpu_cores["real"] or 0.0))
    return others[0].name if others else "threads of the loader"


WAITING_FOR_LOCK = "lost in waiting, for the GIL"


def waiting_for_lock(finding: Finding) -> float:
    """The share of the steady state that is waited because of the lock, of a `python_lock`."""
    return next(fact.value for fact in finding.evidence if fact.name == WAITING_FOR_LOCK)


def _lock_waits(
    case: Case, found: ThreadReport | None
) -> tuple[LockWait, LockWait] | Remark | None:
    """The wait for the lock in the real and the ideal arm, where threads make training wait."""
    loader = case.loader
    in_processes = loader.start_method is not None or loader.backend.startswith(SPDL_PROCESSES)
    if in_processes or loader.workers == 0:
        return None  # or it loads in the training thread itself
    if found is None:
        return None if loader.workers is None else Remark(Unknown.LOCK_NOT_READ)
    if case.loss_unknown or case.lost is None or case.loads_synchronously:
        return case.loss_unknown
    real, ideal = found.lock_wait["real"], found.lock_wait["ideal"]
    fewest = min(0 if one is None else one.readings for one in (real, ideal))
    if real is None or ideal is None or fewest < FEWEST_READINGS:
        values: dict[str, Value] = {"readings": fewest, "needed": FEWEST_READINGS}
        return Remark(Unknown.FEW_LOCK_READINGS, values)
    return real, ideal


def _share_in_lock(case: Case, threads: ThreadReport, real: LockWait) -> float:
    """The share of the pipeline's work that is waiting for Python's lock."""
    operators = operators_of(case.real)
    timed = [] if operators is None else list(operators.operators)
    run_ns = sum(one.batch_ns or 0.0 for one in timed if one.cpu_ns is not None)
    cpu_ns = sum((one.cpu_ns or 0.0) * one.tasks_per_batch for one in timed)
    if not run_ns:
        return 0.0
    loading = [one for one in threads.threads if one.name != "training thread"]
    cores = sum(one.cpu_cores["real"] or 0.0 for one in loading)
    queued = sum(one.run_queue_cores["real"] or 0.0 for one in loading)
    queued_ns = cpu_ns * queued / cores if cores else 0.0
    blocked = max(1 - (cpu_ns + queued_ns) / run_ns, 0.0)
    return blocked * min(real.wait_ns / SWITCH_INTERVAL_NS, 1.0)
