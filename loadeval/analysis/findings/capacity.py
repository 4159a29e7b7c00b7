"""Loaders that are too slow, even on their own."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from loadeval.analysis.findings.case import NO_IDEAL, NOT_ALONE, THRESHOLDS_OF, severity_of
from loadeval.analysis.findings.finding import Fact, Finding
from loadeval.analysis.findings.setting import workers_setting

if TYPE_CHECKING:
    from loadeval.analysis.findings.case import Answer, Case

MEASURED_PACES = f"loadeval's three paces; {THRESHOLDS_OF}"


def too_slow(case: Case) -> Answer:
    """The loader cannot keep up, even on its own."""
    found = case.headroom
    if found is None:
        return NO_IDEAL
    if case.unknown_loss:
        return case.unknown_loss
    lost = case.lost
    if case.in_turn or lost is None:
        return None
    if found.required is None:
        return NOT_ALONE
    if found.required <= 1:
        return None
    return Finding(
        rule="capacity",
        severity=severity_of(lost.value),
        sentence=(
            f"The loader is too slow even on its own: it must become {found.required:.2f} times "
            "as fast before training stops waiting for it."
        ),
        evidence=(Fact("time lost", lost.value, "share", lost.low, lost.high), *case.paces),
        advice=_more_capacity(case, found.required),
        confidence="measured",
        source=MEASURED_PACES,
        cost_share=lost.value,
    )


def _more_capacity(case: Case, required: float) -> str:
    workers, setting = case.loader.workers, workers_setting(case.loader)
    cheaper = "make decoding and transforms cheaper"
    if not workers:
        return f"Give it more workers or threads, or {cheaper}."
    wanted = math.ceil(workers * required)
    idle = case.idle_workers
    if idle is not None:
        return (
            f"Raise {setting} from {workers} to {wanted}: the workers compute for {idle:.2g} CPUs "
            "all together and wait otherwise, for files or a network, so more of them than CPUs "
            "do no harm."
        )
    if case.cpus is None or wanted < case.cpus:
        return f"Raise {setting} from {workers} to {wanted}, or {cheaper}."
    if case.cpus > workers:
        return (
            f"Raise {setting} from {workers} to {case.cpus}, one for each CPU, and {cheaper}: "
            f"it would take {wanted}."
        )
    return (
        f"{cheaper[0].upper()}{cheaper[1:]}: there are {case.cpus} CPUs for the {workers} workers "
        f"there are, and it would take {wanted}."
    )
