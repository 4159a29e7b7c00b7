"""Training that waits for a loader that is fast enough alone: an empty queue, or the hand-over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.findings.case import NO_IDEAL, NOT_ALONE, NotMeasured, severity_of
from loadeval.analysis.findings.finding import Fact, Finding
from loadeval.analysis.findings.setting import deeper_prefetch
from loadeval.analysis.verdict import MODERATE_SHARE, percent

if TYPE_CHECKING:
    from loadeval.analysis.findings.case import Answer, Case
    from loadeval.analysis.headroom import Headroom

EVEN = 2.0
"""The 95th percentile of the waits over their median, up to which all batches wait alike."""
NO_DEPTH = NotMeasured("whether the loader keeps batches ready is not known")


def too_shallow(case: Case) -> Answer:
    """Training waits now and then for a loader that is fast enough alone."""
    found, depth = case.headroom, case.loader.prefetch_depth
    if found is None:
        return NO_IDEAL
    share = _share_waited(case, found)
    if not isinstance(share, float) or _is_hand_over(case, found):
        return share if isinstance(share, NotMeasured) else None
    if depth is None:
        return NO_DEPTH
    deeper = deeper_prefetch(case.loader)
    return Finding(
        rule="shallow queue",
        severity=severity_of(share),
        sentence=(
            f"On its own the loader is fast enough, at {found.required or 0.0:.2f} of an ideal "
            f"cycle a batch, yet training waits for {percent(share)} of its time: its queue runs "
            "empty now and then."
        ),
        evidence=(
            Fact("waiting", share, "share"),
            *case.paces,
            Fact("prefetch depth", depth, "batches"),
        ),
        advice=f"{deeper[0].upper()}{deeper[1:]}; or make the slowest batches cheaper.",
        confidence="likely",
        source="loadeval's three paces",
        cost_share=share,
    )


def hand_over(case: Case) -> Answer:
    """Training waits for every batch of a loader that is fast enough alone."""
    found, waits = case.headroom, case.summary.waits
    if found is None:
        return NO_IDEAL
    share = _share_waited(case, found)
    if not isinstance(share, float) or waits is None or not _is_hand_over(case, found):
        return share if isinstance(share, NotMeasured) else None
    nbytes = case.summary.bytes_per_batch
    return Finding(
        rule="hand-over",
        severity=severity_of(share),
        sentence=(
            "On its own the loader is fast enough, yet training waits for every batch, "
            f"{waits.p50_ns / 1e6:.3g} ms as a rule: that is what handing it over costs, and no "
            "empty queue."
        ),
        evidence=(
            Fact("waiting", share, "share"),
            Fact("wait, p50", waits.p50_ns, "ns"),
            Fact("wait, p95", waits.p95_ns, "ns"),
            *(() if nbytes is None else (Fact("size of a batch", nbytes, "bytes"),)),
        ),
        advice=(
            "A deeper prefetch would not help. Hand over fewer bytes (integers instead of floats, "
            "converted on the device) and fewer, larger tensors; or load in threads, where "
            "nothing is copied between processes."
        ),
        confidence="likely",
        source="waits that are even, or longer than the loader takes for a batch by itself",
        cost_share=share,
    )


def _is_hand_over(case: Case, found: Headroom) -> bool:
    """Whether all batches are waited for alike, or for longer than making one takes."""
    waiting, alone_ns = found.waiting_ns, found.loader_only_ns
    longer = waiting is not None and alone_ns is not None and waiting.value > alone_ns
    return longer or case.waits_are_even(EVEN)


def _share_waited(case: Case, found: Headroom) -> float | NotMeasured | None:
    """The share waited, where the loader alone is fast enough and that matters."""
    if case.unknown_loss:
        return case.unknown_loss
    if case.in_turn or case.lost is None or not found.waiting_ns or not found.real_ns:
        return None
    if found.required is None:
        return NOT_ALONE
    share = found.waiting_ns.value / found.real_ns
    return share if found.required <= 1 and share >= MODERATE_SHARE else None
