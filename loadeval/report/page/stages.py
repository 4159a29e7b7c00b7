"""The page's section on the inside of the loader: where its time goes, and who did what when."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.inside.lanes import lanes_of
from loadeval.data.columns import UNKNOWN
from loadeval.report.figure.point_charts import SECOND_NS, RunTime
from loadeval.report.figure.stage_charts import TEXTURES, stages_chart
from loadeval.report.formatting import LONGEST_NAME, duration, share, shortened
from loadeval.report.page import plotly
from loadeval.report.page.blocks import MOST_ROWS, Figure, Section, Text, headed, listed
from loadeval.report.tables import Table
from loadeval.report.terminal.operators import operator_table, thread_table
from loadeval.report.terminal.stages import (
    code_rows,
    sample_rows,
    stage_rows,
    transform_rows,
    worker_rows,
)
from loadeval.report.wording import operators as operator_words
from loadeval.report.wording import stages as stage_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.inside.lanes import Lanes
    from loadeval.analysis.inside.operators import OperatorReport, ThreadReport
    from loadeval.analysis.inside.stages import StageReport
    from loadeval.analysis.inside.timeline import Mask
    from loadeval.analysis.report import Report, RunReport
    from loadeval.data.columns import Column, Values
    from loadeval.report.page.blocks import Block, Json

    Places = Column | Values

LANE, LOW_LANE, AROUND_LANES = 44, 24, 64
"""Pixels: a lane, one of more than FEW_LANES, and what is around all."""
FEW_LANES = 12
MOST_CODE, LONGEST_PLACE = 20, 120
"""Lines of code in the table, and characters of one."""
BAR, PICKLE_BAR, PICKLE_AT = 0.5, 0.12, 0.34
"""Parts of a lane's height: fetch and collate, pickling, and how far that is below the middle."""


def inside_the_loader(report: Report) -> list[Section]:
    """One section where a loader was looked into, else none."""
    if not any(run.stages or run.operators or run.threads for run in report.runs):
        return []
    blocks: list[Block] = []
    several = [(run.name, run.stages) for run in report.runs if run.stages is not None]
    if len(several) > 1:
        blocks.append(_side_by_side(several))
    for run in report.runs:
        parts: list[Block] = []
        if run.stages is not None:
            parts += _inside(run, run.stages)
        if run.operators is not None:
            parts += _operators(run.operators)
        if run.no_stages is not None:
            parts.append(Text((stage_words.why_no_stages_in_words(run.no_stages),)))
        if run.threads is not None:
            parts += _threads(run.threads, folded=run.stages is not None)
        blocks += [*headed(run.name), *parts] if parts else []
    return [Section("inside-the-loader", stage_words.TITLE, tuple(blocks))]


def _side_by_side(loaders: Sequence[tuple[str, StageReport]]) -> Table:
    """The share of each stage, with a column for each loader."""
    present = dict.fromkeys(part.stage for _, report in loaders for part in report.stages)
    rows = [
        (
            stage_words.STAGES[stage],
            *(
                share(report.charged_share(stage)) if report.share_of(stage) else ""
                for _, report in loaders
            ),
        )
        for stage in stage_words.STAGES
        if stage in present
    ]
    rest = (share(report.share(report.not_attributed_ns)) for _, report in loaders)
    head = ("", *(shortened(name, LONGEST_NAME) for name, _ in loaders))
    return Table(
        stage_words.SIDE_BY_SIDE, head, (*rows, (stage_words.NOT_ATTRIBUTED, *rest)), figures=True
    )


def _inside(run: RunReport, stages: StageReport) -> list[Block]:
    blocks: list[Block] = [
        Text((f"{stage_words.stages_headline(stages)}.",)),
        _stages(run, stages),
        Table("Stages", stage_words.STAGES_HEAD, tuple(stage_rows(stages)), figures=True),
    ]
    code = code_rows(stages, LONGEST_PLACE)[:MOST_CODE]
    for caption, head, rows in (
        ("Transforms", stage_words.TRANSFORMS_HEAD, transform_rows(stages)[:MOST_ROWS]),
        ("Lines of code that workers were in", stage_words.CODE_HEAD, code),
        ("Slowest samples", stage_words.SAMPLES_HEAD, sample_rows(stages)),
    ):
        if rows:
            blocks.append(
                Table(caption, head, tuple(rows), figures=head is not stage_words.CODE_HEAD)
            )
    if not stages.slow_samples and stages.sample_ns is not None:
        blocks.append(Text((f"Slowest samples: {stage_words.NO_SLOW_SAMPLE}.",)))
    blocks.append(
        listed("For each batch", "", stage_words.stage_facts(stages, run.run.header.loader))
    )
    if len(stages.workers) > 1:
        rows = worker_rows(stages)[:MOST_ROWS]
        blocks.append(
            Table("Workers", stage_words.WORKERS_HEAD, tuple(rows), folded=True, figures=True)
        )
    lanes = lanes_of(run.run)
    return blocks if lanes is None else [*blocks, _lanes(run, lanes)]


def _operators(report: OperatorReport) -> list[Block]:
    head, *rows = operator_table(report, LONGEST_NAME)
    lines = (
        f"{operator_words.operators_headline(report)}.",
        operator_words.bottleneck_in_words(report),
    )
    table = Table("Operators", head, tuple(rows[:MOST_ROWS]), figures=True)
    return [Text(lines), table, Text((operator_words.heads_in_words(head),))]


def _threads(report: ThreadReport, *, folded: bool) -> list[Block]:
    lines = tuple(
        filter(
            None, (operator_words.lock_in_words(report), operator_words.no_threads_in_words(report))
        )
    )
    blocks: list[Block] = [Text(lines)] if lines else []
    if table := thread_table(report, LONGEST_NAME):
        head, *rows = table
        blocks.insert(
            0, Table(operator_words.THREADS, head, tuple(rows), folded=folded, figures=True)
        )
    return blocks


def _stages(run: RunReport, report: StageReport) -> Figure:
    chart = stages_chart(report)
    data, form = plotly.bars(chart)
    # The rows say which stage it is; the legend tells the parts of one apart.
    parts = [
        trace | {"name": TEXTURES[texture], "showlegend": True}
        for texture, trace in zip(TEXTURES, _of(data, "fetch"), strict=False)
    ]
    others = [trace | {"showlegend": False} for trace in data if trace not in _of(data, "fetch")]
    split = stage_words.SPLIT_CAPTION if report.cpu_ns is not None else stage_words.SPLIT_UNKNOWN
    caption = stage_words.STAGES_CAPTION.format(shares=stage_words.WHAT_BARS_ARE, split=split)
    return Figure(f"stages-{run.number}", caption, [*parts, *others], form)


def _of(data: Sequence[Json], color: str) -> list[Json]:
    return [trace for trace in data if trace["marker"]["color"] == color]


# Who did what when


def _lanes(run: RunReport, lanes: Lanes) -> Figure:
    """A lane for each worker, and one for training."""
    places = {worker: at for at, worker in enumerate(lanes.workers)}
    last = len(places)
    lane = np.array([places[worker] for worker in lanes.times.worker.tolist()])
    times = lanes.times
    data = [
        _bars("fetch", times.fetch_start_ns, lanes.fetched_ns, lane, _fetched(lanes)),
        _bars("collate", lanes.fetched_ns, lanes.collated_ns, lane, _took(lanes, "collate")),
    ]
    if (lanes.ready_ns > lanes.pickle_start_ns).any():
        below = lane + PICKLE_AT
        words = _took(lanes, "pickle")
        data.append(_bars("pickle", lanes.pickle_start_ns, lanes.ready_ns, below, words))
    training = np.full(len(lanes), last)
    words = _waited(lanes)
    data.append(_bars("waiting", times.requested_ns, times.delivered_ns, training, words))
    training = np.full(len(lanes.step_start_ns), last)
    steps_ns = lanes.step_end_ns - lanes.step_start_ns
    words = [f"step {duration(ns)}" for ns in steps_ns.tolist()]
    data.append(_bars("step", lanes.step_start_ns, lanes.step_end_ns, training, words))
    if (held := lanes.head_of_line_ns > 0).any():
        data.append(_held_up(lanes, held, lane))
    names = [*map(stage_words.worker_in_words, lanes.workers), stage_words.TRAINING]
    lane_height = LANE if len(names) <= FEW_LANES else LOW_LANE
    form = plotly.layout(AROUND_LANES + lane_height * len(names))
    ends = np.array(lanes.span, dtype=np.float64) / SECOND_NS
    form |= {
        "barmode": "overlay",
        "xaxis": plotly.time_axis(RunTime(ends[:1], ends[1:], timed=True)),
        "yaxis": plotly.axis(
            fixedrange=True,
            showgrid=False,
            tickvals=list(range(len(names))),
            ticktext=names,
            tickfont={"color": "ink", "size": 13},
            range=[last + 0.55, -0.55],
        ),
    }
    number = run.number
    return Figure(
        f"lanes-{number}", stage_words.lanes_caption(lanes), data, form, (), f"lanes-{number}"
    )


def _bars(color: str, start_ns: Column, end_ns: Column, at: Places, words: Sequence[str]) -> Json:
    trace = plotly.spans(color, start_ns / SECOND_NS, end_ns / SECOND_NS, at.tolist(), words)
    return trace | {"width": PICKLE_BAR if color == "pickle" else BAR}


def _held_up(lanes: Lanes, held: Mask, lane: Column) -> Json:
    """A diamond over the end of each batch that later ones had to wait for."""
    blocked_ns = lanes.head_of_line_ns[held].tolist()
    words = [
        f"{where}<br>{stage_words.HELD_UP_NAME} for {duration(ns)}"
        for where, ns in zip(np.array(_where(lanes))[held].tolist(), blocked_ns, strict=True)
    ]
    ends_s = np.round(lanes.ready_ns[held] / SECOND_NS, plotly.S_DIGITS).tolist()
    places = (lane[held] - PICKLE_AT - 0.06).tolist()
    name = f"{stage_words.HELD_UP_NAME} ({len(words):,})"
    return plotly.trace("scatter", name, ends_s, places, words) | {
        "mode": "markers",
        "marker": {"color": "outlier", "size": 8, "symbol": "diamond"},
    }


def _where(lanes: Lanes) -> list[str]:
    """Each batch by its number and its worker."""
    times = lanes.times
    return [
        f"batch {batch}, {stage_words.worker_in_words(worker)}"
        for batch, worker in zip(times.batch.tolist(), times.worker.tolist(), strict=True)
    ]


def _took(lanes: Lanes, name: str) -> list[str]:
    """Each batch, and how long its stage took."""
    ends = {
        "fetch": (lanes.times.fetch_start_ns, lanes.fetched_ns),
        "collate": (lanes.fetched_ns, lanes.collated_ns),
        "pickle": (lanes.pickle_start_ns, lanes.ready_ns),
    }
    start_ns, end_ns = ends[name]
    return [
        f"{where}<br>{name} {duration(ns)}"
        for where, ns in zip(_where(lanes), (end_ns - start_ns).tolist(), strict=True)
    ]


def _fetched(lanes: Lanes) -> list[str]:
    """Each batch, how long fetch took, and its slowest sample."""
    times, in_words = lanes.times, _took(lanes, "fetch")
    slowest = zip(times.slowest_index.tolist(), times.slowest_ns.tolist(), strict=True)
    return [
        words if ns == UNKNOWN else f"{words}<br>slowest sample {_index(index)}{duration(ns)}"
        for words, (index, ns) in zip(in_words, slowest, strict=True)
    ]


def _index(index: int) -> str:
    return "" if index == UNKNOWN else f"{index}: "


def _waited(lanes: Lanes) -> list[str]:
    times = lanes.times
    waits_ns = (times.delivered_ns - times.requested_ns).tolist()
    return [
        f"batch {batch}<br>waited {duration(ns)}"
        for batch, ns in zip(times.batch.tolist(), waits_ns, strict=True)
    ]
