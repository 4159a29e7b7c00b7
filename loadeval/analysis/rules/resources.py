"""What the loader leaves idle, or takes more and more of: the GPU, and memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.estimate.arms import lost_share
from loadeval.analysis.estimate.memory import (
    HOUR_NS,
    LEAST_SHARE,
    GrowthAdvice,
    growth_of,
    memory_left,
)
from loadeval.analysis.estimate.summary import gpu_wait
from loadeval.analysis.estimate.verdict import MODERATE_SHARE
from loadeval.analysis.inside.worker_memory import bytes_kept
from loadeval.analysis.remark import Remark
from loadeval.analysis.rules.finding import Advice, Fact, Finding, Problem, Rule, Unknown, facts
from loadeval.data.columns import UNKNOWN

if TYPE_CHECKING:
    from loadeval.analysis.remark import Value
    from loadeval.analysis.rules.case import Answer, Case

HOURS_OF_A_DAY = 24
PER_BATCHES = 1000
PIN_MEMORY = Remark(
    Advice.PIN_MEMORY, {"setting": "pin_memory", "present": False, "proposed": True}
)
KERNEL_BUSY = "kernel_busy_percent"
IDLE_UNDER = 70.0
"""Percent of the time with ideal loading, under which the step itself keeps the GPU waiting."""


def process_memory(case: Case) -> Answer:
    """The training process keeps more and more."""
    return _growing(case, Rule.PROCESS_MEMORY, "process")


def worker_memory(case: Case) -> Answer:
    """The loader's workers keep more and more."""
    return _kept_by_workers(case) or _growing(case, Rule.WORKER_MEMORY, "workers")


def _kept_by_workers(case: Case) -> Finding | None:
    """What each worker keeps of its batches, as it was read in the workers; None: nothing much."""
    kept, workers = bytes_kept(case.real), case.loader.workers
    available = memory_left(case.real)
    if not kept or not workers or available is None or not len(case.rows):
        return None
    batches = available / kept
    left_ns = batches * float(case.iteration_ns.mean())
    starts_anew = len({start.epoch for start in case.real.worker_starts}) > 1
    if (starts_anew and case.length.batches < batches) or left_ns * LEAST_SHARE > HOUR_NS:
        return None
    values: dict[str, Value] = {
        "workers": workers,
        "each_bytes": PER_BATCHES * kept / workers,
        "available_bytes": available,
        "batches": round(batches),
        "epochs": batches / case.length.batches,
        "left_ns": left_ns,
    }
    return Finding(
        Rule.WORKER_MEMORY,
        "high" if left_ns <= HOURS_OF_A_DAY * HOUR_NS else "moderate",
        "measured",
        Remark(Problem.WORKERS_KEEP_MORE, values),
        (Remark(GrowthAdvice.BOUND_WORKER_CACHES),),
        (
            Fact("kept by all workers, of each batch", kept, "bytes"),
            Fact("memory that is left", available, "bytes"),
        ),
    )


def _growing(case: Case, rule: Rule, subject: str) -> Answer:
    growth = growth_of(case.real, subject)
    rate = growth.bytes_per_hour
    if rate is None or growth.limit_bytes is None:
        return growth.reason
    if growth.advice is None:
        return None
    fills_in_a_day = rate.value * HOURS_OF_A_DAY >= growth.limit_bytes
    growing = {"bytes_per_hour": rate.value, "share_per_hour": rate.value / growth.limit_bytes}
    values: dict[str, Value] = {"subject": subject, "limit_bytes": growth.limit_bytes, **growing}
    return Finding(
        rule,
        "high" if fills_in_a_day else "moderate",
        "measured",
        Remark(Problem.MEMORY_GROWS, values),
        (Remark(growth.advice),),
        (
            Fact("growth in an hour", rate.value, "bytes", rate.low, rate.high),
            Fact("total memory", growth.limit_bytes, "bytes"),
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
    wait = gpu_wait(case.real, "real")
    if wait is None:
        return Remark(Unknown.NO_CUDA)
    if not wait.hidden:
        return None
    wait_ns, idle_ns = wait.wait_ns, wait.gpu_idle_ns
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
    gpu, level = min(levels, key=lambda level_of_gpu: level_of_gpu[1].mean)
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
