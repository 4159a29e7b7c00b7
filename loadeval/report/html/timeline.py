"""Waits and steps over the run, the blocks of the arms shaded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.summary import steady
from loadeval.report.html.blocks import Figure, Heading, Section, Text
from loadeval.report.html.drawing import durations, layout
from loadeval.report.html.moments import SECOND_NS, Moments
from loadeval.report.html.thinning import BUCKETS, DOTS, extremes, told
from loadeval.runlog.model import ARMS, UNKNOWN, rank_in_epoch

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from loadeval.analysis.report import Report, RunReport
    from loadeval.report.html.blocks import Block, Json
    from loadeval.report.html.drawing import Scale
    from loadeval.runlog.model import Column, Run

    Rows = npt.NDArray[np.bool_]

HEIGHT = 440
MOST_BLOCKS = 400
MOST_EPOCH_LINES = 40
MOST_DOTS = 300
SHADE = 0.13
SYMBOLS = {"real": "circle", "ideal": "diamond", "epoch start": "triangle-up-open"}
CAPTION = (
    "Above how long training waited for each batch, below how long its step took, against the "
    "time since the run began."
)
SHADED = " Shaded are the stretches that count: of real loading (dots) and of free (diamonds)."
NOT_SHADED = " The {count:,} blocks are too many to be shaded."
NOTHING = "No batch was served."


@dataclass(frozen=True, slots=True)
class Group:
    """Batches that are drawn alike."""

    name: str
    color: str
    rows: Rows


def timeline(report: Report) -> Section:
    """A figure for each run."""
    blocks: list[Block] = []
    for track in report.runs:
        if track.name:
            blocks.append(Heading(track.name))
        if len(track.run.steps):
            blocks.append(_figure(track))
        else:
            blocks.append(Text((NOTHING,)))
    return Section("timeline", "Timeline", tuple(blocks))


def _figure(track: RunReport) -> Figure:
    run = track.counted
    moments = Moments(run)
    steps = run.steps
    waits, iterations = durations(steps.wait_ns, "wait"), durations(_closed(steps.step_ns), "step")
    shades, caption = _shades(run, moments)
    found = layout(HEIGHT)
    found |= {
        "xaxis": moments.axis(anchor="y2"),
        "yaxis": waits.axis | {"domain": [0.54, 1]},
        "yaxis2": iterations.axis | {"domain": [0, 0.46], "anchor": "x"},
        "shapes": [*shades, *_epoch_lines(run, moments)],
    }
    data, drawn = _traces(moments, _groups(run), steps.wait_ns, waits, "waited", "y")
    more, _ = _traces(moments, _merged(_groups(run)), steps.step_ns, iterations, "step of", "y2")
    note = told(drawn, len(steps), "batches")
    name = f"timeline-{track.number}"
    caption = f"{CAPTION}{caption}"
    return Figure(
        name, caption, data + more, found, tuple(filter(None, [note])), f"run-{track.number}"
    )


def _closed(step_ns: Column) -> Column:
    closed: Column = step_ns[step_ns != UNKNOWN]
    return closed


def _groups(run: Run) -> list[Group]:
    """Epoch starts, what counts of each arm, and the rest."""
    steps = run.steps
    first = rank_in_epoch(steps.epoch) == 0
    found = [Group("epoch start", "epoch_start", first)]
    rest = ~first
    for code, arm in enumerate(ARMS):
        counts = steady(run, arm) & (steps.arm == code) & rest
        found.append(Group(arm, arm, counts))
        rest &= ~counts
    return [*found, Group("not counted", "between", rest)]


def _merged(groups: Sequence[Group]) -> list[Group]:
    """The same for steps: the first of an epoch is one that does not count, like others."""
    first, *arms, rest = groups
    return [*arms, replace(rest, rows=rest.rows | first.rows)]


def _traces(
    moments: Moments, groups: Sequence[Group], values: Column, scale: Scale, what: str, on: str
) -> tuple[list[Json], int]:
    """A trace for each group, and how many batches they draw."""
    known, alternates = values != UNKNOWN, moments.run.header.mode == "alternate"
    traces, count = [], 0
    for group in groups:
        (places,) = np.nonzero(group.rows & known)
        if not len(places):
            continue
        joined = group.name in ARMS and not alternates
        kept = places[extremes(values[places], BUCKETS if joined else DOTS)]
        count += len(kept)
        trace = {
            "legendgroup": group.name,
            "showlegend": on == "y",
            "x": moments.at(kept),
            "y": scale.places(values[kept]),
            "yaxis": on,
            "customdata": moments.told(kept, what, values),
        }
        if joined:
            trace |= _broken(trace, moments.run.steps.epoch[kept])
        traces.append(_look(group, len(kept) <= MOST_DOTS, joined) | trace)
    return traces, count


def _look(group: Group, few: bool, joined: bool) -> Json:
    mode = ("lines+markers" if few else "lines") if joined else "markers"
    return {
        "type": "scatter",
        "mode": mode,
        "name": group.name,
        "line": {"color": group.color, "width": 1.2},
        "marker": {
            "color": group.color,
            "symbol": SYMBOLS.get(group.name, "x-thin-open"),
            "size": 9 if group.name == "epoch start" else 5 if few else 4,
            "opacity": 1 if few else 0.7,
        },
        "hovertemplate": f"{group.name}, %{{customdata}}<extra></extra>",
    }


def _broken(trace: Json, epochs: Column) -> Json:
    """The same points with a gap where an epoch begins, so that no line joins two."""
    gaps = (np.flatnonzero(np.diff(epochs)) + 1).tolist()
    if len(gaps) > MOST_EPOCH_LINES:
        return {}
    bounds = list(pairwise([0, *gaps, len(epochs)]))
    return {
        name: [one for a, b in bounds for one in [*trace[name][a:b], None]][:-1]
        for name in ("x", "y", "customdata")
    }


def _shades(run: Run, moments: Moments) -> tuple[list[Json], str]:
    """A rectangle for each block that counts, and what the caption says of them."""
    if run.header.mode != "alternate":
        return [], ""
    steps = run.steps
    counts = (steps.pair != UNKNOWN) & (steps.step_ns != UNKNOWN)
    changes = np.flatnonzero(np.diff(steps.pair) | np.diff(steps.arm) | np.diff(steps.epoch)) + 1
    bounds = [0, *changes.tolist(), len(steps)]
    blocks = [(a, b - 1) for a, b in pairwise(bounds) if counts[a]]
    if not blocks:
        return [], ""
    if len(blocks) > MOST_BLOCKS:
        return [], NOT_SHADED.format(count=len(blocks))
    return [_shade(moments, *block) for block in blocks], SHADED


def _shade(moments: Moments, first: int, last: int) -> Json:
    steps = moments.run.steps
    end = moments.x[last]
    if moments.timed:
        end += float(steps.wait_ns[last] + max(steps.step_ns[last], 0)) / SECOND_NS
    return {
        "type": "rect",
        "xref": "x",
        "yref": "paper",
        "x0": round(float(moments.x[first]), 6),
        "x1": round(float(end), 6),
        "y0": 0,
        "y1": 1,
        "fillcolor": ARMS[steps.arm[first]],
        "opacity": SHADE,
        "line": {"width": 0},
        "layer": "below",
    }


def _epoch_lines(run: Run, moments: Moments) -> list[Json]:
    (begins,) = np.nonzero(np.diff(run.steps.epoch))
    if len(begins) > MOST_EPOCH_LINES:
        return []
    return [
        {
            "type": "line",
            "xref": "x",
            "yref": "paper",
            "x0": x,
            "x1": x,
            "y0": 0,
            "y1": 1,
            "line": {"color": "line", "width": 1, "dash": "dot"},
            "layer": "below",
        }
        for x in moments.at(begins + 1)
    ]
