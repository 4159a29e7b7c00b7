"""The state of a run while it goes on: a screen for a terminal, or one line."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from loadeval.report.formatting import (
    LONGEST_NAME,
    NOT_MEASURED,
    counted,
    duration,
    number,
    printable,
    share,
    shortened,
)
from loadeval.runlog.model import SECOND_NS

if TYPE_CHECKING:
    from rich.console import RenderableType

    from loadeval.analysis.live import LiveState, Outlier, Rates

GAP = 2
"""Columns of characters between two columns of the table."""
UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
NO_STEADY_BATCH = "no steady-state batch"
FEW_SECONDS = 100
"""Under so many a time is told in seconds alone."""


def waiting_for(path: object) -> str:
    """That there is nothing to tell yet."""
    return f"Waiting for a run log at {printable(path)}"


def live_screen(state: LiveState) -> RenderableType:
    """All that is known of a run that goes on."""
    grid = Table.grid(padding=(0, GAP, 0, 0))
    for no_wrap in (True, False, False):
        grid.add_column(no_wrap=no_wrap, overflow="fold")
    now = "now" if state.now is None else f"last {span(state.now.elapsed_ns)}"
    grid.add_row("", Text(now, style="dim"), Text("whole run", style="dim"))
    both = (state.now, state.overall)
    grid.add_row("throughput", *(Text(_throughput(one, state.unit)) for one in both))
    grid.add_row("time waiting", *(Text(_waiting(one)) for one in both))
    grid.add_row("mean iteration", *(Text(_iteration(one)) for one in both))
    kept = "" if state.every == 1 else f", one batch in {state.every:,}"
    name = f"{printable(shortened(state.name, LONGEST_NAME))} ({state.mode}{kept})"
    style = "bold red" if state.silent_ns is not None else ""
    return Group(
        Text(name, style="bold"),
        Text(f"{_status(state)}; {_progress(state)}", style=style),
        Text(),
        grid,
        Text(),
        Text(f"epoch start: {_epoch_starts(state)}"),
        Text(f"outliers: {_outliers(state)}"),
        *(Text(f"  {_outlier(one, state.created)}") for one in state.outliers),
        *(Text(f"event: {printable(message)}") for message in state.events),
    )


def live_line(state: LiveState) -> str:
    """The same in one line, with the last outlier only."""
    parts = [_status(state), _progress(state)]
    if state.epoch is None:
        return "; ".join(parts)
    for when, one in (("now", state.now), ("whole run", state.overall)):
        parts.append(f"{when} {_throughput(one, state.unit)}, waiting {_waiting(one)}")
    parts += [f"epoch start {_epoch_starts(state)}", f"outliers {_outliers(state)}"]
    if state.outliers:
        parts.append(f"the last {_outlier(state.outliers[-1], state.created)}")
    return "; ".join(parts)


def _status(state: LiveState) -> str:
    """Whether the run goes on, and for how long it has."""
    elapsed = span(state.elapsed_ns)
    if state.ended:
        return f"ended after {elapsed}"
    if state.silent_ns is not None:
        return f"no batch for {span(state.silent_ns)}, {elapsed} after the start"
    return f"running for {elapsed}"


def _progress(state: LiveState) -> str:
    """The last epoch and batch, numbered from 0, and how many batches there were."""
    if state.epoch is None or state.batch is None:
        return "no batch yet"
    length = "" if state.epoch_batches is None else f" of {state.epoch_batches:,}"
    batches = counted(state.batches, "batch", "batches")
    return f"epoch {state.epoch:,}, batch {state.batch:,}{length}; {batches} in total"


def _throughput(one: Rates | None, unit: str) -> str:
    """Samples per second under their name, or batches where those are not known."""
    if one is None:
        return NO_STEADY_BATCH
    if one.samples_per_s is not None:
        return f"{number(one.samples_per_s)} {printable(shortened(unit, LONGEST_NAME))}/s"
    return NOT_MEASURED if one.batches_per_s is None else f"{number(one.batches_per_s)} batches/s"


def _waiting(one: Rates | None) -> str:
    """The share of the time that was waited."""
    return NO_STEADY_BATCH if one is None else share(one.wait_share)


def _iteration(one: Rates | None) -> str:
    """How long one takes, on average."""
    return NO_STEADY_BATCH if one is None else duration(one.elapsed_ns / one.batches)


def _epoch_starts(state: LiveState) -> str:
    """Those of the first epoch and of the last."""
    if state.epoch_start_ns is None:
        return NOT_MEASURED
    first = f"{duration(state.epoch_start_ns)} in the first epoch"
    if state.last_epoch_start_ns is None:
        return first
    return f"{first}, {duration(state.last_epoch_start_ns)} in the last"


def _outliers(state: LiveState) -> str:
    """How many there are."""
    if state.median_iteration_ns is None:
        return f"{NOT_MEASURED}, too few batches"
    iterations = counted(state.outlier_count, "iteration", "iterations")
    among = "" if state.every == 1 else ", among the slowest of each aggregate"
    return f"{iterations} over twice the median of {duration(state.median_iteration_ns)}{among}"


def _outlier(one: Outlier, created: str) -> str:
    """Which batch, when, and how long."""
    when = _moment(created, one.request_ns) or f"{span(one.request_ns)} after the start"
    times = f"{duration(one.wait_ns + one.step_ns)}, of which {duration(one.wait_ns)} waiting"
    return f"epoch {one.epoch:,}, batch {one.batch:,}, {when}: {times}"


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


def _moment(created: str, time_ns: int) -> str:
    """The wall-clock time; "" where the log does not tell when it was begun."""
    try:
        moment = datetime.fromisoformat(created) + timedelta(microseconds=time_ns / 1_000)
    except (ValueError, OverflowError):
        return ""
    return f"{moment:%Y-%m-%d %H:%M:%S %Z}".rstrip()
