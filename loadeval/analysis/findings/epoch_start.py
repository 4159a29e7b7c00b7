"""Time before an epoch's first batch: once, and at every epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.findings.case import NotMeasured, severity_of
from loadeval.analysis.findings.finding import Fact, Finding
from loadeval.analysis.summary import epoch_starts
from loadeval.analysis.verdict import HIGH_SHARE, MODERATE_SHARE, percent

if TYPE_CHECKING:
    from loadeval.analysis.findings.case import Answer, Case
    from loadeval.analysis.findings.finding import Confidence

SOURCE = "first waits of the epochs, set against a whole epoch at the steady pace"
FEW_BATCHES = 2.0
"""Times what a worker takes for one batch: a first wait of no more is for that batch."""
WORKERS_STAY = (
    "Its workers stay, so this is what they do for the first batch: filling a shuffle buffer, "
    "opening files, listing shards. Make that cheaper, or epochs longer."
)
WORKERS_OR_DATA = (
    "Not known which: workers that are started anew, or what the dataset does as an epoch begins, "
    "such as filling a shuffle buffer. Try persistent_workers=True and compare this wait: it ends "
    "the first, and leaves the second as it is. Or make epochs longer."
)
NOT_KNOWN = (
    "Not known why: see what the loader does for the first batch of each epoch (opening files, "
    "listing shards, filling a shuffle buffer), let it do that once, or make epochs longer."
)
NO_START = NotMeasured("no epoch shows what its first batch costs")
NO_LENGTH = NotMeasured("how long an epoch is, or how fast it goes on, is not known")


def slow_start(case: Case) -> Answer:
    """The first batch of all is long in coming."""
    found, whole_ns = epoch_starts(case.real), _epoch_ns(case)
    if not len(found) or case.loader.ready_batches:
        return NO_START
    if whole_ns is None:
        return NO_LENGTH
    first_ns = int(found[0])
    share = first_ns / (first_ns + whole_ns)
    if share < HIGH_SHARE:
        return None
    return Finding(
        rule="slow epoch start",
        severity="low",
        sentence=(
            f"The first batch of all takes {first_ns / 1e9:.3g} s, {percent(share)} of the first "
            "epoch: it is paid once in a training, and matters in short ones."
        ),
        evidence=(Fact("epoch start", first_ns, "ns"), Fact("rest of an epoch", whole_ns, "ns")),
        advice=(
            "Look at what is done before the first batch: listing files, building an index, "
            "filling a shuffle buffer, imports in workers that are spawned. Keep an index or a "
            "list in a file."
        ),
        confidence="measured",
        source=SOURCE,
    )


def epoch_boundaries(case: Case) -> Answer:
    """Every epoch begins with a long wait."""
    found, whole_ns = epoch_starts(case.real), _epoch_ns(case)
    later = found if case.loader.ready_batches else found[1:]
    if not len(later):
        return NotMeasured("there was no second epoch")
    if whole_ns is None:
        return NO_LENGTH
    mean_ns = float(later.mean())
    cost = mean_ns / (mean_ns + whole_ns)
    if cost < MODERATE_SHARE:
        return None
    one_ns, (advice, confidence) = _one_batch_ns(case), _against_boundaries(case, mean_ns)
    return Finding(
        rule="epoch boundaries",
        severity=severity_of(cost),
        sentence=(
            f"Each epoch begins with a wait of {mean_ns / 1e9:.3g} s, {percent(cost)} of its time."
        ),
        evidence=(
            Fact("epoch start, later epochs", mean_ns, "ns"),
            Fact("rest of an epoch", whole_ns, "ns"),
            Fact("epochs", len(later), "epochs"),
            *(() if one_ns is None else (Fact("a batch in one worker", one_ns, "ns"),)),
        ),
        advice=advice,
        confidence=confidence,
        source=f"{SOURCE}; PyTorch's documentation of persistent_workers",
        cost_share=cost,
    )


def _epoch_ns(case: Case) -> float | None:
    length, iteration_ns = case.loader.length or case.epochs.batches, case.summary.iteration_ns
    return length * iteration_ns if length and iteration_ns else None


def _one_batch_ns(case: Case) -> float | None:
    """How long one worker takes for a batch, where all together take the loader's time alone."""
    alone_ns = None if case.headroom is None else case.headroom.loader_only_ns
    return alone_ns * case.loader.workers if alone_ns and case.loader.workers else None


def _against_boundaries(case: Case, first_ns: float) -> tuple[str, Confidence]:
    workers, persistent = case.loader.workers, case.loader.persistent_workers
    one_ns = _one_batch_ns(case)
    if one_ns is not None and first_ns <= FEW_BATCHES * one_ns:
        rest_ns = max(first_ns - one_ns, 0.0)
        stay = "" if persistent else f" Starting workers is {rest_ns / 1e6:.3g} ms of it at most."
        told = f"Most of it is the first batch, which takes a worker {one_ns / 1e6:.3g} ms"
        return f"{told}: make batches cheaper or smaller, or epochs longer.{stay}", "likely"
    if workers and persistent:
        return WORKERS_STAY, "likely"
    return (WORKERS_OR_DATA if workers and persistent is False else NOT_KNOWN), "possible"
