"""Who lacks CPUs: steps, workers that wait for them or are kept from them, and other programs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from loadeval.analysis.estimate.verdict import MODERATE_SHARE
from loadeval.analysis.inside.timeline import Stage
from loadeval.analysis.predict.allowed_cpus import SetBy
from loadeval.analysis.remark import Remark
from loadeval.analysis.rules import fixes, operators, stages
from loadeval.analysis.rules.case import severity_of
from loadeval.analysis.rules.finding import Advice, Fact, Finding, Problem, Rule, Unknown, facts
from loadeval.analysis.rules.workers import BUSY, MUCH, no_cpu_left, tried_workers, workers_to
from loadeval.data.run import ARMS

if TYPE_CHECKING:
    from loadeval.analysis.inside.stages import WorkerTime
    from loadeval.analysis.predict.allowed_cpus import AllowedCpus
    from loadeval.analysis.remark import Value
    from loadeval.analysis.rules.case import Answer, Case
    from loadeval.analysis.rules.inside import Inside

IDLE_SHARE = 0.5
"""Workers, however many, that compute on a smaller share of the CPUs do no harm."""
WAITS_FOR_CPU = 0.15
"""Workers that are runnable without a CPU for this share of their time have too few CPUs."""
LONG_FOR_CPU = 0.3
"""From this share on that is said even where it is not known to cost training anything."""
OTHER_THREADS, DESPITE_OMP = 0.5, 1.0
"""A worker's other threads are many that use this share of what the fetching thread does.

That is without pickling. With `OMP_NUM_THREADS=1` they must use more: PyTorch can be told otherwise
in a worker, and OpenCV and tokenizers do not read it.
"""
CONFINED = {
    SetBy.WORKERS: (Problem.WORKERS_CONFINED, Advice.ALLOW_IN_WORKERS),
    SetBy.PROCESS: (Problem.PROCESS_CONFINED, Advice.ALLOW_AFTER_IMPORTS),
    SetBy.STARTER: (Problem.STARTED_CONFINED, Advice.START_WITH_CPUS),
}


def contention(case: Case) -> Answer:
    """Loading takes CPU, memory bandwidth or the GPU from the step."""
    if case.loss_unknown:
        return case.loss_unknown
    slower = case.headroom and case.headroom.contention_ns
    cost = case.contention_share
    if not slower or (slower.low is not None and slower.low <= 0) or cost < MODERATE_SHARE:
        return None
    return Finding(
        Rule.CONTENTION,
        severity_of(cost),
        "measured",
        Remark(Problem.STEPS_SLOWER, {"slower_ns": slower.value}),
        _lighter_loading(case),
        (
            Fact("slower step", slower.value, "ns", slower.low, slower.high),
            *facts(
                ("CPUs in use by training and workers", case.cpu_use.own, "CPUs"),
                ("CPUs available", case.cpus, "CPUs"),
            ),
        ),
        cost,
    )


def _lighter_loading(case: Case) -> tuple[Remark, ...]:
    required = None if case.headroom is None else case.headroom.required
    workers, none_left, used = case.loader.workers, no_cpu_left(case), case.cpu_use.own
    if workers == 0:
        advised = () if case.inside is None else stages.as_many_workers(case, case.inside)
        return Remark(Advice.LOADING_EVICTS_CACHES), *(advised or tried_workers(case, 1))
    # A loader that is too slow with its workers is slower with fewer.
    lowers = workers is not None and workers > 1 and (required is None or required.value <= 1)
    lowers = lowers and (case.inside is None or fixes.one_fewer_does(case.inside))
    less = Remark(Advice.LIGHTER_LOADING)
    if lowers:
        less = workers_to(Advice.LOWER_WORKERS, case.loader)
    if none_left:
        cheaper = Remark(Advice.CHEAPER_ON_DEVICE)
        return (none_left, less, cheaper) if lowers else (none_left, cheaper)
    if used is None or case.cpus is None:
        return (less,)
    free = Advice.CPUS_AND_LOCK_FREE if operators.is_lock_free(case) else Advice.CPUS_FREE
    return less, Remark(free, {"cpus_left": case.cpus - used})


def shared_machine(case: Case) -> Answer:
    """Others used the CPUs, so that the figures are not of this training alone."""
    used = [case.cpu_use.others_in(arm) for arm in ARMS]
    most = max((level for level in used if level is not None), default=None)
    if most is None:
        return Remark(Unknown.CPU_TIME_NOT_READ)
    if most < MUCH:
        return None
    return Finding(
        Rule.SHARED_MACHINE,
        "low",
        "measured",
        Remark(Problem.OTHERS_USE_CPUS, {"others_cpus": most}),
        (Remark(Advice.MEASURE_QUIET),),
        facts(
            ("CPUs in use by others, at most", most, "CPUs"), ("CPUs available", case.cpus, "CPUs")
        ),
    )


def confined(case: Case) -> Answer:
    """Workers, or one of them, may use fewer CPUs than there are."""
    allowed, inside = case.cpu_use.allowed, case.inside
    slow = None if inside is None else inside.waiting_worker
    if allowed is not None and allowed.differ and slow is not None:
        return _one_confined(case, allowed, slow)
    return _all_confined(case, allowed)


def _all_confined(case: Case, allowed: AllowedCpus | None) -> Answer:
    workers = case.loader.workers
    if not workers or allowed is None:
        return Remark(Unknown.AFFINITY_NOT_READ) if workers else None
    set_by, cpus, computing = allowed.set_by, allowed.affinity.workers, case.cpu_use.computing
    workers = workers if case.inside is None else case.inside.setting.workers
    if set_by is None or not allowed.are_kept_from(workers):
        return None
    cost = None
    if case.inside is None:
        if set_by is SetBy.STARTER or computing is None or computing < BUSY * cpus:
            return stages.NOT_LOOKED_INTO
        cost = case.waiting_share
    more = allowed.every - cpus
    values: dict[str, Value] = {"workers": workers, "cpus": cpus, "more": more, "own": allowed.own}
    evidence = facts(
        ("CPUs that the workers may use", cpus, "CPUs"),
        ("number of the first of them", allowed.first, "number"),
        ("CPUs that the training process may use", allowed.own, "CPUs"),
        ("CPUs that there are", allowed.every, "CPUs"),
        ("CPUs used by the workers", computing, "CPUs"),
    )
    problem, advice = CONFINED[set_by]
    changes = [Remark(advice)]
    variables = case.real.header.environment.get("cpu_binding")
    if set_by is SetBy.WORKERS:
        changes += _look_at_init(case)
    if variables:
        changes.append(Remark(Advice.UNSET_BINDING, {"variables": ", ".join(variables)}))
    finding = stages.finding_inside(
        case, Rule.CONFINED, Remark(problem, values), tuple(changes), evidence, cost=cost
    )
    if set_by is SetBy.STARTER and isinstance(finding, Finding):  # which may be what was meant
        return replace(finding, severity="low", confidence="possible", cost_share=None)
    if isinstance(finding, Finding) and set_by is SetBy.PROCESS and allowed.own == allowed.most:
        return replace(finding, confidence="likely")  # by a variable that binds threads
    return finding


def _one_confined(case: Case, allowed: AllowedCpus, slow: tuple[WorkerTime, float]) -> Answer:
    """One worker is slow, for it waits for the few CPUs that it may use."""
    worker, others_ns = slow
    values: dict[str, Value] = {
        "worker": worker.worker,
        "batch_ns": worker.batch_ns,
        "others_ns": others_ns,
        "cpus": allowed.fewest,
        "others_cpus": allowed.affinity.workers,
    }
    finding = stages.finding_inside(
        case,
        Rule.CONFINED,
        Remark(Problem.WORKER_CONFINED, values),
        (Remark(Advice.ALLOW_IN_WORKERS), *_look_at_init(case)),
        (
            *stages.batches_of(slow),
            *facts(
                ("CPUs that one of the workers may use", allowed.fewest, "CPUs"),
                ("CPUs that the workers may use", allowed.affinity.workers, "CPUs"),
            ),
        ),
    )
    # Which of the workers may use fewer CPUs was not read.
    return replace(finding, confidence="likely") if isinstance(finding, Finding) else finding


def _look_at_init(case: Case) -> list[Remark]:
    function = case.loader.worker_init
    return [] if function is None else [Remark(Advice.LOOK_AT_INIT, {"function": function})]


def oversubscription(case: Case) -> Answer:
    """Threads or workers wait for CPUs, or there are more of them than CPUs."""
    measured = _spinning(case) or _workers_wait(case)
    if isinstance(measured, Finding):
        return measured
    if _hardly_wait(case):  # however many there are
        return None
    workers, usable = case.loader.workers, case.cpus
    if workers is None:
        return Remark(Unknown.WORKERS_UNKNOWN)
    if usable is None:
        return Remark(Unknown.CPUS_UNKNOWN)
    none_left, computing = no_cpu_left(case), case.cpu_use.computing
    idle = not none_left and computing is not None and computing < IDLE_SHARE * usable
    if workers <= usable or idle:
        return None
    lower = workers_to(Advice.LOWER, case.loader, usable)
    return Finding(
        Rule.OVERSUBSCRIPTION,
        "low",
        "likely" if none_left else "possible",
        Remark(Problem.MORE_WORKERS_THAN_CPUS, {"workers": workers, "cpus": usable}),
        (none_left, lower) if none_left else (lower,),
        facts(
            ("workers", workers, "workers"),
            ("CPUs", usable, "CPUs"),
            ("CPUs in use", case.cpu_use.busy, "CPUs"),
        ),
    )


def _spinning(case: Case) -> Answer:
    spinning = case.spinning
    if spinning is None:
        return None
    fewer = {"threads": max(spinning.cpus - spinning.workers, 1), "present": spinning.threads}
    share = case.contention_share
    return Finding(
        Rule.OVERSUBSCRIPTION,
        severity_of(share),
        "measured",
        Remark(
            Problem.STEP_SPINS,
            {"threads": spinning.threads, "workers": spinning.workers, "cpus": spinning.cpus},
        ),
        (Remark(Advice.FEWER_THREADS, fewer),),
        facts(
            ("CPU time of a step", spinning.real_ns, "ns"),
            ("with ideal loading", spinning.ideal_ns, "ns"),
        ),
        cost_share=share,
    )


@stages.looks_inside
def _workers_wait(case: Case, inside: Inside) -> Answer:
    """Workers are runnable, and wait for a CPU."""
    cpu_ns, others_ns = inside.stages.cpu_ns or 0.0, inside.stages.other_cpu_ns or 0.0
    pickle = inside.stages.share_of(Stage.PICKLE)  # in a thread that each worker has
    pickle_ns = pickle.work_ns if pickle else 0.0
    least = DESPITE_OMP if case.computes_in_one_thread else OTHER_THREADS
    by_threads = others_ns - pickle_ns >= least * cpu_ns > 0
    if inside.recorded.run_queue < WAITS_FOR_CPU:
        return None
    workers = case.loader.workers or 0
    if by_threads and workers:
        changes: tuple[Remark, ...] = (Remark(Advice.ONE_THREAD_EACH),)
    elif case.cpus is not None and workers > case.cpus:
        fewer = (workers_to(Advice.LOWER, case.loader, case.cpus),)
        # As many as CPUs bring little by themselves: the work is too much for the CPUs.
        changes = (
            Remark(Advice.CHEAPER_OR_CPUS),
            *(fewer if fixes.workers_do(inside, case.cpus) else ()),
        )
    else:
        others = case.cpu_use.competing
        changes = (Remark(Advice.FREE_CPUS, {"others_cpus": others} if others >= MUCH else {}),)
    problem = Remark(Problem.WORKERS_WAIT_FOR_CPU, {"share": inside.recorded.run_queue})
    evidence = facts(
        ("waiting for a CPU", inside.recorded.run_queue, "share"),
        ("CPU time of other threads of a worker, in a batch", others_ns, "ns"),
        ("workers", workers, "workers"),
        ("CPUs", case.cpus, "CPUs"),
    )
    rule = Rule.OVERSUBSCRIPTION
    finding = stages.finding_inside(case, rule, problem, changes, evidence, case.contention_share)
    if (
        finding is None and inside.recorded.run_queue >= LONG_FOR_CPU
    ):  # what training loses was not shown
        return Finding(rule, "low", "measured", problem, changes, evidence)
    return finding


def _hardly_wait(case: Case) -> bool:
    """Whether it was measured that workers do not wait for CPUs, or not for long."""
    inside = case.inside
    if inside is None or inside.stages.run_queue_ns is None:
        return False
    return inside.recorded.run_queue < WAITS_FOR_CPU
