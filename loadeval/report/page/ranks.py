"""The page's sections of the ranks of one job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.report.figure.bar_charts import ranks_chart
from loadeval.report.figure.point_charts import (
    linear_axis,
)
from loadeval.report.formatting import LONGEST_NAME, duration, share
from loadeval.report.page import plotly
from loadeval.report.page.blocks import Figure, Section, Text
from loadeval.report.page.escaping import drawn
from loadeval.report.palette import NAMES
from loadeval.report.tables import Table
from loadeval.report.wording import ranks as rank_words

if TYPE_CHECKING:
    from loadeval.analysis.job.ranks import JobReport
    from loadeval.analysis.report import Report
    from loadeval.report.page.blocks import Block, Json


RANKS_HEIGHT, MOST_RANKS = 260, 100


SMALL_DOT, LARGE_DOT, HALF = 5, 13, 0.5


def ranks(report: Report) -> list[Section]:
    """One section for a job, else none: who waits, who keeps the others waiting."""
    job = report.job
    if job is None:
        return []
    chart, order = ranks_chart(job), rank_words.worst_first(job)
    drawing = plotly.bars(chart) if len(order) <= len(chart.rows) else _all_ranks(job)
    large = (
        f" {rank_words.LARGE_DOTS}" if len(order) > len(chart.rows) and job.stragglers.ranks else ""
    )
    rows = list(map(tuple, rank_words.rank_rows(order[:MOST_RANKS], LONGEST_NAME)))
    top, more = tuple(rows[: len(chart.rows)]), tuple(rows[len(chart.rows) :])
    first = f", the first {len(top)} of {len(order):,}" if more else ""
    clocks = rank_words.clocks_in_words(job)
    explained = (rank_words.WHAT_RANKS_ARE, rank_words.OF_ONE_RANK.format(rank=job.shown), clocks)
    blocks: list[Block] = [
        Figure("ranks", f"{rank_words.OWN_WAITS}.{large}", *drawing),
        Table(f"Ranks, by what they cost the job{first}", rank_words.HEAD, top, figures=True),
        Text(tuple(filter(None, explained)), "small"),
    ]
    if more:
        blocks.insert(
            2, Table(f"The next {len(more)}", rank_words.HEAD, more, folded=True, figures=True)
        )
    return [Section("ranks", "Ranks", tuple(blocks))]


def _all_ranks(job: JobReport) -> tuple[list[Json], Json]:
    """A dot for each rank, a large one for a straggler; a single straggler by its name."""
    known = [(rank, rank.wait_ns) for rank in job.ranks if rank.wait_ns is not None]
    longest_ns = max((ns for _, ns in known), default=0.0)
    large = set(job.stragglers.ranks)
    named = large if len(large) == 1 else set()  # names of neighbours would cover one another
    form = plotly.layout(RANKS_HEIGHT)
    form["xaxis"] = plotly.axis("rank", showgrid=False, fixedrange=True)
    form["yaxis"] = plotly.value_axis(linear_axis(longest_ns, "wait"))
    words = [
        f"rank {rank.rank} on {drawn(rank.host or 'an unknown host')}<br>waits {duration(ns)}, "
        f"last in {share(rank.last_share)}"
        for rank, ns in known
    ]
    numbers, waits_ns = [rank.rank for rank, _ in known], [ns for _, ns in known]
    dots = plotly.trace("scatter", NAMES["waiting"], numbers, waits_ns, words) | {
        "mode": "markers+text",
        "showlegend": False,
        "marker": {
            "color": "waiting",
            "size": [LARGE_DOT if rank.rank in large else SMALL_DOT for rank, _ in known],
            # Plotly makes dots of several sizes transparent, with an outline.
            "opacity": 1,
            "line": {"width": 0},
        },
        "text": [f"rank {rank.rank}" if rank.rank in named else "" for rank, _ in known],
        "textposition": [
            "middle right" if rank.rank < HALF * job.world_size else "middle left"
            for rank, _ in known
        ],
    }
    return [dots], form
