"""How long each epoch took to start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.summary import epoch_starts as first_waits
from loadeval.report.formatting import duration
from loadeval.report.html.blocks import Figure, Section, Text, listed
from loadeval.report.html.drawing import axis, layout, linear
from loadeval.report.html.escaping import drawn
from loadeval.report.html.palette import series
from loadeval.report.html.thinning import extremes, told
from loadeval.runlog.model import ARMS, rank_in_epoch

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from loadeval.analysis.report import Report
    from loadeval.report.html.blocks import Block, Json
    from loadeval.report.html.drawing import Scale
    from loadeval.runlog.model import Column, Run

    Found = tuple[str, Column, Column]

HEIGHT = 240
MOST_BARS = 300
MOST_ROWS = 200
FEW = 20
WIDE = 0.7
"""Of the room for an epoch, that a bar takes; less where there are few."""
CAPTION = "The first wait of each epoch: opening the loader, and loading the first batch."
NONE = (
    "No epoch start was measured: no epoch began with the loader itself, or the first batch was ready "
    "before the loader was wrapped."
)


def epoch_starts(report: Report) -> Section:
    """A bar for each epoch, and their times in a table."""
    found = [(track.name, *started(track.run)) for track in report.runs]
    found = [one for one in found if len(one[1])]
    blocks: list[Block] = [Text((NONE,))]
    if found:
        rows = [
            (", ".join(filter(None, [name, f"epoch {epoch}"])), duration(ns))
            for name, epochs, waits in found
            for epoch, ns in zip(
                epochs[:MOST_ROWS].tolist(), waits[:MOST_ROWS].tolist(), strict=True
            )
        ]
        most = max(len(epochs) for _, epochs, _ in found)
        first = f", the first {MOST_ROWS} of {most:,} epochs" if most > MOST_ROWS else ""
        data, form, notes = _drawn(found)
        blocks = [
            Figure("epoch starts", CAPTION, data, form, notes),
            listed(f"Epoch start of each epoch{first}", "first wait", rows, folded=True),
        ]
    return Section("epoch starts", "Epoch starts", tuple(blocks))


def started(run: Run) -> tuple[Column, Column]:
    """The epochs that began with the loader itself, and the first wait of each in nanoseconds."""
    steps = run.steps
    first: npt.NDArray[np.bool_] = rank_in_epoch(steps.epoch) == 0
    waits = first_waits(run)
    if run.header.mode == "alternate":
        first &= steps.arm == ARMS.index("real")
    epochs: Column = steps.epoch[first]
    # Where the loader had batches ready, the first epoch has no epoch start to tell.
    return epochs[len(epochs) - len(waits) :], waits


def _color(name: str, number: int, count: int) -> str:
    if name in ARMS:
        return name
    return series(number) if count > 1 else "epoch_start"


def _drawn(found: Sequence[Found]) -> tuple[list[Json], Json, tuple[str, ...]]:
    scale = linear(np.concatenate([waits for _, _, waits in found]), "first wait")
    longest = max(int(epochs.max()) for _, epochs, _ in found)
    data = [_trace(one, scale, number, len(found)) for number, one in enumerate(found)]
    form = layout(HEIGHT)
    form |= {
        "xaxis": axis("epoch", showgrid=False, fixedrange=True, range=[-0.6, longest + 0.6])
        | ({"dtick": 1} if longest < FEW else {"nticks": 10}),
        "yaxis": scale.axis,
        "bargap": 1 - WIDE * min(1.0, (longest + 1) / FEW),
    }
    count, shown = sum(len(waits) for *_, waits in found), sum(len(one["x"]) for one in data)
    return data, form, tuple(filter(None, [told(shown, count, "epochs")]))


def _trace(one: Found, scale: Scale, number: int, count: int) -> Json:
    """Bars, or of very many epochs a line."""
    name, epochs, waits = one
    kept, label = extremes(waits), drawn(name) or "epoch start"
    color = _color(name, number, count)
    bars: Json = {"type": "bar", "marker": {"color": color}}
    line: Json = {"type": "scatter", "mode": "lines", "line": {"color": color, "width": 1.2}}
    return (bars if len(waits) <= MOST_BARS else line) | {
        "name": label,
        "x": epochs[kept].tolist(),
        "y": scale.places(waits[kept]),
        "customdata": [
            f"{label}, epoch {epochs[place]}<br>{duration(int(waits[place]))}"
            for place in kept.tolist()
        ],
        "hovertemplate": "%{customdata}<extra></extra>",
    }
