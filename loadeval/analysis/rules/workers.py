"""How many workers are worth a try: no more than free CPUs allow."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from loadeval.analysis.remark import Remark
from loadeval.analysis.rules.finding import Advice

if TYPE_CHECKING:
    from loadeval.analysis.headroom import Headroom
    from loadeval.analysis.remark import Value
    from loadeval.analysis.rules.case import Case
    from loadeval.analysis.rules.finding import Confidence, Finding
    from loadeval.runlog.model import LoaderInfo

BUSY = 0.9
"""Of the CPUs, from which on nothing is left for anyone who wants more."""
MUCH = 0.5
"""CPUs that others use, from which on it is said."""
HELD_BACK = 0.05
"""Of a control group's periods: when it is out of CPU time in more of them, it has none left."""
COMPUTING = 0.75
"""Of a CPU for each worker, from which on it is taken that workers compute and little else."""
IDLE = 0.25
"""Of the CPU that each worker could have: under it, it is not CPU time alone that they lack."""
LEAST_COMPUTING = 0.01
"""Of a CPU for each worker: less is within what CPU times are rounded to."""
RECEIVING = 0.5
"""Of the time in which the loader alone makes a batch: what receiving it may cost training."""
WORKERS_SETTINGS = {
    "torch": "num_workers",
    "torchdata": "num_workers",
    "accelerate": "num_workers",
    "lightning": "num_workers",
    "webdataset": "num_workers",
    "litdata": "num_workers",
    "ultralytics": "workers",
    "nvidia": "num_threads",
    "spdl": "num_threads",
}
"""By the package that the loader's class is from; other DataLoaders have torch's arguments."""
PREFETCH_SETTINGS = {
    "torch": "prefetch_factor",
    "nvidia": "prefetch_queue_depth",
    "spdl": "buffer_size",
}
TRAINERS_SETTINGS = {
    "transformers": {
        name: f"dataloader_{name}"
        for name in ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers")
    }
}
"""By the package whose trainer made the loader, what its arguments for settings are called."""
PERSISTENT: dict[str, Value] = {"setting": "persistent_workers", "present": False, "proposed": True}
KEEP_WORKERS = Remark(Advice.KEEP_WORKERS, PERSISTENT)
"""Beside advice on first workers, which start in each epoch otherwise."""


class WorkerAdvice(NamedTuple):
    """What to do, and how sure it is that this is what is wrong."""

    changes: tuple[Remark, ...]
    confidence: Confidence


def no_cpu_left(case: Case) -> Remark | None:
    """Why no CPU is left for more workers; None where some is, or where that is not known."""
    use, throttled = case.cpu_use, case.reading("machine", "cgroup_throttled_share")
    if use.usable is not None and use.busy is not None and use.busy >= BUSY * use.usable:
        others = use.competing
        by_others = {"others_cpus": others} if others >= MUCH else {}
        return Remark(Advice.CPUS_BUSY, {"cpus": use.usable, **by_others})
    if throttled is not None and throttled.real is not None and throttled.real.mean >= HELD_BACK:
        return Remark(Advice.CPU_TIME_LIMITED, {"throttled_share": throttled.real.mean})
    return None


def receiving_ns(case: Case, found: Headroom) -> float | None:
    """CPU time a batch that the training process spends on more than its step; None: not known.

    That is receiving, unpickling and pinning. Steps that loading slows down are taken to compute
    all the time, as they do when loading is ideal.
    """
    own = case.cpu_use.process
    if own is None or own.real is None or own.ideal is None:
        return None
    step_ns = (1 - case.waiting_share) * (found.real_ns or 0.0)
    return max(own.real.mean * (found.real_ns or 0.0) - own.ideal.mean * step_ns, 0.0)


def more_workers(case: Case, found: Headroom, required: float) -> WorkerAdvice:
    """For a loader that must become `required` times as fast."""
    workers, none_left = case.loader.workers or 0, no_cpu_left(case)
    wanted = math.ceil(workers * required)
    if none_left:
        return _on_busy_cpus(case, workers, wanted, none_left)
    if not workers:
        return WorkerAdvice((Remark(Advice.ADD_WORKERS_OR_THREADS),), "possible")
    spent_ns, alone_ns = receiving_ns(case, found), found.loader_only_ns or 0.0
    if spent_ns is not None and spent_ns >= RECEIVING * alone_ns:
        times = {"receiving_ns": spent_ns, "loader_only_ns": alone_ns}
        remark = Remark(Advice.RECEIVING_LIMITS, times)
        return WorkerAdvice((Remark(Advice.NO_MORE_WORKERS), remark), "likely")
    computing, left = case.cpu_use.computing, case.cpu_use.left
    if computing is None or left is None:
        return _on_unknown_cpus(case, workers, wanted)
    to_keep_up = computing * (found.steady_speedup.value if found.steady_speedup else required)
    return _as_cpus_allow(case, wanted, computing, to_keep_up, left)


def first_workers(case: Case, needed: int) -> tuple[Remark, ...]:
    """For a loader without workers, of which `needed` would keep up."""
    if case.loader.workers is None:
        return (Remark(Advice.LOAD_IN_BACKGROUND),)
    left = case.cpu_use.left
    if left is None:
        most = max((case.cpus or 0) - 1, 1)
        return *tried_workers(case, min(needed, most)), Remark(Advice.CPU_USE_NOT_READ)
    most = _rounded(left)
    tried = tried_workers(case, max(min(needed, most), 1))
    if not most:
        return *tried, Remark(Advice.NO_CPU_FOR_WORKER), Remark(Advice.CHEAPER_OR_CPUS)
    if needed <= most:
        return tried
    figures = {"workers": needed, "cpus_left": left, "cpus": case.cpus}
    return *tried, Remark(Advice.WORKERS_NEEDED, figures), Remark(Advice.CHEAPER_ALSO)


def tried_workers(case: Case, proposed: int) -> tuple[Remark, ...]:
    """To measure whether first workers help, which live on where they can."""
    tried = workers_to(Advice.TRY_WORKERS, case.loader, proposed)
    return (tried,) if case.loader.persistent_workers is None else (tried, KEEP_WORKERS)


def workers_to(code: Advice, loader: LoaderInfo, proposed: int | None = None) -> Remark:
    """To set the number of workers from what it is to `proposed`, or to less where that is None."""
    setting = WORKERS_SETTINGS.get(_package(loader), "the number of workers")
    if loader.persistent_workers is not None:  # a DataLoader of whatever package
        setting = "num_workers"
    to = {} if proposed is None else {"proposed": proposed}
    return Remark(code, {"setting": setting, "present": loader.workers, **to})


def deeper_prefetch(loader: LoaderInfo, factor: int | None = None) -> Remark:
    """To let `loader` keep twice as many batches ready, or `factor` for each worker."""
    setting, depth = PREFETCH_SETTINGS.get(_package(loader)), loader.prefetch_depth
    if setting is None or not depth:
        return Remark(Advice.PREFETCH_MORE)
    workers = loader.workers or 1
    code, present, each = Advice.RAISE_PREFETCH_DEPTH, depth, workers
    if setting == "prefetch_factor":  # which is each worker's
        code, present, each = Advice.RAISE, depth // workers, 1
    proposed = 2 * present if factor is None else factor * each
    return Remark(code, {"setting": setting, "present": present, "proposed": proposed})


def _on_busy_cpus(case: Case, workers: int, wanted: int, none_left: Remark) -> WorkerAdvice:
    computing = case.cpu_use.computing
    at_most = min(workers, case.cpus or workers)  # more workers than CPUs cannot have one each
    if computing is not None and computing < IDLE * at_most:
        return _mostly_waiting(case, min(wanted, 2 * workers), computing, none_left)
    changes = (Remark(Advice.NO_MORE_WORKERS), none_left, Remark(Advice.CHEAPER_OR_CPUS))
    if case.cpu_use.competing < MUCH:
        return WorkerAdvice(changes, "measured")
    return WorkerAdvice((*changes, Remark(Advice.MEASURE_QUIET)), "possible")


def _on_unknown_cpus(case: Case, workers: int, wanted: int) -> WorkerAdvice:
    unread, tried = Remark(Advice.CPU_USE_NOT_READ), min(wanted, 2 * workers, case.cpus or wanted)
    if tried <= workers:
        return WorkerAdvice((unread, Remark(Advice.CHEAPER_OR_CPUS)), "possible")
    raised = workers_to(Advice.RAISE, case.loader, tried)
    return WorkerAdvice((raised, unread, Remark(Advice.CHEAPER_INSTEAD)), "possible")


def _as_cpus_allow(
    case: Case, wanted: int, computing: float, to_keep_up: float, left: float
) -> WorkerAdvice:
    """By the CPUs that workers compute on, those they need to keep up, and those left for them."""
    workers = case.loader.workers or 0
    each = max(computing / workers, LEAST_COMPUTING)
    most = _rounded(left / each)
    if each >= COMPUTING:  # each may want a whole CPU
        most = min(most, case.cpus or most)
    figures = {"used": computing, "needed": to_keep_up, "left": left, "cpus": case.cpus}
    needed = Remark(Advice.CPUS_NEEDED, figures)
    if most <= workers:
        changes = (Remark(Advice.NO_MORE_WORKERS), needed, Remark(Advice.CHEAPER_OR_CPUS))
        return WorkerAdvice(changes, "measured")
    if each < COMPUTING:
        return _mostly_waiting(case, min(wanted, 2 * workers, most), computing)
    raised = workers_to(Advice.RAISE, case.loader, min(wanted, most))
    other = Remark(Advice.CHEAPER_INSTEAD if to_keep_up <= left else Advice.CHEAPER_ALSO)
    return WorkerAdvice((raised, needed, other), "measured")


def _mostly_waiting(
    case: Case, tried: int, computing: float, none_left: Remark | None = None
) -> WorkerAdvice:
    values = {"workers": case.loader.workers, "used": computing}
    waiting = Remark(Advice.WORKERS_MOSTLY_WAIT, values)
    raised = workers_to(Advice.RAISE, case.loader, tried)
    return WorkerAdvice((waiting, *([none_left] if none_left else []), raised), "possible")


def _rounded(number: float) -> int:
    return math.floor(number + 0.5)


def _package(loader: LoaderInfo) -> str:
    package = loader.backend.split(".", maxsplit=1)[0]
    is_like_torchs = loader.adapter.startswith("loadeval_adapters.pytorch.")
    return "torch" if is_like_torchs and package not in WORKERS_SETTINGS else package


def in_trainers_words(loader: LoaderInfo, finding: Finding) -> Finding:
    """The finding with settings called as the arguments of the trainer that made the loader."""
    names = TRAINERS_SETTINGS.get(loader.made_by or "", {})
    changes = tuple(
        replace(one, values={**one.values, "setting": names[setting]})
        if isinstance(setting := one.values.get("setting"), str) and setting in names
        else one
        for one in finding.changes
    )
    return replace(finding, changes=changes)
