"""Training that waits for a loader that is fast enough alone: an empty queue, or each batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.findings.case import NO_IDEAL, NOT_ALONE, NotMeasured, severity_of
from loadeval.analysis.findings.finding import Fact, Finding
from loadeval.analysis.findings.setting import deeper_prefetch
from loadeval.analysis.verdict import MODERATE_SHARE, percent

if TYPE_CHECKING:
    from loadeval.analysis.findings.case import Answer, Case
    from loadeval.analysis.findings.finding import Place
    from loadeval.analysis.headroom import Headroom

TIMES_MEDIAN = 2.0
"""A wait over so many times the median is a stall by what it exceeds that."""
MOST_IN_STALLS = 0.2
"""Of the waiting: where stalls hold more of it, batches are not waited for alike.

A share of the time, and no percentile: one batch in 25 is beyond the 95th, and may hold it all.
"""
SLOWEST_COPY_BYTES_PER_NS = 0.4
"""The slowest way of passing a batch between processes: 0.4 GB/s.

Measured with torch 2.13 on four cores, as waits in `next()` for one worker's batches: NumPy arrays
through a pipe, 19 MB in 40 ms (0.48 GB/s) and 2 MB in 4.9 ms (0.41 GB/s); tensors through shared
memory, 19 MB in 0.8 to 4.2 ms. A batch of 1 kB takes 0.4 to 1.3 ms, one of 200 kB no longer.
"""
NO_DEPTH = NotMeasured("whether the loader keeps batches ready is not known")


def too_shallow(case: Case) -> Answer:
    """Training waits now and then for a loader that is fast enough alone."""
    found, depth = case.headroom, case.loader.prefetch_depth
    if found is None:
        return NO_IDEAL
    share = _share_waited(case, found)
    if not isinstance(share, float):
        return share
    stalled = _share_in_stalls(case)
    if stalled <= MOST_IN_STALLS:
        return None
    if depth is None:
        return NO_DEPTH
    wait_ns, ideal_ns, alone_ns = (
        one or 0.0 for one in (case.summary.wait_ns, found.ideal_ns, found.loader_only_ns)
    )
    return Finding(
        rule="shallow queue",
        severity=severity_of(share),
        sentence=(
            f"On its own the loader is fast enough, at {found.required or 0.0:.2f} of an ideal "
            f"iteration a batch, yet training waits for {percent(share)} of its time: its queue runs "
            "empty now and then."
        ),
        evidence=(
            Fact("waiting", share, "share"),
            Fact("of it in stalls", stalled, "share"),
            *case.paces,
            Fact("prefetch depth", depth, "batches"),
        ),
        advice=_deeper(case, depth * ideal_ns),
        # What is longer than making a batch takes is no empty queue alone.
        confidence="possible" if wait_ns > alone_ns else "likely",
        source="loadeval's three paces",
        cost_share=share,
        places=_stalls(case),
    )


def hand_over(case: Case) -> Answer:
    """Training waits for every batch of a loader that is fast enough alone."""
    found, waits = case.headroom, case.summary.waits
    if found is None:
        return NO_IDEAL
    share = _share_waited(case, found)
    if not isinstance(share, float):
        return share
    stalled = _share_in_stalls(case)
    if waits is None or stalled > MOST_IN_STALLS:
        return None
    nbytes = case.summary.bytes_per_batch
    copies = nbytes is not None and nbytes >= SLOWEST_COPY_BYTES_PER_NS * waits.p50_ns / 2
    return Finding(
        rule="hand-over",
        severity=severity_of(share),
        sentence=(
            "On its own the loader is fast enough, yet training waits about as long for every "
            f"batch, {waits.p50_ns / 1e6:.3g} ms as a rule: a cost of each batch, and no empty "
            "queue."
        ),
        evidence=(
            Fact("waiting", share, "share"),
            Fact("of it in stalls", stalled, "share"),
            Fact("wait, p50", waits.p50_ns, "ns"),
            Fact("wait, p95", waits.p95_ns, "ns"),
            *(() if nbytes is None else (Fact("size of a batch", nbytes, "bytes"),)),
        ),
        advice=_against_hand_over(case, copies),
        confidence="likely" if copies else "possible",
        source="waits that are alike, and how fast batches pass between processes with torch 2.13",
        cost_share=share,
    )


def _share_in_stalls(case: Case) -> float:
    """The share of the waiting that is above twice the median wait."""
    beyond_ns = case.wait_ns - TIMES_MEDIAN * np.median(case.wait_ns)
    return float(beyond_ns[beyond_ns > 0].sum() / case.wait_ns.sum())


def _stalls(case: Case) -> tuple[Place, ...]:
    stalls = np.flatnonzero(case.wait_ns > TIMES_MEDIAN * np.median(case.wait_ns))
    return case.places(case.rows[stalls], case.wait_ns[stalls].astype(np.float64))


def _deeper(case: Case, hidden_ns: float) -> str:
    """Advice where as many batches more in the queue as there are would hide `hidden_ns`."""
    deeper, longest_ns = deeper_prefetch(case.loader), float(case.wait_ns.max())
    hides = (
        f"that hides up to {hidden_ns / 1e6:.3g} ms more of a stall, and the longest wait was "
        f"{longest_ns / 1e6:.3g} ms"
    )
    if hidden_ns >= longest_ns:
        return f"{deeper[0].upper()}{deeper[1:]} and measure: {hides}."
    return (
        f"Look at what makes the slowest batches slow, or {deeper} and measure: {hides}, so that "
        "a deeper queue alone is not enough."
    )


def _against_hand_over(case: Case, copies: bool) -> str:
    if copies:
        return (
            "A deeper prefetch would not help. Batches are so large that copying them between "
            "processes may take that long: try tensors instead of NumPy arrays, fewer bytes "
            "(integers instead of floats, converted on the device), or threads, which copy "
            "nothing, and measure."
        )
    pinning = "" if case.loader.pinned is False else ", pinning"
    return (
        "A deeper prefetch would not help. Not known why: it may be what passing any batch between "
        "processes costs (each tensor in it, objects that are unpickled)"
        f"{pinning}, or a slow sampler. Try fewer and larger tensors in a batch, and measure."
    )


def _share_waited(case: Case, found: Headroom) -> float | NotMeasured | None:
    """The share waited, where the loader alone is fast enough and that matters."""
    if case.unknown_loss:
        return case.unknown_loss
    if case.in_turn or case.lost is None:
        return None
    if found.required is None:
        return NOT_ALONE
    share = case.waiting_share
    return share if found.required <= 1 and share >= MODERATE_SHARE else None
