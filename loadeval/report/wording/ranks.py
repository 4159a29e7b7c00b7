"""Sentences about the ranks of one job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.aligned_ranks import JobCaution
from loadeval.analysis.ranks import FEWEST_STEPS, Straggling
from loadeval.report.formatting import counted, duration, number, per_second, share, short_name
from loadeval.report.wording.verdict import remarks_in_words, with_ci

if TYPE_CHECKING:
    from collections.abc import Sequence
    from enum import Enum

    from loadeval.analysis.ranks import JobReport, RankResult, Stragglers
    from loadeval.analysis.report import Report

MOST_RANKS = 64
"""Rows of a table in full."""
CAUTIONS: dict[Enum, str] = {
    JobCaution.MISSING_RANKS: (
        "The logs of {count} of {size} ranks are missing ({ranks}): throughput is that of the "
        "others, and the job may lose more."
    ),
    JobCaution.ENDED_EARLY: (
        "Ranks that ended early are left out: {ranks}, after {most:,} batches at most."
    ),
    JobCaution.UNEQUAL_LENGTHS: (
        "Ranks have {fewest:,} to {most:,} batches: the {common:,} that all of them have are "
        "compared."
    ),
    JobCaution.DIFFERENT_ARMS: (
        "For {batches:,} batches the ranks were in different arms: these are left out. Pass the "
        "same seed, pairs and batches on all ranks."
    ),
    JobCaution.NOT_TOGETHER: (
        "The ranks do not end their steps together: the same batches took {shortest_ns:duration} "
        "on one and {longest_ns:duration} on another. They may not train one model, and then these "
        "figures mean nothing."
    ),
}
HEAD = ("rank", "host", "own wait", "share", "for others", "last", "costs")
WHAT_RANKS_ARE = (
    "Own wait: for its batches, and its share of the time. For others: what it waits in its step "
    "for ranks that waited longer. Last: in which part of the batches that some rank waits for. "
    "Costs: what the job would save if this rank alone waited no longer than the others."
)
SLOWEST_DECIDES = "At each step the job waits as long as the rank that waits longest."
OWN_WAITS = "Mean wait of each rank for its batches"
LARGE_DOTS = "Large dots are stragglers."
OF_ONE_RANK = (
    "Findings, and what is inside the loader, are those of rank {rank}, which was last most often."
)
PREDICTED_OF_RANK = (
    "Predicted for rank {rank}, which was last most often. Throughput is that of this rank alone."
)


def job_headline(report: Report, job: JobReport) -> str:
    """What a job loses that did not alternate, and its throughput."""
    (one,) = report.runs
    ranks = counted(len(job.ranks), "rank", "ranks")
    if job.wait_share is None:
        return f"{ranks} of one job: no batch was measured on all of them"
    waited = f"{ranks} of one job waited for batches {share(job.wait_share)} of the time"
    if one.rate is None:
        return waited
    rate = per_second(one.rate.value, short_name(one.unit))
    return f"{waited}, at {rate} together{with_ci(one.rate, number)}"


def described_job(job: JobReport) -> str:
    """How many ranks, where, and how many batches were measured."""
    nodes = "" if job.nodes is None else f" on {counted(job.nodes, 'node', 'nodes')}"
    ranks = counted(len(job.ranks), "rank", "ranks")
    of_all = f" of {job.world_size}" if len(job.ranks) < job.world_size else ""
    steps = counted(job.steps, "batch", "batches")
    return f"{ranks}{of_all}{nodes}; {steps} measured on all. {SLOWEST_DECIDES}"


def stragglers_in_words(job: JobReport) -> str:
    """Who is behind the waits, what that costs, and what it is about them."""
    found = job.stragglers
    if found.kind is Straggling.TOO_FEW:
        return (
            f"Stragglers: not known; fewer than {FEWEST_STEPS} batches were measured on all ranks."
        )
    if found.kind is Straggling.NO_WAITS:
        return "Stragglers: none; no rank waits for its batches."
    if found.kind is Straggling.EVEN:
        return "Stragglers: none; all ranks wait alike."
    if found.kind is Straggling.STALLS:
        return "Stragglers: none; a few long waits are most of it, too few to tell whose come next."
    if found.kind in (Straggling.SPREAD, Straggling.ONE_SAMPLE):
        return _changing(found)
    return f"{_behind(found)} {_cause(found)}".rstrip()


def _changing(found: Stragglers) -> str:
    told = (
        "Stragglers: none; now one rank is last and now another, by "
        f"{duration(found.uneven_ns)} per batch beyond the typical rank."
    )
    return f"{told} {_cause(found)}".rstrip()


def _behind(found: Stragglers) -> str:
    costs = (
        f"last in {share(found.last_share)} of the batches that some rank waits for; "
        f"{{costs}} the job {share(found.cost_share)} of its time "
        f"({duration(found.cost_ns)} per batch)."
    )
    ranks = ranks_in_words(found.ranks)
    if found.kind is Straggling.NODE:
        return f"Straggler: node {short_name(found.host)} ({ranks}), {costs.format(costs='costs')}"
    where = f" on {short_name(found.host)}" if found.host is not None else ""
    if len(found.ranks) == 1:
        return f"Straggler: {ranks}{where}, {costs.format(costs='costs')}"
    return f"Stragglers: {ranks}{where}, one of them {costs.format(costs='they cost')}"


def _cause(found: Stragglers) -> str:
    if found.sample_index is not None:
        return f"{share(found.cause_share)} of that is in batches with sample {found.sample_index}."
    if found.worker is not None:
        return (
            f"{share(found.cause_share)} of that is in batches of worker {found.worker} of rank "
            f"{found.worker_rank}."
        )
    return ""


def ranks_in_words(ranks: Sequence[int]) -> str:
    """Such as: rank 3; ranks 3, 7."""
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {', '.join(map(str, ranks))}"


def job_cautions(job: JobReport) -> list[str]:
    """What makes the figures mean less than they seem to, a sentence each."""
    return remarks_in_words(CAUTIONS, job.cautions)


def own_waits_of(job: JobReport, shown: int) -> str:
    """The title of the waits of the first `shown` ranks by what they cost the job."""
    if shown >= len(job.ranks):
        return OWN_WAITS
    return f"{OWN_WAITS}: the {shown} of {len(job.ranks):,} that cost the job most"


def clocks_in_words(job: JobReport) -> str:
    """By how much the ranks' clocks differ; "" where that is not known."""
    if job.skew_ns is None:
        return ""
    return f"The ranks' clocks differ by up to {duration(job.skew_ns)}: no figure depends on that."


def rank_rows(ranks: Sequence[RankResult], longest: int) -> list[list[str]]:
    """For each rank what HEAD says; hosts in at most so many characters."""
    return [
        [
            str(one.rank),
            "unknown" if one.host is None else short_name(one.host, longest),
            duration(one.wait_ns),
            share(one.wait_share),
            duration(one.waited_for_ns),
            share(one.last_share),
            duration(one.cost_ns),
        ]
        for one in ranks
    ]


def worst_first(job: JobReport) -> list[RankResult]:
    """The ranks, those that cost the job most first."""
    return sorted(job.ranks, key=lambda one: (-(one.cost_ns or 0.0), -(one.wait_ns or 0.0)))
