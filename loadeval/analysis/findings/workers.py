"""Loaders that load nothing ahead, and more workers than CPUs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from loadeval.analysis.findings import cpus
from loadeval.analysis.findings.case import NO_BATCH, THRESHOLDS_OF, NotMeasured, severity_of
from loadeval.analysis.findings.finding import Fact, Finding
from loadeval.analysis.findings.more_workers import first_workers
from loadeval.analysis.findings.setting import workers_setting
from loadeval.analysis.verdict import MODERATE_SHARE, percent

if TYPE_CHECKING:
    from loadeval.analysis.findings.case import Answer, Case

IDLE_SHARE = 0.5
"""Of the CPUs: workers that compute on fewer, more of them than CPUs or not, do no harm."""
NO_WORKERS_KNOWN = NotMeasured("how many workers the loader has is not known")


def nothing_ahead(case: Case) -> Answer:
    """The loader works only while training waits for it."""
    alone_ns = None if case.headroom is None else case.headroom.loader_only_ns
    if case.loader.workers is None and alone_ns is None:
        return NO_WORKERS_KNOWN
    found = case.summary
    if found.wait_share is None or found.wait_ns is None or found.step_ns is None:
        return NO_BATCH
    lost = found.wait_share
    if case.headroom is not None:
        if case.unknown_loss:
            return case.unknown_loss
        lost = 0.0 if case.lost is None else case.lost.value
    if not case.in_turn or lost < MODERATE_SHARE:
        return None
    needed = max(math.ceil(found.wait_ns / found.step_ns), 1) if found.step_ns else 1
    return Finding(
        rule="zero workers",
        severity=severity_of(case.waiting_share),
        sentence=(
            "Each batch is loaded while training waits for it, and nothing while a step runs: "
            f"{percent(found.wait_share)} of the training time goes into that."
        ),
        evidence=(
            Fact("wait, mean", found.wait_ns, "ns"),
            Fact("step, mean", found.step_ns, "ns"),
        ),
        advice=first_workers(case, needed),
        confidence="likely" if case.headroom is None else "measured",
        source=f"PyTorch's documentation of single- and multi-process loading; {THRESHOLDS_OF}",
        cost_share=case.waiting_share,
    )


def too_many(case: Case) -> Answer:
    """More workers than CPUs."""
    workers, usable = case.loader.workers, case.cpus
    if workers is None:
        return NO_WORKERS_KNOWN
    if usable is None:
        return NotMeasured("how many CPUs there were is not known")
    none_left, computing = cpus.why_none_left(case), cpus.by_workers(case)
    idle = not none_left and computing is not None and computing < IDLE_SHARE * usable
    if workers <= usable or idle:
        return None
    because, busy = f" ({none_left})" if none_left else "", cpus.in_use(case)
    return Finding(
        rule="too many workers",
        severity="low",
        sentence=(
            f"The loader has {workers} workers, and the training process may use {usable} CPUs: "
            f"they share CPUs{because}, and each uses memory."
        ),
        evidence=(
            Fact("workers", workers, "workers"),
            Fact("CPUs", usable, "CPUs"),
            *(() if busy is None else (Fact("CPUs in use", busy, "CPUs"),)),
        ),
        advice=(
            f"Lower {workers_setting(case.loader)} from {workers} to {usable} or less, and measure "
            "both; or give the process more CPUs."
        ),
        confidence="likely" if none_left else "possible",
        source="PyTorch warns of the same when a DataLoader is made",
    )
