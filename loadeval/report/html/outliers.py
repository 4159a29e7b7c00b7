"""Outliers: iterations over twice the median of their kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.outliers import TIMES_MEDIAN
from loadeval.analysis.summary import steady
from loadeval.report.formatting import counted, duration, number
from loadeval.report.html.blocks import Figure, Heading, Section, Table, Text
from loadeval.report.html.drawing import durations, layout
from loadeval.report.html.moments import Moments
from loadeval.report.html.thinning import DOTS, extremes, highest, told
from loadeval.runlog.model import ARMS

if TYPE_CHECKING:
    import numpy.typing as npt

    from loadeval.analysis.report import Report, RunReport
    from loadeval.report.html.blocks import Block, Json
    from loadeval.report.html.drawing import Scale
    from loadeval.runlog.model import Arm

    Places = npt.NDArray[np.intp]

WORST = 20
HEIGHT = 300
CAPTION = (
    "Iterations, wait and step together, of the batches that count, against time. Marked are those "
    "over twice the median of their arm, which is the dashed line."
)
NONE = "Of {count} that count, no iteration is over twice the median."
HEAD = ("epoch and batch", "at", "iteration", "wait", "step", "times the median")
NOTHING = "Not measured: no batch counts."


@dataclass(frozen=True, slots=True, eq=False)
class Iterations:
    """The iterations of one arm that count: which batches, and which of these are outliers."""

    arm: Arm
    places: Places
    slow: Places
    median_ns: float


def outliers(report: Report) -> Section:
    """A figure for each run, and the worst of all in a table."""
    blocks: list[Block] = []
    worst: list[tuple[float, tuple[str, ...]]] = []
    count = 0
    for track in report.runs:
        if track.name:
            blocks.append(Heading(track.name))
        run = track.counted
        moments = Moments(run)
        found = iterations_of(moments)
        blocks.append(_block(track, moments, found))
        worst += _worst(track, moments, found)
        count += sum(len(one.slow) for one in found)
    if worst:
        blocks.append(_table(worst, count))
    return Section("outliers", "Outliers", tuple(blocks))


def _block(track: RunReport, moments: Moments, found: list[Iterations]) -> Block:
    count = sum(len(one.places) for one in found)
    if not count:
        return Text((NOTHING,))
    if not any(len(one.slow) for one in found):
        return Text((NONE.format(count=counted(count, "batch", "batches")),))
    return _figure(track, moments, found)


def _table(worst: list[tuple[float, tuple[str, ...]]], count: int) -> Table:
    rows = sorted(worst, key=lambda row: -row[0])[:WORST]
    caption = f"{counted(count, 'outlier', 'outliers')}, by times the median of its arm"
    if count > WORST:
        caption = f"The worst {WORST} of {count:,} outliers, by times the median of their arm"
    return Table(caption, HEAD, tuple(row for _, row in rows), figures=True)


def _worst(
    track: RunReport, moments: Moments, found: list[Iterations]
) -> list[tuple[float, tuple[str, ...]]]:
    """Of each arm the rows of its slowest iterations, behind how many medians each took."""
    iteration_ns = moments.iteration_ns
    return [
        (float(iteration_ns[place]) / one.median_ns, _row(track, moments, one, place))
        for one in found
        for place in one.slow[highest(iteration_ns[one.slow], WORST)].tolist()
    ]


def iterations_of(moments: Moments) -> list[Iterations]:
    """The arms of a run that have batches that count, each with its outliers."""
    run, iteration_ns = moments.run, moments.iteration_ns
    found = []
    for code, arm in enumerate(ARMS):
        (places,) = np.nonzero(steady(run, arm) & (run.steps.arm == code))
        if len(places):
            median_ns = float(np.median(iteration_ns[places]))
            slow = (
                places[iteration_ns[places] > TIMES_MEDIAN * median_ns] if median_ns else places[:0]
            )
            found.append(Iterations(arm, places, slow, median_ns))
    return found


def _row(track: RunReport, moments: Moments, one: Iterations, place: int) -> tuple[str, ...]:
    steps = moments.run.steps
    iteration_ns = int(moments.iteration_ns[place])
    where = f"epoch {steps.epoch[place]}, batch {moments.number[place]}"
    arm = f" ({one.arm})" if moments.run.header.mode == "alternate" else ""
    return (
        f"{track.name}: {where}{arm}" if track.name else f"{where}{arm}",
        moments.when(place).removeprefix(", at ") or "unknown",
        duration(iteration_ns),
        duration(int(steps.wait_ns[place])),
        duration(int(steps.step_ns[place])),
        number(iteration_ns / one.median_ns),
    )


def _figure(track: RunReport, moments: Moments, found: list[Iterations]) -> Figure:
    iteration_ns = moments.iteration_ns
    scale = durations(iteration_ns[np.concatenate([one.places for one in found])], "iteration")
    data, shown = [], 0
    for one in found:
        others = np.setdiff1d(one.places, one.slow, assume_unique=True)
        kept = others[extremes(iteration_ns[others], DOTS)]
        marked = one.slow[highest(iteration_ns[one.slow], DOTS)]
        shown += len(kept) + len(marked)
        data.append(_trace(moments, scale, kept, one.arm, one.arm))
        name = f"{one.arm}, over twice the median ({len(one.slow):,})"
        if len(marked):
            data.append(_trace(moments, scale, marked, name, one.arm, slow=True))
    count = sum(len(one.places) for one in found)
    form = layout(HEIGHT)
    form |= {
        "xaxis": moments.axis(),
        "yaxis": scale.axis,
        "shapes": [_median(one) for one in found],
    }
    notes = tuple(filter(None, [told(shown, count, "batches that count")]))
    return Figure(f"outliers-{track.number}", CAPTION, data, form, notes, f"run-{track.number}")


def _trace(
    moments: Moments,
    scale: Scale,
    places: Places,
    name: str,
    color: str,
    *,
    slow: bool = False,
) -> Json:
    iteration_ns = moments.iteration_ns
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": moments.at(places),
        "y": scale.places(iteration_ns[places]),
        "marker": {
            "color": color,
            "size": 11 if slow else 4,
            "symbol": "circle-open" if slow else "circle",
            "opacity": 1 if slow else 0.55,
            "line": {"width": 2 if slow else 0, "color": color},
        },
        "customdata": moments.told(places, "iteration of", iteration_ns),
        "hovertemplate": "%{customdata}<extra></extra>",
    }


def _median(one: Iterations) -> Json:
    return {
        "type": "line",
        "xref": "paper",
        "yref": "y",
        "x0": 0,
        "x1": 1,
        "y0": one.median_ns,
        "y1": one.median_ns,
        "line": {"color": one.arm, "width": 1, "dash": "dash"},
        "layer": "below",
    }
