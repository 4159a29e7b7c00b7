"""What is said of the ranks of a job."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from matplotlib.text import Text

from loadeval.analysis.job.alignment import JobCaution
from loadeval.analysis.job.ranks import JobReport, Stragglers, Straggling
from loadeval.analysis.remark import Remark, Value
from loadeval.analysis.report import Report
from loadeval.report.figure.figure import job_figure
from loadeval.report.page import ranks
from loadeval.report.page.blocks import Figure
from loadeval.report.tables import Table
from loadeval.report.wording.ranks import (
    LARGE_DOTS,
    clocks_in_words,
    described_job,
    job_cautions,
    job_headline,
    own_waits_of,
    stragglers_in_words,
    worst_first,
)
from loadeval.report.wording.runs import report_headline
from tests.runs.ranks import MS, runs_of, train
from tests.runs.tables import replace


@pytest.fixture(name="job", scope="module")
def _job() -> JobReport:
    wait_ns = np.zeros((4, 100), np.int64)
    wait_ns[2, ::2] = 30 * MS
    return JobReport.of(runs_of(train(wait_ns), 2))


@pytest.fixture(name="large", scope="module")
def _large() -> JobReport:
    """More ranks than have a bar, of which the last one is behind."""
    wait_ns = np.full((120, 100), MS)
    wait_ns[119, ::2] = 30 * MS
    return JobReport.of(runs_of(train(wait_ns), 4))


def figure_of(job: JobReport) -> Figure:
    """The dots or bars on the page."""
    (section,) = ranks.ranks(Report.of_job(job))
    (figure,) = (block for block in section.blocks if isinstance(block, Figure))
    return figure


def sentences_of(job: JobReport, kind: Straggling, **more: Any) -> str:
    """The sentences of stragglers that are like this."""
    return stragglers_in_words(replace(job, stragglers=Stragglers(kind, 12.5 * MS, **more)))


def test_the_headline_is_the_loss_of_the_job(job: JobReport) -> None:
    report = Report.of_job(job)
    assert report_headline(report).startswith(
        "4 ranks of one job waited for batches 14.3% of the time, at 152 images/s together"
    )


def test_without_batches_the_headline_says_so(job: JobReport) -> None:
    empty = replace(job, iteration_ns=None, wait_ns=None)
    assert job_headline(Report.of_job(job), empty).endswith("no batch was measured on all of them")


def test_without_a_throughput_the_headline_has_none(job: JobReport) -> None:
    report = Report.of_job(job)
    report = replace(report, runs=(replace(report.runs[0], rate=None),))
    assert job_headline(report, job) == ("4 ranks of one job waited for batches 14.3% of the time")


def test_a_job_is_described_by_its_ranks_and_nodes(job: JobReport) -> None:
    assert described_job(job).startswith("4 ranks on 2 nodes; 100 batches measured on all.")
    part = replace(job, world_size=8, nodes=None)
    assert described_job(part).startswith("4 ranks of 8; 100 batches")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Straggling.TOO_FEW, "not known; fewer than 20 batches"),
        (Straggling.NO_WAITS, "none; no rank waits"),
        (Straggling.EVEN, "none; all ranks wait about equally long"),
        (Straggling.STALLS, "none; a few long waits"),
        (Straggling.SPREAD, "none; the last rank changes, and waits 12.5 ms per batch"),
    ],
)
def test_without_a_straggler_the_reason_is_told(
    job: JobReport, kind: Straggling, words: str
) -> None:
    assert sentences_of(job, kind).startswith(f"Stragglers: {words}")


COSTS: dict[str, Any] = {"cost_ns": 10.0 * MS, "cost_share": 0.1, "last_share": 0.5}


def test_one_straggler(job: JobReport) -> None:
    assert sentences_of(job, Straggling.RANKS, ranks=(3,), host="node1", **COSTS) == (
        "Straggler: rank 3 on node1, last in 50.0% of the batches that some rank waits for; costs "
        "the job 10.0% of its time (10.0 ms per batch)."
    )


def test_several_stragglers(job: JobReport) -> None:
    sentences = sentences_of(job, Straggling.RANKS, ranks=(3, 7), **COSTS)
    assert sentences.startswith("Stragglers: ranks 3, 7, one of them last in 50.0% of the batches")
    assert "they cost the job 10.0%" in sentences


def test_a_node(job: JobReport) -> None:
    sentences = sentences_of(job, Straggling.NODE, ranks=(2, 3), host="node1", **COSTS)
    assert sentences.startswith("Straggler: node node1 (ranks 2, 3), last in 50.0%")


def test_what_is_behind_a_straggler(job: JobReport) -> None:
    """One worker, or one sample; which may be behind it where no rank is."""
    worker = {"worker": 5, "worker_rank": 3, "cause_share": 0.9}
    sentences = sentences_of(job, Straggling.RANKS, ranks=(3,), **COSTS, **worker)
    assert sentences.endswith("90.0% of that is in batches of worker 5 of rank 3.")
    sample = {"sample_index": 77, "cause_share": 0.8}
    for kind in (Straggling.RANKS, Straggling.ONE_SAMPLE):
        sentences = sentences_of(job, kind, ranks=(3,), **COSTS, **sample)
        assert sentences.endswith("80.0% of that is in batches with sample 77.")


CAUTIONS: dict[JobCaution, dict[str, Value]] = {
    JobCaution.MISSING_RANKS: {"count": 2, "size": 8, "ranks": "3, 5"},
    JobCaution.ENDED_EARLY: {"count": 1, "ranks": "3", "most": 1000},
    JobCaution.UNEQUAL_LENGTHS: {"fewest": 10, "most": 12, "common": 9},
    JobCaution.DIFFERENT_ARMS: {"batches": 5},
    JobCaution.NOT_TOGETHER: {"shortest_ns": 1.0 * MS, "longest_ns": 2.0 * MS},
}


@pytest.mark.parametrize("code", JobCaution)
def test_each_caution_is_a_sentence_with_its_numbers(job: JobReport, code: JobCaution) -> None:
    (sentence,) = job_cautions(replace(job, cautions=(Remark(code, CAUTIONS[code]),)))
    assert sentence.endswith(".")
    assert "{" not in sentence


def test_clocks_are_told_where_they_are_known(job: JobReport) -> None:
    assert clocks_in_words(job) == (
        "The ranks' clocks differ by up to 0 ns: no figure depends on that."
    )
    unknown = tuple(replace(rank, skew_ns=None) for rank in job.ranks)
    assert clocks_in_words(replace(job, ranks=unknown)) == ""


def test_the_ranks_that_cost_most_come_first(job: JobReport) -> None:
    """Those that have no figures come last."""
    first, *others = job.ranks
    ordered = worst_first(replace(job, ranks=(replace(first, cost_ns=None, wait_ns=None), *others)))
    assert ordered[0].rank == 2


def test_the_title_of_the_waits_tells_how_many_ranks_are_left_out(
    job: JobReport, large: JobReport
) -> None:
    assert own_waits_of(job, 4) == "Mean wait of each rank for its batches"
    assert own_waits_of(large, 16).endswith(": the 16 of 120 that cost the job most")


def test_the_figure_explains_no_column_that_it_lacks(large: JobReport) -> None:
    figure = job_figure(Report.of_job(large), large)
    words = " ".join(text.get_text() for text in cast("list[Text]", figure.findobj(Text)))
    assert "Own wait:" not in words
    assert "Straggler: rank 119" in words


def test_the_dot_of_a_straggler_is_large_and_named(large: JobReport) -> None:
    (dots,) = figure_of(large).data
    assert dots["marker"]["size"] == [5] * 119 + [13]
    assert dots["text"] == [""] * 119 + ["rank 119"]
    assert dots["textposition"][-1] == "middle left"
    assert figure_of(large).caption.endswith(LARGE_DOTS)


def test_several_stragglers_have_no_names_that_cover_one_another(large: JobReport) -> None:
    several = replace(large, stragglers=replace(large.stragglers, ranks=(118, 119)))
    (dots,) = figure_of(several).data
    assert dots["marker"]["size"][-3:] == [5, 13, 13]
    assert not any(dots["text"])


def test_a_caption_speaks_of_large_dots_only_where_there_are_some(
    job: JobReport, large: JobReport
) -> None:
    even = replace(large, stragglers=Stragglers(Straggling.EVEN, 0.0))
    assert LARGE_DOTS not in figure_of(even).caption
    assert LARGE_DOTS not in figure_of(job).caption


def test_ranks_that_cost_little_are_folded_away(large: JobReport) -> None:
    (section,) = ranks.ranks(Report.of_job(large))
    first, more = (block for block in section.blocks if isinstance(block, Table))
    assert first.caption.endswith(", the first 16 of 120")
    assert first.rows[0][0] == "119"
    assert (more.folded, more.caption, len(more.rows)) == (True, "The next 84", 84)
