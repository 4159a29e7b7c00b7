"""The page's section on the inside of the loader: where its time goes, and who did what when."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.lanes import lanes_of
from loadeval.report.formatting import LONGEST_NAME, duration, share, shortened
from loadeval.report.html import plotly
from loadeval.report.html.blocks import MOST_ROWS, Figure, Heading, Section, Table, Text, listed
from loadeval.report.operators import operator_table, thread_table
from loadeval.report.point_charts import SECOND_NS, RunTime
from loadeval.report.stage_charts import TEXTURES, stages_chart
from loadeval.report.stages import code_rows, sample_rows, stage_rows, transform_rows, worker_rows
from loadeval.report.wording.operators import (
    THREADS,
    bottleneck_in_words,
    heads_in_words,
    lock_in_words,
    no_threads_in_words,
    operators_headline,
)
from loadeval.report.wording.stages import (
    CODE_HEAD,
    HELD_UP_NAME,
    NO_SLOW_SAMPLE,
    NOT_ATTRIBUTED,
    SAMPLES_HEAD,
    SIDE_BY_SIDE,
    SPLIT_CAPTION,
    SPLIT_UNKNOWN,
    STAGES,
    STAGES_CAPTION,
    STAGES_HEAD,
    TITLE,
    TRAINING,
    TRANSFORMS_HEAD,
    WHAT_BARS_ARE,
    WORKERS_HEAD,
    lanes_caption,
    stage_facts,
    stages_headline,
    why_no_stages_in_words,
    worker_in_words,
)
from loadeval.runlog.columns import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.lanes import Lanes
    from loadeval.analysis.operators import OperatorReport, ThreadReport
    from loadeval.analysis.report import Report, RunReport
    from loadeval.analysis.stages import StageReport
    from loadeval.analysis.timeline import Mask
    from loadeval.report.html.blocks import Block, Json
    from loadeval.runlog.columns import Column, Values

    Places = Column | Values

LANE, LOW_LANE, AROUND_LANES = 44, 24, 64
"""Pixels: a lane, one of more than FEW_LANES, and what is around all."""
FEW_LANES = 12
MOST_CODE, LONGEST_PLACE = 20, 120
"""Lines of code in the table, and characters of one."""
BAR, PICKLE_BAR, PICKLE_AT = 0.5, 0.12, 0.34
"""Of a lane: fetch and collate, pickling, and how far below the middle that is."""


def inside_the_loader(report: Report) -> list[Section]:
    """One section where a loader was looked into, else none."""
    if not any(one.stages or one.operators or one.threads for one in report.runs):
        return []
    blocks: list[Block] = []
    several = [(one.name, one.stages) for one in report.runs if one.stages is not None]
    if len(several) > 1:
        blocks.append(_side_by_side(several))
    for one in report.runs:
        found: list[Block] = []
        if one.stages is not None:
            found += _inside(one, one.stages)
        if one.operators is not None:
            found += _operators(one.operators)
        if one.no_stages is not None:
            found.append(Text((why_no_stages_in_words(one.no_stages),)))
        if one.threads is not None:
            found += _threads(one.threads, folded=one.stages is not None)
        blocks += [*_heading(one), *found] if found else []
    return [Section("inside-the-loader", TITLE, tuple(blocks))]


def _heading(one: RunReport) -> list[Block]:
    return [Heading(one.name)] if one.name else []


def _side_by_side(found: Sequence[tuple[str, StageReport]]) -> Table:
    """The share of each stage, with a column for each loader."""
    present = dict.fromkeys(one.stage for _, report in found for one in report.stages)
    rows = [
        (
            STAGES[stage],
            *(
                share(report.charged_share(stage)) if report.share_of(stage) else ""
                for _, report in found
            ),
        )
        for stage in STAGES
        if stage in present
    ]
    rest = (share(report.share(report.not_attributed_ns)) for _, report in found)
    head = ("", *(shortened(name, LONGEST_NAME) for name, _ in found))
    return Table(SIDE_BY_SIDE, head, (*rows, (NOT_ATTRIBUTED, *rest)), figures=True)


def _inside(one: RunReport, found: StageReport) -> list[Block]:
    blocks: list[Block] = [
        Text((f"{stages_headline(found)}.",)),
        _stages(one, found),
        Table("Stages", STAGES_HEAD, tuple(stage_rows(found)), figures=True),
    ]
    code = code_rows(found, LONGEST_PLACE)[:MOST_CODE]
    for caption, head, rows in (
        ("Transforms", TRANSFORMS_HEAD, transform_rows(found)[:MOST_ROWS]),
        ("Lines of code that workers were in", CODE_HEAD, code),
        ("Slowest samples", SAMPLES_HEAD, sample_rows(found)),
    ):
        if rows:
            blocks.append(Table(caption, head, tuple(rows), figures=head is not CODE_HEAD))
    if not found.slow_samples and found.sample_ns is not None:
        blocks.append(Text((f"Slowest samples: {NO_SLOW_SAMPLE}.",)))
    blocks.append(listed("For each batch", "", stage_facts(found, one.run.header.loader)))
    if len(found.workers) > 1:
        rows = worker_rows(found)[:MOST_ROWS]
        blocks.append(Table("Workers", WORKERS_HEAD, tuple(rows), folded=True, figures=True))
    lanes = lanes_of(one.run)
    return blocks if lanes is None else [*blocks, _lanes(one, lanes)]


def _operators(found: OperatorReport) -> list[Block]:
    head, *rows = operator_table(found, LONGEST_NAME)
    told = (f"{operators_headline(found)}.", bottleneck_in_words(found))
    table = Table("Operators", head, tuple(rows[:MOST_ROWS]), figures=True)
    return [Text(told), table, Text((heads_in_words(head),))]


def _threads(found: ThreadReport, *, folded: bool) -> list[Block]:
    told = tuple(filter(None, (lock_in_words(found), no_threads_in_words(found))))
    blocks: list[Block] = [Text(told)] if told else []
    if table := thread_table(found, LONGEST_NAME):
        head, *rows = table
        blocks.insert(0, Table(THREADS, head, tuple(rows), folded=folded, figures=True))
    return blocks


def _stages(one: RunReport, found: StageReport) -> Figure:
    chart = stages_chart(found)
    data, form = plotly.bars(chart)
    # The rows say which stage it is; the legend tells the parts of one apart.
    parts = [
        trace | {"name": TEXTURES[texture], "showlegend": True}
        for texture, trace in zip(TEXTURES, _of(data, "fetch"), strict=False)
    ]
    others = [trace | {"showlegend": False} for trace in data if trace not in _of(data, "fetch")]
    split = SPLIT_CAPTION if found.cpu_ns is not None else SPLIT_UNKNOWN
    caption = STAGES_CAPTION.format(shares=WHAT_BARS_ARE, split=split)
    return Figure(f"stages-{one.number}", caption, [*parts, *others], form)


def _of(data: Sequence[Json], color: str) -> list[Json]:
    return [trace for trace in data if trace["marker"]["color"] == color]


# Who did what when


def _lanes(one: RunReport, found: Lanes) -> Figure:
    """A lane for each worker, and one for training."""
    places = {worker: at for at, worker in enumerate(found.workers)}
    last = len(places)
    lane = np.array([places[worker] for worker in found.times.worker.tolist()])
    times = found.times
    data = [
        _bars("fetch", times.fetch_start_ns, found.fetched_ns, lane, _fetched(found)),
        _bars("collate", found.fetched_ns, found.collated_ns, lane, _told(found, "collate")),
    ]
    if (found.ready_ns > found.pickle_start_ns).any():
        below = lane + PICKLE_AT
        words = _told(found, "pickle")
        data.append(_bars("pickle", found.pickle_start_ns, found.ready_ns, below, words))
    training = np.full(len(found), last)
    words = _waited(found)
    data.append(_bars("waiting", times.requested_ns, times.delivered_ns, training, words))
    training = np.full(len(found.step_start_ns), last)
    steps_ns = found.step_end_ns - found.step_start_ns
    words = [f"step {duration(ns)}" for ns in steps_ns.tolist()]
    data.append(_bars("step", found.step_start_ns, found.step_end_ns, training, words))
    if (held := found.head_of_line_ns > 0).any():
        data.append(_held_up(found, held, lane))
    names = [*map(worker_in_words, found.workers), TRAINING]
    lane_height = LANE if len(names) <= FEW_LANES else LOW_LANE
    form = plotly.layout(AROUND_LANES + lane_height * len(names))
    ends = np.array(found.span, dtype=np.float64) / SECOND_NS
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
    number = one.number
    return Figure(f"lanes-{number}", lanes_caption(found), data, form, (), f"lanes-{number}")


def _bars(color: str, start_ns: Column, end_ns: Column, at: Places, words: Sequence[str]) -> Json:
    trace = plotly.spans(color, start_ns / SECOND_NS, end_ns / SECOND_NS, at.tolist(), words)
    return trace | {"width": PICKLE_BAR if color == "pickle" else BAR}


def _held_up(found: Lanes, held: Mask, lane: Column) -> Json:
    """Over the end of each batch that later ones had to wait for."""
    blocked_ns = found.head_of_line_ns[held].tolist()
    words = [
        f"{where}<br>{HELD_UP_NAME} for {duration(ns)}"
        for where, ns in zip(np.array(_where(found))[held].tolist(), blocked_ns, strict=True)
    ]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": f"{HELD_UP_NAME} ({len(words):,})",
        "x": np.round(found.ready_ns[held] / SECOND_NS, plotly.S_DIGITS).tolist(),
        "y": (lane[held] - PICKLE_AT - 0.06).tolist(),
        "marker": {"color": "outlier", "size": 8, "symbol": "diamond"},
        "customdata": words,
        "hovertemplate": plotly.HOVER,
    }


def _where(found: Lanes) -> list[str]:
    """Each batch by its number and its worker."""
    times = found.times
    return [
        f"batch {batch}, {worker_in_words(worker)}"
        for batch, worker in zip(times.batch.tolist(), times.worker.tolist(), strict=True)
    ]


def _told(found: Lanes, name: str) -> list[str]:
    """Each batch, and how long its stage took."""
    ends = {
        "fetch": (found.times.fetch_start_ns, found.fetched_ns),
        "collate": (found.fetched_ns, found.collated_ns),
        "pickle": (found.pickle_start_ns, found.ready_ns),
    }
    start_ns, end_ns = ends[name]
    return [
        f"{where}<br>{name} {duration(ns)}"
        for where, ns in zip(_where(found), (end_ns - start_ns).tolist(), strict=True)
    ]


def _fetched(found: Lanes) -> list[str]:
    """The same of fetch, with the slowest sample."""
    times, told = found.times, _told(found, "fetch")
    slowest = zip(times.slowest_index.tolist(), times.slowest_ns.tolist(), strict=True)
    return [
        words if ns == UNKNOWN else f"{words}<br>slowest sample {_index(index)}{duration(ns)}"
        for words, (index, ns) in zip(told, slowest, strict=True)
    ]


def _index(index: int) -> str:
    return "" if index == UNKNOWN else f"{index}: "


def _waited(found: Lanes) -> list[str]:
    times = found.times
    waits_ns = (times.delivered_ns - times.requested_ns).tolist()
    return [
        f"batch {batch}<br>waited {duration(ns)}"
        for batch, ns in zip(times.batch.tolist(), waits_ns, strict=True)
    ]
