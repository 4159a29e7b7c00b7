"""Loaders that load nothing ahead, and more workers than CPUs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from loadeval.analysis.findings.case import NO_BATCH, THRESHOLDS_OF, NotMeasured, severity_of
from loadeval.analysis.findings.finding import Fact, Finding
from loadeval.analysis.findings.setting import workers_setting
from loadeval.analysis.verdict import MODERATE_SHARE, percent

if TYPE_CHECKING:
    from loadeval.analysis.findings.case import Answer, Case

NO_WORKERS_KNOWN = NotMeasured("how many workers the loader has is not known")


def nothing_ahead(case: Case) -> Answer:
    """The loader works only while training waits for it."""
    alone_ns = None if case.headroom is None else case.headroom.loader_only_ns
    if case.loader.workers is None and alone_ns is None:
        return NO_WORKERS_KNOWN
    found = case.summary
    if found.wait_share is None or found.wait_ns is None or found.step_ns is None:
        return NO_BATCH
    cost = found.wait_share
    if case.headroom is not None:
        if case.unknown_loss:
            return case.unknown_loss
        cost = 0.0 if case.lost is None else case.lost.value
    if not case.in_turn or cost < MODERATE_SHARE:
        return None
    needed = max(math.ceil(found.wait_ns / found.step_ns), 1) if found.step_ns else 1
    workers = needed if case.cpus is None else min(needed, case.cpus)
    return Finding(
        rule="zero workers",
        severity=severity_of(cost),
        sentence=(
            "Each batch is loaded while training waits for it, and nothing while a step runs: "
            f"{percent(found.wait_share)} of the training time goes into that."
        ),
        evidence=(
            Fact("wait, mean", found.wait_ns, "ns"),
            Fact("step, mean", found.step_ns, "ns"),
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
    if workers <= cpus or case.idle_workers is not None:
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


def _first_workers(case: Case, workers: int, needed: int) -> str:
    if case.loader.workers is None:
        return (
            "Load in the background: behind torch's DataLoader with a worker (an IterableDataset "
            "for a generator), or in a thread that keeps some batches ready."
        )
    more = (
        ""
        if needed <= workers
        else f" It would take {needed}, and there are {workers} CPUs: make batches cheaper too."
    )
    return f"Raise {workers_setting(case.loader)} from 0 to {workers}.{more}"
