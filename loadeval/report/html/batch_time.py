"""Where a batch's time goes: the step alone, waiting, contention, and a device that starves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loadeval.analysis.headroom import headroom
from loadeval.analysis.summary import gpu_idle_ns, summarise
from loadeval.report.formatting import NOT_MEASURED, duration, estimated
from loadeval.report.html.blocks import Figure, Section
from loadeval.report.html.drawing import bare_axis, beside, layout, names_axis, room_beside, whisker
from loadeval.report.html.escaping import drawn
from loadeval.report.html.tables import listed
from loadeval.report.readings import NO_DEVICE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loadeval.analysis.stats import Estimate
    from loadeval.report.comparison import Comparison
    from loadeval.report.html.blocks import Json
    from loadeval.report.html.subject import Subject
    from loadeval.runlog.model import Run

ROW, AROUND = 34, 16
"""Pixels: a row, and what is around all."""
WHOLE = (
    "Mean time of a batch. Real is a step and the wait for the batch; of what it has over ideal, "
    "some is lost by waiting, and some by contention: steps that are slower while the loader "
    "works. Ideal is the step alone, on batches from memory. A GPU is idle while it has "
    "nothing to do in the wait for a batch. Whiskers are 95% intervals; hollow bars are gains."
)
PARTS = "Mean time of a batch: the wait for it, and the step that trains with it."
COLORS = {
    "step": "step",
    "waiting": "waiting",
    "contention": "contention",
    "GPU idle while waiting": "gpu_idle",
}


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a row: `low` and `high` are where its interval ends, None for no interval."""

    row: int
    what: str
    start_ns: float
    ns: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the figure: its name, its value in words, and where its end is."""

    name: str
    words: str
    end_ns: float


def batch_time(subject: Subject) -> Section:
    """The figure with its values in a table."""
    if subject.comparison is not None:
        rows, parts = _of_comparison(subject.comparison)
        caption = WHOLE
    else:
        rows, parts = _of_tracks(subject)
        caption = PARTS if subject.backends is None else f"{PARTS} {OF_BACKENDS}"
    values = [(row.name, row.words) for row in rows]
    return Section(
        "batch-time",
        "Time of a batch",
        (
            Figure("batch-time", caption, *_drawn(rows, parts)),
            listed("Time of a batch, with 95% intervals", "", values, folded=True),
        ),
    )


OF_BACKENDS = (
    "Of runs that alternated the step is told apart: what it takes alone, and what contention "
    "adds, steps that are slower while the loader works."
)


def _of_comparison(comparison: Comparison) -> tuple[list[Row], list[Part]]:
    found = comparison.headroom
    (_, real), (_, ideal) = comparison.sides
    parts: list[Part] = []
    between = (
        None
        if found.real_ns is None or found.waiting_ns is None
        else (found.real_ns - found.waiting_ns.value)
    )
    rows = [
        _stack(parts, "real", 0, found.real_ns, real.wait_share),
        _lost(parts, "waiting", 1, between, found.waiting_ns),
        _lost(parts, "contention", 2, found.ideal_ns, found.contention_ns),
        _stack(parts, "ideal: step alone", 3, found.ideal_ns, ideal.wait_share),
        _gpu_idle(parts, 4, gpu_idle_ns(comparison.real, "real")),
    ]
    return rows, parts


def _stack(
    parts: list[Part], name: str, row: int, iteration_ns: float | None, waited: float | None
) -> Row:
    if iteration_ns is None or waited is None:
        return Row(name, NOT_MEASURED, 0.0)
    wait_ns = iteration_ns * waited
    parts += [
        Part(row, "step", 0.0, iteration_ns - wait_ns),
        Part(row, "waiting", iteration_ns - wait_ns, wait_ns),
    ]
    return Row(name, duration(iteration_ns), iteration_ns)


def _lost(
    parts: list[Part], what: str, row: int, start_ns: float | None, lost: Estimate | None
) -> Row:
    name = f"lost by {what}"
    if start_ns is None or lost is None:
        return Row(name, NOT_MEASURED, 0.0)
    parts.append(Part(row, what, start_ns, lost.value, lost.low, lost.high))
    end = max(start_ns, start_ns + max(lost.value, lost.high or lost.value))
    return Row(name, estimated(lost, duration), end)


def _gpu_idle(parts: list[Part], row: int, mean_ns: float | None, name: str = "") -> Row:
    label = ", ".join(filter(None, [name, "GPU idle while waiting"]))
    if mean_ns is None:
        return Row(label, NO_DEVICE, 0.0)
    parts.append(Part(row, "GPU idle while waiting", 0.0, mean_ns))
    return Row(label, duration(mean_ns), mean_ns)


def _of_tracks(subject: Subject) -> tuple[list[Row], list[Part]]:
    rows: list[Row] = []
    parts: list[Part] = []
    for track in subject.tracks:
        if subject.failed(track):
            rows.append(Row(track.name, "failed", 0.0))
            continue
        told = list(_of_run(track.run, len(rows)))
        end = max((part.start_ns + part.ns for part in told), default=0.0)
        parts += told
        words = ", ".join(f"{part.what} {duration(part.ns)}" for part in told)
        whole = f"{duration(end)}: {words}" if told else NOT_MEASURED
        rows.append(Row(track.name or track.run.header.mode, whole, end))
        if (starving := gpu_idle_ns(track.run, "real")) is not None or len(subject.tracks) == 1:
            rows.append(_gpu_idle(parts, len(rows), starving, track.name))
    return rows, parts


def _of_run(run: Run, row: int) -> Iterator[Part]:
    """What adds up to the mean iteration of `run`; of one that alternated, of its real arm."""
    summary = summarise(run, "real") if run.header.mode == "alternate" else summarise(run)
    if summary.wait_ns is None or summary.step_ns is None:
        return
    step_ns = summary.step_ns
    if run.header.mode == "alternate":
        slower = headroom(run).contention_ns
        taken = min(max(slower.value, 0.0), step_ns) if slower else 0.0
        step_ns -= taken
        if taken:
            yield Part(row, "contention", step_ns, taken)
        yield Part(row, "step", 0.0, step_ns)
        step_ns += taken
    else:
        yield Part(row, "step", 0.0, step_ns)
    yield Part(row, "waiting", step_ns, summary.wait_ns)


def _drawn(rows: Sequence[Row], parts: Sequence[Part]) -> tuple[list[Json], Json]:
    longest = max((row.end_ns for row in rows), default=0.0) or 1.0
    texts = [beside(drawn(_first(row.words)), row.end_ns, at) for at, row in enumerate(rows)]
    found = layout(AROUND + ROW * len(rows), bottom=6)
    found["margin"]["r"] = room_beside([_first(row.words) for row in rows if row.end_ns])
    found |= {
        "xaxis": bare_axis(longest),
        "yaxis": names_axis([row.name for row in rows], range(len(rows))),
        "annotations": texts,
        "shapes": [
            whisker(part.start_ns + part.low, part.start_ns + part.high, part.row)
            for part in parts
            if part.low is not None and part.high is not None
        ],
        "barmode": "overlay",
    }
    used = [what for what in COLORS if any(part.what == what for part in parts)]
    return [
        _trace(what, [part for part in parts if part.what == what], rows) for what in used
    ], found


def _first(words: str) -> str:
    """The value alone: its interval is drawn."""
    for end in (" [", ": "):
        words = words.partition(end)[0]
    return words


def _trace(what: str, parts: Sequence[Part], rows: Sequence[Row]) -> Json:
    return {
        "type": "bar",
        "orientation": "h",
        "name": what,
        "x": [part.ns for part in parts],
        "base": [part.start_ns for part in parts],
        "y": [part.row for part in parts],
        "width": 0.6,
        "marker": {
            "color": COLORS[what],
            # What is gained, a loss under zero, is hollow.
            "opacity": [1.0 if part.ns >= 0 else 0.25 for part in parts],
            "line": {"color": COLORS[what], "width": 1},
        },
        "customdata": [
            f"{drawn(rows[part.row].name)}<br>{what}: {duration(part.ns)}" for part in parts
        ],
        "hovertemplate": "%{customdata}<extra></extra>",
    }
