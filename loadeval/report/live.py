"""The state of a run while it goes on: a screen for a terminal, or one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from loadeval.report.formatting import printable, short_name
from loadeval.report.tables import GAP
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

    from loadeval.analysis.live import LiveState


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
