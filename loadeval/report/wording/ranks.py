"""Sentences about the ranks of one job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.job.alignment import JobCaution
from loadeval.analysis.job.ranks import FEWEST_STEPS, Straggling
from loadeval.report.formatting import counted, duration, number, per_second, share, short_name
from loadeval.report.wording.verdict import remarks_in_words, with_ci

if TYPE_CHECKING:
    from collections.abc import Sequence
    from enum import Enum

    from loadeval.analysis.job.ranks import JobReport, RankResult, Stragglers
    from loadeval.analysis.report import Report

MOST_RANKS = 64
"""A full table has at most so many rows."""
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
    "Own wait: how long the rank waits for its batches, and the share of the time that is. For "
    "others: how long its step waits for ranks that waited longer. Last: the share of the batches "
    "that some rank waits for in which this rank waits longest. Costs: what the job would save if "
    "this rank alone waited no longer than the others."
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
    (run,) = report.runs
    ranks = counted(len(job.ranks), "rank", "ranks")
    if job.wait_share is None:
        return f"{ranks} of one job: no batch was measured on all of them"
    waited = f"{ranks} of one job waited for batches {share(job.wait_share)} of the time"
    if run.rate is None:
        return waited
    rate = per_second(run.rate.value, short_name(run.unit))
    return f"{waited}, at {rate} together{with_ci(run.rate, number)}"


def described_job(job: JobReport) -> str:
    """How many ranks, where, and how many batches were measured."""
    nodes = "" if job.nodes is None else f" on {counted(job.nodes, 'node', 'nodes')}"
    ranks = counted(len(job.ranks), "rank", "ranks")
    of_all = f" of {job.world_size}" if len(job.ranks) < job.world_size else ""
    steps = counted(job.steps, "batch", "batches")
    return f"{ranks}{of_all}{nodes}; {steps} measured on all. {SLOWEST_DECIDES}"


def stragglers_in_words(job: JobReport) -> str:
    """Who is behind the waits, what that costs, and what it is about them."""
    stragglers = job.stragglers
    if stragglers.kind is Straggling.TOO_FEW:
        return (
            f"Stragglers: not known; fewer than {FEWEST_STEPS} batches were measured on all ranks."
        )
    if stragglers.kind is Straggling.NO_WAITS:
        return "Stragglers: none; no rank waits for its batches."
    if stragglers.kind is Straggling.EVEN:
        return "Stragglers: none; all ranks wait about equally long."
    if stragglers.kind is Straggling.STALLS:
        return "Stragglers: none; a few long waits make up most of it, too few to show a pattern."
    if stragglers.kind in (Straggling.SPREAD, Straggling.ONE_SAMPLE):
        return _changing(stragglers)
    return f"{_behind(stragglers)} {_cause(stragglers)}".rstrip()


def _changing(stragglers: Stragglers) -> str:
    changing = (
        "Stragglers: none; the last rank changes, and waits "
        f"{duration(stragglers.uneven_ns)} per batch longer than the typical rank."
    )
    return f"{changing} {_cause(stragglers)}".rstrip()


def _behind(stragglers: Stragglers) -> str:
    costs = (
        f"last in {share(stragglers.last_share)} of the batches that some rank waits for; "
        f"{{costs}} the job {share(stragglers.cost_share)} of its time "
        f"({duration(stragglers.cost_ns)} per batch)."
    )
    ranks, host = ranks_in_words(stragglers.ranks), short_name(stragglers.host)
    if stragglers.kind is Straggling.NODE:
        return f"Straggler: node {host} ({ranks}), {costs.format(costs='costs')}"
    where = f" on {host}" if stragglers.host is not None else ""
    if len(stragglers.ranks) == 1:
        return f"Straggler: {ranks}{where}, {costs.format(costs='costs')}"
    return f"Stragglers: {ranks}{where}, one of them {costs.format(costs='they cost')}"


def _cause(stragglers: Stragglers) -> str:
    part, worker = share(stragglers.cause_share), stragglers.worker
    if stragglers.sample_index is not None:
        return f"{part} of that is in batches with sample {stragglers.sample_index}."
    if worker is not None:
        return f"{part} of that is in batches of worker {worker} of rank {stragglers.worker_rank}."
    return ""


def ranks_in_words(ranks: Sequence[int]) -> str:
    """The ranks by number, such as "rank 3" or "ranks 3, 7"."""
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
    """How much the ranks' clocks differ; "" where that is not known."""
    if job.skew_ns is None:
        return ""
    return f"The ranks' clocks differ by up to {duration(job.skew_ns)}: no figure depends on that."


def rank_rows(ranks: Sequence[RankResult], longest: int) -> list[list[str]]:
    """A row under HEAD for each rank; hosts have at most `longest` characters."""
    return [
        [
            str(rank.rank),
            "unknown" if rank.host is None else short_name(rank.host, longest),
            duration(rank.wait_ns),
            share(rank.wait_share),
            duration(rank.waited_for_ns),
            share(rank.last_share),
            duration(rank.cost_ns),
        ]
        for rank in ranks
    ]


def worst_first(job: JobReport) -> list[RankResult]:
    """The ranks, those that cost the job most first."""
    return sorted(job.ranks, key=lambda rank: (-(rank.cost_ns or 0.0), -(rank.wait_ns or 0.0)))
