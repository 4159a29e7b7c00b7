"""Steps that are slower while the loader works."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.findings import cpus
from loadeval.analysis.findings.case import NO_IDEAL, NotMeasured, severity_of
from loadeval.analysis.findings.finding import Fact, Finding
from loadeval.analysis.findings.setting import workers_setting
from loadeval.analysis.verdict import MODERATE_SHARE
from loadeval.runlog.model import ARMS

if TYPE_CHECKING:
    from loadeval.analysis.findings.case import Answer, Case


def contention(case: Case) -> Answer:
    """What loads takes CPU, memory bandwidth or the device from the step."""
    found = case.headroom
    if found is None:
        return NO_IDEAL
    if case.unknown_loss:
        return case.unknown_loss
    slower = found.contention_ns
    cost = case.contention_share
    if slower is None or (slower.low is not None and slower.low <= 0) or cost < MODERATE_SHARE:
        return None
    facts = [Fact("slower step", slower.value, "ns", slower.low, slower.high)]
    used = cpus.used(case)
    if used is not None:
        facts.append(Fact("CPUs in use by training and workers", used, "CPUs"))
    if case.cpus is not None:
        facts.append(Fact("CPUs there are", case.cpus, "CPUs"))
    return Finding(
        rule="contention",
        severity=severity_of(cost),
        sentence=(
            f"A step takes {slower.value / 1e6:.3g} ms longer while batches are loaded: loading "
            "takes something from it."
        ),
        evidence=tuple(facts),
        advice=_advice(case),
        confidence="measured",
        source="loadeval's difference of the steps between the real and the ideal arm",
        cost_share=cost,
    )


def other_programs(case: Case) -> Answer:
    """Someone else used the CPUs, so that the figures are not of this training alone."""
    used = [cpus.by_others(case, arm) for arm in ARMS]
    known = [one for one in used if one is not None]
    if not known:
        return NotMeasured("the CPU time of the machine was not read while batches counted")
    most = max(known)
    if most < cpus.MUCH:
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


def _advice(case: Case) -> str:
    cheaper = "make decoding and transforms cheaper, move them to the device, or"
    used, none_left = cpus.in_use(case), cpus.why_none_left(case)
    if case.loader.workers == 0:
        return (
            "Loading in the training process leaves the CPU's caches and the memory in another "
            "state than a step does: try a worker."
        )
    fewer = f"a smaller {workers_setting(case.loader)}, fewer threads in each worker"
    if none_left:
        why = f"{none_left[0].upper()}{none_left[1:]}"
        return f"{why}: {cheaper} give the training more CPUs. Measure {fewer}."
    if used is None or case.cpus is None:
        return f"Try {fewer}, and less copying; {cheaper} give the training more CPUs."
    return (
        f"Try {fewer}, and less copying: {case.cpus - used:.2g} CPUs are left, so it may be memory "
        "bandwidth, Python's lock, or the device that both want."
    )
