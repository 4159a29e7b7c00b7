"""How a run stands while it goes on, in words: a screen for a terminal, or one line."""

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

if TYPE_CHECKING:
    from rich.console import RenderableType

    from loadeval.analysis.outliers import Outlier
    from loadeval.analysis.standing import Standing, Watch

GAP = 2
"""Columns of characters between two columns of the table."""
SECOND_NS = 1_000_000_000
UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
NONE = "no steady batch"
FEW_SECONDS = 100
"""Under so many a time is told in seconds alone."""


def waiting_for(path: object) -> str:
    """That there is nothing to tell yet."""
    return f"Waiting for {printable(path)}, where no run log is yet"


def watch_screen(watch: Watch) -> RenderableType:
    """All that is known of how a run stands."""
    grid = Table.grid(padding=(0, GAP, 0, 0))
    for no_wrap in (True, False, False):
        grid.add_column(no_wrap=no_wrap, overflow="fold")
    now = "" if watch.now is None else f", over {span(watch.now.elapsed_ns)}"
    grid.add_row("", Text(f"now{now}", style="dim"), Text("over all", style="dim"))
    both = (watch.now, watch.overall)
    grid.add_row("throughput", *(Text(rate(one, watch.unit)) for one in both))
    grid.add_row("share waited", *(Text(waited(one)) for one in both))
    grid.add_row("iteration, mean", *(Text(iteration(one)) for one in both))
    style = "bold red" if watch.silent_ns is not None else ""
    lines: list[RenderableType] = [
        Text(_name(watch), style="bold"),
        Text(f"{status(watch)}; {progress(watch)}", style=style),
        Text(),
        grid,
        Text(),
        Text(f"epoch start: {epoch_starts(watch)}"),
        Text(f"outliers: {outliers(watch)}"),
        *(Text(f"  {outlier_in_words(one, watch.created)}") for one in watch.outliers),
        *(Text(f"event: {printable(message)}") for message in watch.events),
    ]
    return Group(*lines)


def watch_line(watch: Watch) -> str:
    """The same in one line, the last outlier alone."""
    parts = [status(watch), progress(watch)]
    if watch.epoch is None:
        return "; ".join(parts)
    for when, one in (("now", watch.now), ("over all", watch.overall)):
        parts.append(f"{when} {rate(one, watch.unit)}, waited {waited(one)}")
    parts += [f"epoch start {epoch_starts(watch)}", f"outliers {outliers(watch)}"]
    if watch.outliers:
        parts.append(f"the last {outlier_in_words(watch.outliers[-1], watch.created)}")
    return "; ".join(parts)


def status(watch: Watch) -> str:
    """Whether the run goes on, and for how long it has."""
    elapsed = span(watch.elapsed_ns)
    if watch.ended:
        return f"ended after {elapsed}"
    if watch.silent_ns is not None:
        return f"no batch for {span(watch.silent_ns)}, {elapsed} after the start"
    return f"running for {elapsed}"


def progress(watch: Watch) -> str:
    """The last epoch and batch, numbered from 0, and how many batches there were."""
    if watch.epoch is None or watch.batch is None:
        return "no batch yet"
    length = "" if watch.epoch_batches is None else f" of {watch.epoch_batches:,}"
    total = counted(watch.batches, "batch", "batches")
    return f"epoch {watch.epoch:,}, batch {watch.batch:,}{length}; {total} in all"


def rate(one: Standing | None, unit: str) -> str:
    """Samples per second under their name, or batches where those are not known."""
    if one is None:
        return NONE
    if one.samples_per_s is not None:
        return f"{number(one.samples_per_s)} {printable(shortened(unit, LONGEST_NAME))}/s"
    return NOT_MEASURED if one.batches_per_s is None else f"{number(one.batches_per_s)} batches/s"


def waited(one: Standing | None) -> str:
    """The share of the time that was waited."""
    return NONE if one is None else share(one.wait_share)


def iteration(one: Standing | None) -> str:
    """How long a batch takes, on average."""
    return NONE if one is None else duration(one.elapsed_ns / one.batches)


def epoch_starts(watch: Watch) -> str:
    """Those of the first epoch and of the last."""
    if watch.epoch_start_ns is None:
        return NOT_MEASURED
    first = f"{duration(watch.epoch_start_ns)} in the first epoch"
    if watch.last_epoch_start_ns is None:
        return first
    return f"{first}, {duration(watch.last_epoch_start_ns)} in the last"


def outliers(watch: Watch) -> str:
    """How many iterations are much longer than usual."""
    if watch.median_iteration_ns is None:
        return f"{NOT_MEASURED}, too few batches"
    iterations = counted(watch.outlier_count, "iteration", "iterations")
    among = "" if watch.every == 1 else ", of the slowest one of each aggregate"
    return f"{iterations} over twice the median of {duration(watch.median_iteration_ns)}{among}"


def outlier_in_words(one: Outlier, created: str) -> str:
    """Which batch, when, and how long."""
    when = _moment(created, one.request_ns) or f"{span(one.request_ns)} after the start"
    iteration = f"{duration(one.wait_ns + one.step_ns)}, {duration(one.wait_ns)} of it waited"
    return f"epoch {one.epoch:,}, batch {one.batch:,}, {when}: {iteration}"


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


def _name(watch: Watch) -> str:
    kept = "" if watch.every == 1 else f", one batch in {watch.every:,}"
    return f"{printable(shortened(watch.name, LONGEST_NAME))} ({watch.mode}{kept})"


def _moment(created: str, time_ns: int) -> str:
    """The wall-clock time; "" where the log does not tell when it was begun."""
    try:
        moment = datetime.fromisoformat(created) + timedelta(microseconds=time_ns / 1_000)
    except (ValueError, OverflowError):
        return ""
    return f"{moment:%Y-%m-%d %H:%M:%S %Z}".rstrip()
