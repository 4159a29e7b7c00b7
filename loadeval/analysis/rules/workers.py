"""How many workers are worth a try: no more than free CPUs allow."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from loadeval.analysis.remark import Remark
from loadeval.analysis.rules.finding import Advice

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loadeval.analysis.estimate.headroom import Headroom
    from loadeval.analysis.remark import Value
    from loadeval.analysis.rules.case import Case
    from loadeval.analysis.rules.finding import Confidence, Finding
    from loadeval.data.lines import LoaderInfo

BUSY = 0.9
"""When this share of the CPUs is in use, nothing is left for anyone who wants more."""
MUCH = 0.5
"""When others use so many CPUs, it is said."""
HELD_BACK = 0.05
"""A control group that is out of CPU time in this share of its periods has none left."""
COMPUTING = 0.75
"""Workers that use this share of a CPU each are taken to compute, and to do little else."""
IDLE = 0.25
"""Workers that use less of a CPU each do not lack CPU time alone."""
LEAST_COMPUTING = 0.01
"""Less of a CPU for each worker is within what CPU times are rounded to."""
RECEIVING = 0.5
"""Receiving limits training when it takes this share of what the loader alone does."""
UNNAMED = {"num_workers": "the number of workers"}
"""What a setting is called where the user's name of it is not known."""
TORCHS_OWN_NAMES = {"num_workers": "num_workers", "prefetch_factor": "prefetch_factor"}
PERSISTENT: dict[str, Value] = {"setting": "persistent_workers", "present": False, "proposed": True}
KEEP_WORKERS = Remark(Advice.KEEP_WORKERS, PERSISTENT)
"""It goes with advice on first workers, which start in each epoch otherwise."""


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


def receiving_ns(case: Case, gain: Headroom) -> float | None:
    """CPU time a batch that the training process spends on more than its step; None: not known.

    That is receiving, unpickling and pinning. Steps that loading slows down are taken to compute
    all the time, as they do when loading is ideal.
    """
    own = case.cpu_use.process
    if own is None or own.real is None or own.ideal is None:
        return None
    step_ns = (1 - case.waiting_share) * (gain.real_ns or 0.0)
    return max(own.real.mean * (gain.real_ns or 0.0) - own.ideal.mean * step_ns, 0.0)


def more_workers(case: Case, gain: Headroom, required: float) -> WorkerAdvice:
    """Advice for a loader that must become `required` times as fast."""
    workers, none_left = case.loader.workers or 0, no_cpu_left(case)
    wanted = math.ceil(workers * required)
    if none_left:
        return _on_busy_cpus(case, workers, wanted, none_left)
    if not workers:
        return WorkerAdvice((Remark(Advice.ADD_WORKERS_OR_THREADS),), "possible")
    spent_ns, alone_ns = receiving_ns(case, gain), gain.loader_only_ns or 0.0
    if spent_ns is not None and spent_ns >= RECEIVING * alone_ns:
        times = {"receiving_ns": spent_ns, "loader_only_ns": alone_ns}
        remark = Remark(Advice.RECEIVING_LIMITS, times)
        return WorkerAdvice((Remark(Advice.NO_MORE_WORKERS), remark), "likely")
    computing, left = case.cpu_use.computing, case.cpu_use.left
    if computing is None or left is None:
        return _on_unknown_cpus(case, workers, wanted)
    to_keep_up = computing * (gain.steady_speedup.value if gain.steady_speedup else required)
    return _as_cpus_allow(case, wanted, computing, to_keep_up, left)


def first_workers(case: Case, needed: int) -> tuple[Remark, ...]:
    """Advice for a loader without workers, of which `needed` would keep up."""
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
    """Advice to measure whether first workers help, which live on where they can."""
    tried = workers_to(Advice.TRY_WORKERS, case.loader, proposed)
    return (tried,) if case.loader.persistent_workers is None else (tried, KEEP_WORKERS)


def workers_to(code: Advice, loader: LoaderInfo, proposed: int | None = None) -> Remark:
    """Advice to set the number of workers to `proposed`, or where that is None to fewer."""
    to = {} if proposed is None else {"proposed": proposed}
    return Remark(code, {"setting": "num_workers", "present": loader.workers, **to})


def deeper_prefetch(loader: LoaderInfo, factor: int | None = None) -> Remark:
    """Advice to let `loader` keep twice as many batches ready, or `factor` for each worker."""
    names, depth, workers = names_of(loader), loader.prefetch_depth, loader.workers or 1
    if depth and "prefetch_factor" in names:  # which is each worker's
        present = depth // workers
        values = {"present": present, "proposed": 2 * present if factor is None else factor}
        return Remark(Advice.RAISE, {"setting": "prefetch_factor", **values})
    if depth and "prefetch_depth" in names:
        values = {"present": depth, "proposed": 2 * depth if factor is None else factor * workers}
        return Remark(Advice.RAISE_PREFETCH_DEPTH, {"setting": "prefetch_depth", **values})
    return Remark(Advice.PREFETCH_MORE)


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
    """Advice by the CPUs that workers compute on, need to keep up, and have left."""
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


def names_of(loader: LoaderInfo) -> Mapping[str, str]:
    """What the user calls the loader's settings; those of a DataLoader of torch's in older logs."""
    names = loader.setting_names
    if names is not None:
        return {**UNNAMED, **names}
    is_torchs = loader.persistent_workers is not None or loader.backend.startswith("torch.")
    return TORCHS_OWN_NAMES if is_torchs else UNNAMED


def in_users_words(loader: LoaderInfo, finding: Finding) -> Finding:
    """The finding with settings called as the user sets them, by arguments of a trainer say."""
    names = names_of(loader)
    changes = tuple(
        replace(change, values={**change.values, "setting": names[setting]})
        if isinstance(setting := change.values.get("setting"), str) and setting in names
        else change
        for change in finding.changes
    )
    return replace(finding, changes=changes)
