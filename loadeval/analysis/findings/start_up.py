"""Time before an epoch's first batch: once, and at every epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.findings.case import NotMeasured, severity_of
from loadeval.analysis.findings.finding import Fact, Finding
from loadeval.analysis.summary import startups
from loadeval.analysis.verdict import HIGH_SHARE, MODERATE_SHARE, percent

if TYPE_CHECKING:
    from loadeval.analysis.findings.case import Answer, Case

SOURCE = "first waits of the epochs, set against a whole epoch at the steady pace"
NO_START = NotMeasured("no epoch shows what its first batch costs")
NO_LENGTH = NotMeasured("how long an epoch is, or how fast it goes on, is not known")


def slow_start(case: Case) -> Answer:
    """The first batch of all is long in coming."""
    found, whole_ns = startups(case.real), _epoch_ns(case)
    if not len(found) or case.loader.ready_batches:
        return NO_START
    if whole_ns is None:
        return NO_LENGTH
    first_ns = int(found[0])
    share = first_ns / (first_ns + whole_ns)
    if share < HIGH_SHARE:
        return None
    return Finding(
        rule="slow start-up",
        severity="low",
        sentence=(
            f"The first batch of all takes {first_ns / 1e9:.3g} s, {percent(share)} of the first "
            "epoch: it is paid once in a training, and matters in short ones."
        ),
        evidence=(Fact("start-up", first_ns, "ns"), Fact("rest of an epoch", whole_ns, "ns")),
        advice=(
            "Look at what is done before the first batch: listing files, building an index, "
            "imports in workers that are spawned. Keep it in a file, or do it in the workers."
        ),
        confidence="measured",
        source=SOURCE,
    )


def epoch_boundaries(case: Case) -> Answer:
    """Every epoch begins with a long wait."""
    found, whole_ns = startups(case.real), _epoch_ns(case)
    later = found if case.loader.ready_batches else found[1:]
    if not len(later):
        return NotMeasured("there was no second epoch")
    if whole_ns is None:
        return NO_LENGTH
    mean_ns = float(later.mean())
    cost = mean_ns / (mean_ns + whole_ns)
    if cost < MODERATE_SHARE:
        return None
    return Finding(
        rule="epoch boundaries",
        severity=severity_of(cost),
        sentence=(
            f"Each epoch begins with a wait of {mean_ns / 1e9:.3g} s, {percent(cost)} of its time."
        ),
        evidence=(
            Fact("start-up, later epochs", mean_ns, "ns"),
            Fact("rest of an epoch", whole_ns, "ns"),
            Fact("epochs", len(later), "epochs"),
        ),
        advice=_against_boundaries(case),
        confidence="measured",
        source=f"{SOURCE}; PyTorch's documentation of persistent_workers",
        cost_share=cost,
    )


def _epoch_ns(case: Case) -> float | None:
    length, cycle_ns = case.loader.length or case.epochs.batches, case.summary.cycle_ns
    return length * cycle_ns if length and cycle_ns else None


def _against_boundaries(case: Case) -> str:
    workers, persistent = case.loader.workers, case.loader.persistent_workers
    if workers and persistent is False:
        return "Pass persistent_workers=True, so that the workers are not started anew each epoch."
    if workers and persistent:
        return (
            "Its workers stay, so this is the time that the first batch takes: make it cheaper, "
            "or epochs longer."
        )
    return (
        "Let the loader go on from one epoch to the next: keep its workers, its open files and "
        "its index, and let it load the first batches before they are asked for. Or make epochs "
        "longer."
    )
