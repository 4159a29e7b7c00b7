"""What a comparison found, as labels and values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.report.comparison import rate
from loadeval.report.formatting import (
    NOT_MEASURED,
    counted,
    duration,
    estimated,
    number,
    printable,
    share,
    speedup,
)
from loadeval.report.wording import (
    THRESHOLDS,
    cautions,
    not_measured,
    reason,
    verdict_advice,
    verdict_name,
)

if TYPE_CHECKING:
    from loadeval.analysis.headroom import Headroom

Rows = list[tuple[str, str]]


def comparison_facts(headroom: Headroom) -> Rows:
    """All that a comparison found; what was not measured is said, with the reason at the end."""
    facts = [
        ("speed-up", estimated(headroom.speedup, speedup)),
        ("speed-up, whole epochs", speedup(headroom.epoch_speedup)),
        ("real", _pace(headroom, headroom.real_ns)),
        ("ideal", _pace(headroom, headroom.ideal_ns)),
        ("loader alone", _pace(headroom, headroom.loader_only_ns)),
        ("lost per batch", _lost(headroom)),
        ("  waiting", estimated(headroom.waiting_ns, duration)),
        ("  contention", estimated(headroom.contention_ns, duration)),
        ("required", _required(headroom.required)),
        ("first batch of an epoch", duration(headroom.epoch_start_ns)),
        *_gpu_idle(headroom),
        ("measured", measured(headroom)),
        ("verdict", f"{verdict_name(headroom)}: {printable(reason(headroom))}"),
        ("thresholds", THRESHOLDS),
        ("advice", printable(verdict_advice(headroom))),
    ]
    if headroom.cautions:
        facts.append(("caution", printable(" ".join(cautions(headroom)))))
    if headroom.not_measured:
        facts.append((NOT_MEASURED, printable(" ".join(not_measured(headroom)))))
    return facts


def measured(headroom: Headroom) -> str:
    """How many batches count on each side, and how they were had."""
    told = f"{headroom.real_batches:,} real and {headroom.ideal_batches:,} ideal batches"
    if headroom.pairs is None:
        return f"{told} in two separate runs"
    return f"{told} in {counted(headroom.pairs, 'pair of blocks', 'pairs of blocks')}"


def lost_in_words(headroom: Headroom) -> str:
    """What is lost per batch and to what, with intervals, in one sentence."""
    return (
        f"Lost per batch: {_lost(headroom)}, by waiting {estimated(headroom.waiting_ns, duration)}"
        f", by contention {estimated(headroom.contention_ns, duration)}."
    )


def _gpu_idle(headroom: Headroom) -> Rows:
    if headroom.gpu_idle_ns is None:  # said beside the other readings
        return []
    return [
        ("GPU idle while waiting", f"{duration(headroom.gpu_idle_ns)} a batch, by its own clock")
    ]


def _pace(headroom: Headroom, pace_ns: float | None) -> str:
    if pace_ns is None:
        return NOT_MEASURED
    per_second = rate(pace_ns, headroom.samples_per_batch)
    unit = "batches" if headroom.samples_per_batch is None else printable(headroom.unit)
    at = "" if per_second is None else f", {number(per_second)} {unit}/s"
    return f"{duration(pace_ns)} a batch{at}"


def _lost(headroom: Headroom) -> str:
    lost = estimated(headroom.lost_ns, duration)
    if headroom.lost_ns is None:
        return lost
    return f"{lost} of {duration(headroom.real_ns)} ({estimated(headroom.lost_share, share)})"


def _required(required: float | None) -> str:
    if required is None:
        return NOT_MEASURED
    if required > 1:
        return f"the loader must be {speedup(required)} faster to keep up"
    return f"{speedup(required)} of an ideal iteration: alone, the loader is fast enough"
