"""Who uses the CPUs, and how many are left for workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loadeval.analysis.findings.case import Case
    from loadeval.analysis.headroom import Headroom
    from loadeval.runlog.model import Arm

BUSY = 0.9
"""Of the CPUs, from which on nothing is left for anyone who wants more."""
MUCH = 0.5
"""CPUs that others use, from which on it is said."""
HELD_BACK = 0.05
"""Of a control group's periods: when it is out of CPU time in more of them, it has none left."""


def used(case: Case, arm: Arm = "real") -> float | None:
    """CPUs that training and its workers use in one arm; None where it was not read."""
    readings = (case.reading(subject, "cpu_cores") for subject in ("process", "workers"))
    levels = [getattr(one, arm) for one in readings if one is not None]
    found = [level.mean for level in levels if level is not None]
    return sum(found) if found else None


def by_others(case: Case, arm: Arm = "real") -> float | None:
    """CPUs that other programs use in one arm; None where it was not read."""
    own, machine = used(case, arm), case.reading("machine", "cpu_cores")
    level = None if machine is None else getattr(machine, arm)
    return None if own is None or level is None else level.mean - own


def by_others_here(case: Case) -> float:
    """CPUs that others use of those that training may use, where that was read.

    Others are taken to use first those that training may not use.
    """
    others = by_others(case) or 0.0
    every = case.real.header.environment.get("cpus")
    elsewhere = every - case.cpus if isinstance(every, int) and case.cpus else 0
    return max(others - max(elsewhere, 0), 0.0)


def in_use(case: Case) -> float | None:
    """Of the CPUs that training may use, those that anyone uses; None where it was not read."""
    own = used(case)
    return None if own is None else own + by_others_here(case)


def by_workers(case: Case) -> float | None:
    """CPUs that worker processes compute on, all together; None where it is not known."""
    windows = [window for window in case.real.windows if window.arm == "real"]
    spent = [window.workers_cpu_ns for window in windows if window.workers_cpu_ns is not None]
    elapsed_ns = sum(window.elapsed_ns for window in windows)
    # No CPU time at all may mean that the workers are threads of the training process.
    if len(spent) == len(windows) and sum(spent) > 0 and elapsed_ns > 0:
        return sum(spent) / elapsed_ns
    found = case.reading("workers", "cpu_cores")
    return None if found is None or found.real is None else found.real.mean


def left_for_workers(case: Case) -> float | None:
    """CPUs that training may use, less those of its steps and of others; None: not known."""
    own = case.reading("process", "cpu_cores")
    level = None if own is None else own.ideal or own.real
    if case.cpus is None or level is None or by_others(case) is None:
        return None
    return max(case.cpus - level.mean - by_others_here(case), 0.0)


def why_none_left(case: Case) -> str:
    """That no CPU is left for more workers, in words; "" where some is, or where not known."""
    busy, throttled = in_use(case), case.reading("machine", "cgroup_throttled_share")
    if case.cpus is not None and busy is not None and busy >= BUSY * case.cpus:
        told = f"the {case.cpus} CPUs are all busy" if case.cpus > 1 else "the one CPU is busy"
        others = by_others_here(case)
        return told if others < MUCH else f"{told}, {others:.2g} in use by other programs"
    if throttled is not None and throttled.real is not None and throttled.real.mean >= HELD_BACK:
        return "a control group's limit on CPU time holds training back"
    return ""


def to_take_a_batch_ns(case: Case, found: Headroom) -> float | None:
    """CPU time a batch that the training process spends on more than its step; None: not known.

    That is receiving, unpickling and pinning. Steps that loading slows down are taken to compute
    all the time, as they do when batches are free.
    """
    own = case.reading("process", "cpu_cores")
    if own is None or own.real is None or own.ideal is None:
        return None
    step_ns = (1 - case.waiting_share) * (found.real_ns or 0.0)
    return max(own.real.mean * (found.real_ns or 0.0) - own.ideal.mean * step_ns, 0.0)
