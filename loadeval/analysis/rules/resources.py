"""What loading takes from training, or training from the machine: CPUs, the GPU, memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.arms import lost_share
from loadeval.analysis.memory import growth_of
from loadeval.analysis.remark import Remark
from loadeval.analysis.rules import fixes, stages
from loadeval.analysis.rules.case import severity_of
from loadeval.analysis.rules.finding import Advice, Fact, Finding, Problem, Rule, Unknown, facts
from loadeval.analysis.rules.workers import MUCH, no_cpu_left, tried_workers, workers_to
from loadeval.analysis.summary import gpu_wait
from loadeval.analysis.verdict import MODERATE_SHARE
from loadeval.runlog.columns import UNKNOWN
from loadeval.runlog.model import ARMS

if TYPE_CHECKING:
    from loadeval.analysis.remark import Value
    from loadeval.analysis.rules.case import Answer, Case

IDLE_SHARE = 0.5
"""Of the CPUs: workers that compute on fewer, more of them than CPUs or not, do no harm."""
HOURS_OF_A_DAY = 24
PIN_MEMORY = Remark(
    Advice.PIN_MEMORY, {"setting": "pin_memory", "present": False, "proposed": True}
)
KERNEL_BUSY = "kernel_busy_percent"
IDLE_UNDER = 70.0
"""Percent of the time with ideal loading, under which the step itself keeps the GPU waiting."""


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


def shared_machine(case: Case) -> Answer:
    """Others used the CPUs, so that the figures are not of this training alone."""
    used = [case.cpu_use.others_in(arm) for arm in ARMS]
    most = max((one for one in used if one is not None), default=None)
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


def oversubscription(case: Case) -> Answer:
    """Threads or workers wait for CPUs, or there are more of them than CPUs."""
    measured = _spinning(case) or stages.oversubscription(case)
    if isinstance(measured, Finding):
        return measured
    if stages.hardly_wait_for_cpus(case):  # however many there are
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
    found = case.spinning
    if found is None:
        return None
    fewer = {"threads": max(found.cpus - found.workers, 1), "present": found.threads}
    share = case.contention_share
    return Finding(
        Rule.OVERSUBSCRIPTION,
        severity_of(share),
        "measured",
        Remark(
            Problem.STEP_SPINS,
            {"threads": found.threads, "workers": found.workers, "cpus": found.cpus},
        ),
        (Remark(Advice.FEWER_THREADS, fewer),),
        facts(
            ("CPU time of a step", found.real_ns, "ns"),
            ("with ideal loading", found.ideal_ns, "ns"),
        ),
        cost_share=share,
    )


def process_memory(case: Case) -> Answer:
    """The training process keeps more and more."""
    return _growing(case, Rule.PROCESS_MEMORY, "process")


def worker_memory(case: Case) -> Answer:
    """The loader's workers keep more and more."""
    return _growing(case, Rule.WORKER_MEMORY, "workers")


def _growing(case: Case, rule: Rule, subject: str) -> Answer:
    found = growth_of(case.real, subject)
    rate = found.bytes_per_hour
    if rate is None or found.limit_bytes is None:
        return found.reason
    if found.advice is None:
        return None
    fills_in_a_day = rate.value * HOURS_OF_A_DAY >= found.limit_bytes
    growing = {"bytes_per_hour": rate.value, "share_per_hour": rate.value / found.limit_bytes}
    values: dict[str, Value] = {"subject": subject, "limit_bytes": found.limit_bytes, **growing}
    return Finding(
        rule,
        "high" if fills_in_a_day else "moderate",
        "measured",
        Remark(Problem.MEMORY_GROWS, values),
        (Remark(found.advice),),
        (
            Fact("growth in an hour", rate.value, "bytes", rate.low, rate.high),
            Fact("total memory", found.limit_bytes, "bytes"),
        ),
    )


def unpinned_memory(case: Case) -> Answer:
    """Batches lie in memory that the GPU cannot read by itself."""
    if not (case.real.steps.gpu_idle_ns != UNKNOWN).any():
        return Remark(Unknown.NO_CUDA)
    pinned = case.loader.pinned
    if pinned is None:
        return Remark(Unknown.PINNING_UNKNOWN)
    if pinned or str(case.loader.device or "cpu").startswith(("cuda", "gpu")):
        return None
    return Finding(
        Rule.UNPINNED_MEMORY,
        "low",
        "possible",
        Remark(Problem.BATCHES_UNPINNED),
        (PIN_MEMORY,),
        facts(
            ("batches that are not pinned", case.real.batches, "batches"),
            ("size of a batch", case.summary.bytes_per_batch, "bytes"),
        ),
    )


def waits_hidden(case: Case) -> Answer:
    """Training waits, and its GPU has work meanwhile."""
    found = gpu_wait(case.real, "real")
    if found is None:
        return Remark(Unknown.NO_CUDA)
    if not found.hidden:
        return None
    wait_ns, idle_ns = found.wait_ns, found.gpu_idle_ns
    return Finding(
        Rule.HIDDEN_WAITS,
        "low",
        "measured",
        Remark(Problem.WAITS_HIDDEN, {"wait_ns": wait_ns, "gpu_idle_ns": idle_ns}),
        (Remark(Advice.KEEP_LOADER),),
        (Fact("wait, mean", wait_ns, "ns"), Fact("GPU idle while waiting", idle_ns, "ns")),
        0.0,
    )


def idle_gpu(case: Case) -> Answer:
    """Loading is not the limit, and the GPU is idle all the same."""
    steady_speedup = case.headroom and case.headroom.steady_speedup
    if not steady_speedup:
        return case.loss_unknown
    lost = lost_share(steady_speedup)
    levels = [
        (quantity.subject, quantity.ideal)
        for quantity in case.readings_named(KERNEL_BUSY)
        if quantity.ideal is not None
    ]
    if not levels:
        return Remark(Unknown.GPU_NOT_READ)
    gpu, level = min(levels, key=lambda one: one[1].mean)
    high = lost.value if lost.high is None else lost.high
    if high >= MODERATE_SHARE or level.mean >= IDLE_UNDER:
        return None
    busy = level.mean / 100
    return Finding(
        Rule.IDLE_GPU,
        "moderate",
        "likely",
        Remark(Problem.GPU_IDLE, {"gpu": gpu, "idle_share": 1 - busy}),
        (Remark(Advice.PROFILE_STEP),),
        (
            Fact("GPU busy with ideal loading", busy, "share"),
            Fact("steady time lost", lost.value, "share"),
        ),
    )


def _lighter_loading(case: Case) -> tuple[Remark, ...]:
    required = None if case.headroom is None else case.headroom.required
    workers, none_left, used = case.loader.workers, no_cpu_left(case), case.cpu_use.own
    if workers == 0:
        return Remark(Advice.LOADING_EVICTS_CACHES), *tried_workers(case, 1)
    # A loader that is too slow with its workers is slower with fewer.
    lowers = workers is not None and workers > 1 and (required is None or required.value <= 1)
    lowers = lowers and (case.inside is None or fixes.fewer_workers_do(case.inside))
    less = Remark(Advice.LIGHTER_LOADING)
    if lowers:
        less = workers_to(Advice.LOWER_WORKERS, case.loader)
    if none_left:
        cheaper = Remark(Advice.CHEAPER_ON_DEVICE)
        return (none_left, less, cheaper) if lowers else (none_left, cheaper)
    if used is None or case.cpus is None:
        return (less,)
    return less, Remark(Advice.CPUS_FREE, {"cpus_left": case.cpus - used})
