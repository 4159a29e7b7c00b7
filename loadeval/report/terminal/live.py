"""The state of a run while it goes on: a screen for a terminal, or one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from loadeval.report.formatting import counted, printable, short_name
from loadeval.report.tables import Table
from loadeval.report.wording import live as wording

if TYPE_CHECKING:
    from rich.console import RenderableType

    from loadeval.analysis.live import LiveJob, LiveState

MOST_RANKS = 10


def live_screen(state: LiveState) -> RenderableType:
    """All that is known of a run that goes on."""
    now = "now" if state.now is None else f"last {wording.span(state.now.elapsed_ns)}"
    both = (state.now, state.overall)
    rows = [
        ["throughput", *(wording.rate(rates, state.unit) for rates in both)],
        ["time waiting", *map(wording.waiting, both)],
        ["mean iteration", *map(wording.iteration, both)],
    ]
    style = "bold red" if state.silent_ns is not None else ""
    return Group(
        Text(f"{short_name(state.name)} ({state.mode})", style="bold"),
        Text(f"{wording.status(state)}; {wording.progress(state)}", style=style),
        Text(),
        Table("", ("", now, "whole run"), rows),
        Text(),
        Text(f"epoch start: {wording.epoch_starts(state)}"),
        Text(f"outliers: {wording.outliers(state)}"),
        *(Text(f"  {wording.outlier(batch, state.created)}") for batch in state.outliers),
        *(Text(f"event: {printable(message)}") for message in state.events),
    )


def live_job_screen(job: LiveJob) -> RenderableType:
    """What is known of a job that goes on: all ranks together, and those that wait most."""
    rows = [["all ranks", "", *_rates(job, job.ranks[0][1].unit)]]
    for name, state in job.most_waiting[:MOST_RANKS]:
        where = f"{wording.status(state)}; {wording.progress(state)}"
        rows.append([short_name(name), where, *_rates(state, state.unit)])
    left = len(job.ranks) - MOST_RANKS
    return Group(
        Text(live_job_line(job), style="bold"),
        Text(),
        Table("", ("", "", "now", "waiting", "whole run", "waiting"), rows),
        *([Text(f"and {left:,} more, which wait less")] if left > 0 else []),
    )


def _rates(state: LiveState | LiveJob, unit: str) -> list[str]:
    return [
        text
        for rates in (state.now, state.overall)
        for text in (wording.rate(rates, unit), wording.waiting(rates))
    ]


def live_job_line(job: LiveJob) -> str:
    """All ranks in one line, and the one that waits most."""
    states = [state for _, state in job.ranks]
    (name, most), unit = job.most_waiting[0], states[0].unit
    batches = sorted(state.batches for state in states)
    goes_on = next((state for state in states if not state.ended), states[0])
    parts = [
        f"{counted(len(states), 'rank', 'ranks')} {wording.status(goes_on)}",
        f"{batches[0]:,} to {batches[-1]:,} batches each",
    ]
    for when, rates in (("now", job.now), ("whole run", job.overall)):
        parts.append(f"{when} {wording.rate(rates, unit)}")
    parts.append(f"{short_name(name)} waits most: {wording.waiting(most.now or most.overall)}")
    silent = [name for name, state in job.ranks if state.silent_ns is not None]
    if silent:
        parts.append(f"silent: {', '.join(map(short_name, silent[:MOST_RANKS]))}")
    return "; ".join(parts)


def live_line(state: LiveState) -> str:
    """The state of a run in one line, with the last outlier only."""
    parts = [wording.status(state), wording.progress(state)]
    if state.epoch is None:
        return "; ".join(parts)
    for when, rates in (("now", state.now), ("whole run", state.overall)):
        parts.append(f"{when} {wording.rate(rates, state.unit)}, waiting {wording.waiting(rates)}")
    parts += [f"epoch start {wording.epoch_starts(state)}", f"outliers {wording.outliers(state)}"]
    if state.outliers:
        parts.append(f"the last {wording.outlier(state.outliers[-1], state.created)}")
    return "; ".join(parts)
