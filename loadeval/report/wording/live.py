"""The state of a run that goes on, in words."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from loadeval.data.run import SECOND_NS
from loadeval.report.formatting import (
    NOT_MEASURED,
    counted,
    duration,
    printable,
    share,
    short_name,
    throughput,
    wall_clock,
)
from loadeval.report.wording.verdict import NO_STEADY_BATCH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.live import LiveState, Outlier
    from loadeval.analysis.rates import Rates

UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
FEW_SECONDS = 100
"""Seconds: a shorter time has no other unit."""


def waiting_for(path: object, similar: Sequence[object] = ()) -> str:
    """What to print while there is no log yet; `similar` are files and folders that there are."""
    text = f"Waiting for a run log at {printable(path)}; Ctrl-C ends it"
    if not similar:
        return text
    return f"{text}. There is {' and '.join(map(printable, similar))}"


def status(state: LiveState) -> str:
    """Whether the run goes on, and for how long it has."""
    elapsed = span(state.elapsed_ns)
    if state.ended:
        return f"ended after {elapsed}"
    if state.silent_ns is not None:
        return f"no batch for {span(state.silent_ns)}, {elapsed} after the start"
    return f"running for {elapsed}"


def progress(state: LiveState) -> str:
    """The last epoch and batch, numbered from 0, and how many batches there were."""
    if state.epoch is None or state.batch is None:
        return "no batch yet"
    length = "" if state.epoch_batches is None else f" of {state.epoch_batches:,}"
    batches = counted(state.batches, "batch", "batches")
    return f"epoch {state.epoch:,}, batch {state.batch:,}{length}; {batches} in total"


def rate(rates: Rates | None, unit: str) -> str:
    """Samples per second under their name, or batches where those are not known."""
    return NO_STEADY_BATCH if rates is None else throughput(rates, short_name(unit))


def waiting(rates: Rates | None) -> str:
    """The share of the time that was waited."""
    return NO_STEADY_BATCH if rates is None else share(rates.wait_share)


def iteration(rates: Rates | None) -> str:
    """The mean iteration time."""
    return NO_STEADY_BATCH if rates is None else duration(rates.elapsed_ns / rates.batches)


def epoch_starts(state: LiveState) -> str:
    """The first wait of the first epoch, and of the last one."""
    if state.epoch_start_ns is None:
        return NOT_MEASURED
    first = f"{duration(state.epoch_start_ns)} in the first epoch"
    if state.last_epoch_start_ns is None:
        return first
    return f"{first}, {duration(state.last_epoch_start_ns)} in the last"


def outliers(state: LiveState) -> str:
    """How many iterations are outliers, and what that means."""
    if state.median_iteration_ns is None:
        return f"{NOT_MEASURED}, too few batches"
    iterations = counted(state.outlier_count, "iteration", "iterations")
    return f"{iterations} over twice the median of {duration(state.median_iteration_ns)}"


def outlier(batch: Outlier, created: str) -> str:
    """Which batch an outlier is, when it was, and how long it took."""
    try:
        when = wall_clock(datetime.fromisoformat(created) + timedelta(0, batch.request_ns / 1e9))
    except (ValueError, OverflowError):
        when = f"{span(batch.request_ns)} after the start"
    times = f"{duration(batch.wait_ns + batch.step_ns)}, of which {duration(batch.wait_ns)} waiting"
    return f"epoch {batch.epoch:,}, batch {batch.batch:,}, {when}: {times}"


def span(ns: int) -> str:
    """A time in its two largest units: 42 s, 12 min 3 s, 3 d 4 h."""
    left = round(ns / SECOND_NS)
    if left < FEW_SECONDS:
        return f"{left} s"
    parts: list[str] = []
    for unit, seconds in UNITS:
        count, left = divmod(left, seconds)
        if count or parts:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])
