"""Loaders that are too slow, and time that goes into loading for a reason that was not timed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from loadeval.analysis.findings.case import THRESHOLDS_OF, NotMeasured, severity_of
from loadeval.analysis.findings.finding import Fact, Finding
from loadeval.analysis.findings.setting import workers_setting
from loadeval.analysis.verdict import MODERATE_SHARE, percent

if TYPE_CHECKING:
    from loadeval.analysis.findings.case import Answer, Case
    from loadeval.analysis.headroom import Headroom
    from loadeval.analysis.intervals import Estimate

NO_IDEAL = NotMeasured("nothing was served for free: measure with mode='alternate'")
NOT_ALONE = NotMeasured(
    "the loader was not timed on its own, which mode='alternate' does where it can"
)
NO_BATCH = NotMeasured("no steady batch was measured")
ALTERNATE = "Measure with mode='alternate', which times the loader alone and tells why"
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
        evidence=(Fact("time lost", lost.value, "share", lost.low, lost.high), *paces(found)),
        advice=_more_capacity(case, found.required),
        confidence="measured",
        source=MEASURED_PACES,
        cost_share=lost.value,
    )


def waits(case: Case) -> Answer:
    """Time goes into loading, and the loader alone was not timed."""
    found = case.headroom
    if case.loader.workers == 0 or (found is not None and found.required is not None):
        return None
    if found is not None and case.unknown_loss:
        return case.unknown_loss
    if found is not None:
        return None if case.lost is None else _lost_somehow(case.lost)
    share = case.summary.wait_share
    if share is None:
        return NO_BATCH
    return None if share < MODERATE_SHARE else _waited(share)


def _lost_somehow(lost: Estimate) -> Finding:
    return Finding(
        rule="waiting",
        severity=severity_of(lost.value),
        sentence=(
            f"{percent(lost.value)} of the training time is lost to loading. Whether the loader "
            "is too slow, or has too shallow a queue, is not measured."
        ),
        evidence=(Fact("time lost", lost.value, "share", lost.low, lost.high),),
        advice=f"{ALTERNATE}.",
        confidence="measured",
        source=THRESHOLDS_OF,
        cost_share=lost.value,
    )


def _waited(share: float) -> Finding:
    return Finding(
        rule="waiting",
        severity=severity_of(share),
        sentence=(
            f"Training waits for batches for {percent(share)} of its time. How much faster it "
            "would be without is not measured: it may be less, and it may be more."
        ),
        evidence=(Fact("share waited", share, "share"),),
        advice=f"{ALTERNATE}, and what free loading would gain.",
        confidence="possible",
        source=THRESHOLDS_OF,
        cost_share=share,
    )


def paces(found: Headroom) -> tuple[Fact, ...]:
    """What was measured of the three paces."""
    named = (
        ("real cycle", found.real_ns),
        ("ideal cycle", found.ideal_ns),
        ("loader alone", found.loader_only_ns),
    )
    return tuple(Fact(name, pace_ns, "ns") for name, pace_ns in named if pace_ns is not None)


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
