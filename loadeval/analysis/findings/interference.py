"""Steps that are slower while the loader works."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.findings.case import NO_IDEAL, NotMeasured, severity_of
from loadeval.analysis.findings.finding import Fact, Finding
from loadeval.analysis.findings.setting import workers_setting
from loadeval.analysis.verdict import MODERATE_SHARE, percent
from loadeval.record.model import ARMS

if TYPE_CHECKING:
    from loadeval.analysis.findings.case import Answer, Case
    from loadeval.analysis.readings import Quantity
    from loadeval.record.model import Arm

MUCH = 0.5
"""CPUs that others use, from which on it is said."""
BUSY = 0.9
"""Of the CPUs, from which on nothing is left for a step that wants more."""


def contention(case: Case) -> Answer:
    """What loads takes CPU, memory bandwidth or the device from the step."""
    found = case.headroom
    if found is None:
        return NO_IDEAL
    if case.unknown_loss:
        return case.unknown_loss
    slower = found.interference_ns
    if slower is None or slower.low is None or slower.low <= 0 or not found.real_ns:
        return None
    cost = slower.value / found.real_ns
    if cost < MODERATE_SHARE:
        return None
    facts = [Fact("slower step", slower.value, "ns", slower.low, slower.high)]
    used = _cpus_used(case)
    if used is not None:
        facts.append(Fact("CPUs in use by training and workers", used, "CPUs"))
    if case.cpus is not None:
        facts.append(Fact("CPUs there are", case.cpus, "CPUs"))
    return Finding(
        rule="contention",
        severity=severity_of(cost),
        sentence=(
            f"A step takes {slower.value / 1e6:.3g} ms longer while batches are loaded, "
            f"{percent(cost)} of the training time: loading takes something from it."
        ),
        evidence=tuple(facts),
        advice=_advice(case),
        confidence="measured",
        source="loadeval's difference of the steps between the real and the ideal arm",
        cost_share=cost,
    )


def other_programs(case: Case) -> Answer:
    """Someone else used the CPUs, so that the figures are not of this training alone."""
    machine = case.reading("machine", "cpu_cores")
    used = [_others(case, machine, arm) for arm in ARMS]
    known = [one for one in used if one is not None]
    if not known:
        return NotMeasured("the CPU time of the machine was not read while batches counted")
    most = max(known)
    if most < MUCH:
        return None
    return Finding(
        rule="other programs",
        severity="low",
        sentence=(
            f"Other programs used {most:.2g} CPUs while this run was measured: what it tells is of "
            "a machine that was shared, and may change from minute to minute."
        ),
        evidence=(
            Fact("in use by others, at most", most, "CPUs"),
            *(() if case.cpus is None else (Fact("CPUs there are", case.cpus, "CPUs"),)),
        ),
        advice="Measure again while nothing else runs, if this is not how training runs as a rule.",
        confidence="measured",
        source="CPU time of the machine less that of the training process and its workers",
    )


def _others(case: Case, machine: Quantity | None, arm: Arm) -> float | None:
    """CPUs that others used in one arm; None where that is not known."""
    own = _cpus_used(case, arm)
    level = None if machine is None else getattr(machine, arm)
    return None if own is None or level is None else level.mean - own


def _cpus_used(case: Case, arm: Arm = "real") -> float | None:
    quantities = (case.reading(subject, "cpu_cores") for subject in ("process", "workers"))
    levels = [getattr(one, arm) for one in quantities if one is not None]
    found = [level.mean for level in levels if level is not None]
    return sum(found) if found else None


def _in_use(case: Case) -> float | None:
    """CPUs in use by anyone, where that was read, else by training and its workers."""
    machine = case.reading("machine", "cpu_cores")
    if machine is not None and machine.real is not None:
        return machine.real.mean
    return _cpus_used(case)


def _advice(case: Case) -> str:
    cheaper = "make decoding and transforms cheaper, move them to the device, or"
    used = _in_use(case)
    if case.loader.workers == 0:
        return (
            "Loading in the training process leaves the CPU's caches and the memory in another "
            "state than a step does: try a worker."
        )
    fewer = f"a smaller {workers_setting(case.loader)}, fewer threads in each worker"
    if used is None or case.cpus is None:
        return f"Try {fewer}, and less copying; {cheaper} give the training more CPUs."
    if used >= BUSY * case.cpus:
        busy = f"The {case.cpus} CPUs are all busy"
        return f"{busy}: {cheaper} give the training more CPUs. Measure {fewer}."
    return (
        f"Try {fewer}, and less copying: {case.cpus - used:.2g} CPUs are left, so it may be memory "
        "bandwidth, Python's lock, or the device that both want."
    )
