"""Loaders that are too slow, too shallow, or load nothing ahead; and too many workers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from loadeval.analysis.findings.case import THRESHOLDS_OF, NotMeasured, severity_of
from loadeval.analysis.findings.finding import Fact, Finding
from loadeval.analysis.findings.setting import deeper_prefetch, workers_setting
from loadeval.analysis.verdict import MODERATE_SHARE, percent

if TYPE_CHECKING:
    from loadeval.analysis.findings.case import Answer, Case
    from loadeval.analysis.headroom import Headroom
    from loadeval.analysis.intervals import Estimate

NO_IDEAL = NotMeasured("nothing was served for free: measure with mode='alternate'")
NOT_ALONE = NotMeasured(
    "the loader was not timed on its own, which mode='alternate' does where it can"
)
NO_WORKERS_KNOWN = NotMeasured("how many workers the loader has is not known")
NO_BATCH = NotMeasured("no steady batch was measured")
ALTERNATE = "Measure with mode='alternate', which times the loader alone and tells why"
MEASURED_PACES = f"loadeval's three paces; {THRESHOLDS_OF}"


def too_slow(case: Case) -> Answer:
    """The loader cannot keep up, even on its own."""
    found = case.headroom
    if found is None:
        return NO_IDEAL
    lost = case.lost
    if case.loader.workers == 0 or lost is None:
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
        evidence=(Fact("time lost", lost.value, "share", lost.low, lost.high), *_paces(found)),
        advice=_more_capacity(case, found.required),
        confidence="measured",
        source=MEASURED_PACES,
        cost_share=lost.value,
    )


def too_shallow(case: Case) -> Answer:
    """The loader is fast enough on its own, and training waits for it all the same."""
    found = case.headroom
    if found is None:
        return NO_IDEAL
    if case.loader.workers == 0 or case.lost is None or not found.waiting_ns or not found.real_ns:
        return None
    if found.required is None:
        return NOT_ALONE
    waiting_share = found.waiting_ns.value / found.real_ns
    if found.required > 1 or waiting_share < MODERATE_SHARE:
        return None
    deeper = deeper_prefetch(case.loader)
    depth = case.loader.prefetch_depth
    return Finding(
        rule="shallow queue",
        severity=severity_of(waiting_share),
        sentence=(
            f"On its own the loader is fast enough, at {found.required:.2f} of an ideal cycle a "
            f"batch, yet training waits for {percent(waiting_share)} of its time: its queue runs "
            "empty now and then."
        ),
        evidence=(
            Fact("waiting", waiting_share, "share"),
            *_paces(found),
            *(() if depth is None else (Fact("prefetch depth", depth, "batches"),)),
        ),
        advice=f"{deeper[0].upper()}{deeper[1:]}; or make the slowest batches cheaper.",
        confidence="likely",
        source="loadeval's three paces",
        cost_share=waiting_share,
    )


def nothing_ahead(case: Case) -> Answer:
    """The training process loads each batch itself, when it is asked for."""
    if case.loader.workers is None:
        return NO_WORKERS_KNOWN
    found = case.summary
    if found.wait_share is None or found.wait_ns is None or found.step_ns is None:
        return NO_BATCH
    cost = found.wait_share
    if case.headroom is not None:
        cost = 0.0 if case.lost is None else case.lost.value
    if case.loader.workers > 0 or cost < MODERATE_SHARE:
        return None
    needed = max(math.ceil(found.wait_ns / found.step_ns), 1) if found.step_ns else 1
    workers = needed if case.cpus is None else min(needed, case.cpus)
    return Finding(
        rule="zero workers",
        severity=severity_of(cost),
        sentence=(
            "The training process loads each batch itself, and nothing else meanwhile: "
            f"{percent(found.wait_share)} of its time goes into that."
        ),
        evidence=(
            Fact("wait, mean", found.wait_ns, "ns"),
            Fact("step, mean", found.step_ns, "ns"),
            Fact("workers", 0, "workers"),
        ),
        advice=_first_workers(case, workers, needed),
        confidence="likely" if case.headroom is None else "measured",
        source=f"PyTorch's documentation of single- and multi-process loading; {THRESHOLDS_OF}",
        cost_share=cost,
    )


def too_many(case: Case) -> Answer:
    """More workers than CPUs."""
    workers, cpus = case.loader.workers, case.cpus
    if workers is None:
        return NO_WORKERS_KNOWN
    if cpus is None:
        return NotMeasured("how many CPUs there were is not known")
    if workers <= cpus:
        return None
    return Finding(
        rule="too many workers",
        severity="low",
        sentence=(
            f"The loader has {workers} workers, and the training process may use {cpus} CPUs: "
            "they take turns, and take memory each."
        ),
        evidence=(Fact("workers", workers, "workers"), Fact("CPUs", cpus, "CPUs")),
        advice=(
            f"Lower {workers_setting(case.loader)} from {workers} to {cpus} or less, and measure "
            "both; or give the process more CPUs."
        ),
        confidence="possible",
        source="PyTorch warns of the same when a DataLoader is made",
    )


def waits(case: Case) -> Answer:
    """Time goes into loading, and the loader alone was not timed."""
    found = case.headroom
    if case.loader.workers == 0 or (found is not None and found.required is not None):
        return None
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


def _paces(found: Headroom) -> tuple[Fact, ...]:
    paces = (
        ("real cycle", found.real_ns),
        ("ideal cycle", found.ideal_ns),
        ("loader alone", found.loader_only_ns),
    )
    return tuple(Fact(name, pace_ns, "ns") for name, pace_ns in paces if pace_ns is not None)


def _more_capacity(case: Case, required: float) -> str:
    workers, setting = case.loader.workers, workers_setting(case.loader)
    cheaper = "make decoding and transforms cheaper"
    if not workers:
        return f"Give it more workers or threads, or {cheaper}."
    wanted = math.ceil(workers * required)
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


def _first_workers(case: Case, workers: int, needed: int) -> str:
    more = (
        ""
        if needed <= workers
        else f" It would take {needed}, and there are {workers} CPUs: make batches cheaper too."
    )
    return f"Raise {workers_setting(case.loader)} from 0 to {workers}.{more}"
