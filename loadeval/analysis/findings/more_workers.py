"""How many workers are worth a try, and how sure that is: no more than free CPUs allow."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from loadeval.analysis.findings import cpus
from loadeval.analysis.findings.setting import workers_setting

if TYPE_CHECKING:
    from loadeval.analysis.findings.case import Case
    from loadeval.analysis.findings.finding import Confidence
    from loadeval.analysis.headroom import Headroom

COMPUTING = 0.75
"""Of a CPU for each worker, from which on it is taken that workers compute and little else."""
IDLE = 0.25
"""Of a CPU for each worker, under which it is not CPU time, or not that alone, that they lack."""
LEAST_COMPUTING = 0.01
"""Of a CPU for each worker: less is within what CPU times are rounded to."""
TAKING = 0.5
"""Of the time in which the loader alone makes a batch: what taking it may cost training."""
CHEAPER = "make decoding and transforms cheaper"
MORE_CPUS = f"{CHEAPER[0].upper()}{CHEAPER[1:]}, or give the training more CPUs."


class Advice(NamedTuple):
    """What to do, and how sure it is that this is what is wrong.

    `workers` is how many to try; None where more will not help, or how many there are is not known.
    """

    text: str
    confidence: Confidence
    workers: int | None = None


class Need(NamedTuple):
    """CPUs that workers compute on, that they would to keep up, and that are left for them."""

    now: float
    to_keep_up: float
    left: float


def more_workers(case: Case, found: Headroom, required: float) -> Advice:
    """For a loader that must become `required` times as fast."""
    workers, none_left = case.loader.workers, cpus.why_none_left(case)
    computing = cpus.by_workers(case)
    if none_left and workers and computing is not None and computing < IDLE * workers:
        tried = min(math.ceil(workers * required), 2 * workers)
        return _waiting(case, tried, computing, f"for a CPU, since {none_left}, ")
    if none_left:
        shared = cpus.by_others_here(case) >= cpus.MUCH
        again = " Or measure again while nothing else runs." if shared else ""
        return Advice(
            f"More workers will not help: {none_left}. {MORE_CPUS}{again}",
            "possible" if shared else "measured",
        )
    if not workers:
        return Advice(
            "Give it more workers or threads, as far as CPUs are free for them, and measure; or "
            f"{CHEAPER}.",
            "possible",
        )
    taking_ns, alone_ns = cpus.to_take_a_batch_ns(case, found), found.loader_only_ns or 0.0
    if taking_ns is not None and taking_ns >= TAKING * alone_ns:
        return _taking(taking_ns, alone_ns)
    wanted = math.ceil(workers * required)
    left = cpus.left_for_workers(case)
    if computing is None or left is None:
        return _not_read(case, workers, wanted)
    to_keep_up = computing * (found.speedup.value if found.speedup else required)
    return _as_cpus_allow(case, workers, wanted, Need(computing, to_keep_up, left))


def first_workers(case: Case, needed: int) -> str:
    """For a loader without workers, of which so many would keep up."""
    if case.loader.workers is None:
        return (
            "Load in the background: behind torch's DataLoader with a worker (an IterableDataset "
            "for a generator), or in a thread that keeps some batches ready."
        )
    setting, left = workers_setting(case.loader), cpus.left_for_workers(case)
    if left is None:
        most = max((case.cpus or 0) - 1, 1)
        return (
            f"Raise {setting} from 0 to {min(needed, most)}, as far as CPUs are free, and measure."
        )
    most = _rounded(left)
    if not most:
        return (
            f"Raise {setting} from 0 to 1 and measure: no CPU is left for a worker, so it gains "
            f"only the time in which the step or loading waits for something. {MORE_CPUS}"
        )
    raised = f"Raise {setting} from 0 to {min(needed, most)} and measure"
    if needed <= most:
        return f"{raised}."
    return (
        f"{raised}, and {CHEAPER}: keeping up takes {needed} workers, and training and others "
        f"leave {_cpus(left)} of {case.cpus}."
    )


def _as_cpus_allow(case: Case, workers: int, wanted: int, need: Need) -> Advice:
    each = max(need.now / workers, LEAST_COMPUTING)
    most = _rounded(need.left / each)
    if each >= COMPUTING:  # each may want a whole CPU
        most = min(most, case.cpus or most)
    figures = (
        f"the workers compute on {_cpus(need.now)}, keeping up takes {_cpus(need.to_keep_up)}, and "
        f"training and others leave {_cpus(need.left)} of {case.cpus}"
    )
    if most <= workers:
        return Advice(f"More workers will not help: {figures}. {MORE_CPUS}", "measured")
    if each < COMPUTING:
        return _waiting(case, min(wanted, 2 * workers, most), need.now)
    tried = min(wanted, most)
    raised = f"Raise {workers_setting(case.loader)} from {workers} to {tried} and measure"
    if need.to_keep_up > need.left:
        return Advice(f"{raised}, and {CHEAPER}: {figures}.", "measured", tried)
    return Advice(f"{raised}, or {CHEAPER}: {figures}.", "measured", tried)


def _taking(taking_ns: float, alone_ns: float) -> Advice:
    return Advice(
        "More workers will not help: to receive, unpickle and pin a batch the training process "
        f"computes for {taking_ns / 1e6:.3g} of the {alone_ns / 1e6:.3g} ms that the loader alone "
        "takes for one. Pass on tensors instead of NumPy arrays or objects, fewer and larger ones, "
        "and fewer bytes.",
        "likely",
    )


def _not_read(case: Case, workers: int, wanted: int) -> Advice:
    tried = min(wanted, 2 * workers, case.cpus or wanted)
    why = "Not known why: how many CPUs the workers use, and how many are free, was not read"
    if tried <= workers:
        return Advice(f"{why}. There are no more CPUs than workers: {CHEAPER}.", "possible")
    return Advice(
        f"{why}. Try {workers_setting(case.loader)}={tried} and measure: it helps only as far as "
        f"CPUs are free. If it does not, {CHEAPER}.",
        "possible",
        tried,
    )


def _waiting(case: Case, tried: int, computing: float, for_cpus: str = "") -> Advice:
    return Advice(
        f"Not known why: the {case.loader.workers} workers compute on {_cpus(computing)} all "
        f"together, and wait otherwise: {for_cpus}for storage or a network, for a lock, or for "
        "their batches to be passed on. Try "
        f"{workers_setting(case.loader)}={tried} and measure: storage and networks may gain from "
        "it, the others do not.",
        "possible",
        tried,
    )


def _rounded(number: float) -> int:
    return math.floor(number + 0.5)


def _cpus(number: float) -> str:
    told = f"{number:.2g}"
    return f"{told} CPU" if told == "1" else f"{told} CPUs"
