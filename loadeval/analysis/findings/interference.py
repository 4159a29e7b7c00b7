"""Steps that are slower while the loader works."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.findings.capacity import NO_IDEAL
from loadeval.analysis.findings.case import severity_of
from loadeval.analysis.findings.finding import Fact, Finding
from loadeval.analysis.findings.setting import workers_setting
from loadeval.analysis.verdict import MODERATE_SHARE, percent

if TYPE_CHECKING:
    from loadeval.analysis.findings.case import Answer, Case

BUSY = 0.9
"""Of the CPUs, from which on nothing is left for a step that wants more."""


def contention(case: Case) -> Answer:
    """What loads takes CPU, memory bandwidth or the device from the step."""
    found = case.headroom
    if found is None or not found.real_ns:
        return NO_IDEAL
    slower = found.interference_ns
    if slower is None or slower.low is None or slower.low <= 0:
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
        advice=_advice(case, used),
        confidence="measured",
        source="loadeval's difference of the steps between the real and the ideal arm",
        cost_share=cost,
    )


def _cpus_used(case: Case) -> float | None:
    quantities = (case.reading(subject, "cpu_cores") for subject in ("process", "workers"))
    found = [one.real.mean for one in quantities if one is not None and one.real is not None]
    return sum(found) if found else None


def _advice(case: Case, used: float | None) -> str:
    fewer = f"a smaller {workers_setting(case.loader)}, fewer threads in each worker"
    cheaper = "make decoding and transforms cheaper, move them to the device, or"
    if used is None or case.cpus is None:
        return f"Try {fewer}, and less copying; {cheaper} give the training more CPUs."
    if used >= BUSY * case.cpus:
        busy = f"The {case.cpus} CPUs are all busy"
        return f"{busy}: {cheaper} give the training more CPUs. Measure {fewer}."
    return (
        f"Try {fewer}, and less copying: {case.cpus - used:.2g} CPUs are left, so it may be memory "
        "bandwidth, Python's lock, or the device that both want."
    )
