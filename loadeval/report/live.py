"""The state of a run while it goes on: a screen for a terminal, or one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from loadeval.report.formatting import counted, printable, short_name
from loadeval.report.tables import GAP, CellTable
from loadeval.report.wording.live import (
    epoch_starts,
    iteration,
    outlier,
    outliers,
    progress,
    rate,
    span,
    status,
    waiting,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from loadeval.analysis.live import LiveJob, LiveState

MOST_RANKS = 10


def live_screen(state: LiveState) -> RenderableType:
    """All that is known of a run that goes on."""
    grid = Table.grid(padding=(0, GAP, 0, 0))
    for no_wrap in (True, False, False):
        grid.add_column(no_wrap=no_wrap, overflow="fold")
    now = "now" if state.now is None else f"last {span(state.now.elapsed_ns)}"
    grid.add_row("", Text(now, style="dim"), Text("whole run", style="dim"))
    both = (state.now, state.overall)
    grid.add_row("throughput", *(Text(rate(one, state.unit)) for one in both))
    grid.add_row("time waiting", *(Text(waiting(one)) for one in both))
    grid.add_row("mean iteration", *(Text(iteration(one)) for one in both))
    kept = "" if state.every == 1 else f", one batch in {state.every:,}"
    style = "bold red" if state.silent_ns is not None else ""
    return Group(
        Text(f"{short_name(state.name)} ({state.mode}{kept})", style="bold"),
        Text(f"{status(state)}; {progress(state)}", style=style),
        Text(),
        grid,
        Text(),
        Text(f"epoch start: {epoch_starts(state)}"),
        Text(f"outliers: {outliers(state)}"),
        *(Text(f"  {outlier(one, state.created)}") for one in state.outliers),
        *(Text(f"event: {printable(message)}") for message in state.events),
    )


def live_job_screen(job: LiveJob) -> RenderableType:
    """What is known of a job that goes on: all ranks together, and those that wait most."""
    rows = [["", "", "now", "waiting", "whole run", "waiting"]]
    rows.append(["all ranks", "", *_rates(job, job.ranks[0][1].unit)])
    for name, state in job.most_waiting[:MOST_RANKS]:
        where = f"{status(state)}; {progress(state)}"
        rows.append([short_name(name), where, *_rates(state, state.unit)])
    left = len(job.ranks) - MOST_RANKS
    return Group(
        Text(live_job_line(job), style="bold"),
        Text(),
        CellTable(rows),
        *([Text(f"and {left:,} more, which wait less")] if left > 0 else []),
    )


def _rates(state: LiveState | LiveJob, unit: str) -> list[str]:
    return [text for one in (state.now, state.overall) for text in (rate(one, unit), waiting(one))]


def live_job_line(job: LiveJob) -> str:
    """All ranks in one line, and the one that waits most."""
    states = [state for _, state in job.ranks]
    (name, most), unit = job.most_waiting[0], states[0].unit
    batches = sorted(state.batches for state in states)
    goes_on = next((state for state in states if not state.ended), states[0])
    parts = [
        f"{counted(len(states), 'rank', 'ranks')} {status(goes_on)}",
        f"{batches[0]:,} to {batches[-1]:,} batches each",
    ]
    for when, one in (("now", job.now), ("whole run", job.overall)):
        parts.append(f"{when} {rate(one, unit)}")
    parts.append(f"{short_name(name)} waits most: {waiting(most.now or most.overall)}")
    silent = [name for name, state in job.ranks if state.silent_ns is not None]
    if silent:
        parts.append(f"silent: {', '.join(map(short_name, silent[:MOST_RANKS]))}")
    return "; ".join(parts)


def live_line(state: LiveState) -> str:
    """The same in one line, with the last outlier only."""
    parts = [status(state), progress(state)]
    if state.epoch is None:
        return "; ".join(parts)
    for when, one in (("now", state.now), ("whole run", state.overall)):
        parts.append(f"{when} {rate(one, state.unit)}, waiting {waiting(one)}")
    parts += [f"epoch start {epoch_starts(state)}", f"outliers {outliers(state)}"]
    if state.outliers:
        parts.append(f"the last {outlier(state.outliers[-1], state.created)}")
    return "; ".join(parts)
