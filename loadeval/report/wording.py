"""Every sentence that a user reads, made from codes and numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.backends import are_ranks, of_one_comparison, ranked
from loadeval.analysis.verdict import HIGH_SHARE, INCONCLUSIVE, MODERATE_SHARE
from loadeval.report.formatting import (
    LONGEST_NAME,
    NOT_MEASURED,
    counted,
    duration,
    estimated,
    interval,
    number,
    per_second,
    printable,
    share,
    short_name,
    shortened,
    speedup,
)
from loadeval.runlog.model import NOT_RECORDED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from loadeval.analysis.backends import BackendReport, BackendResult, Difference
    from loadeval.analysis.findings.finding import Check, Finding
    from loadeval.analysis.gate import Gate
    from loadeval.analysis.growth import Growth
    from loadeval.analysis.headroom import Headroom
    from loadeval.analysis.report import Report, RunReport
    from loadeval.runlog.model import LoaderInfo, Run


NO_FASTER = 1.005
"""A speed-up under this reads 1.00x."""
THRESHOLDS = (
    f"not input-bound under {MODERATE_SHARE:.0%} of the time lost, moderately under "
    f"{HIGH_SHARE:.0%}, highly from {HIGH_SHARE:.0%}"
)


BRACKETS = "Brackets: 95% CI."
NO_DEVICE = f"{NOT_MEASURED}: no CUDA device was in use"
NO_READINGS = f"{NOT_MEASURED}: no reading while measured batches were served"
HOW_TO_MEASURE_GAIN = (
    "This run cannot tell what free loading would gain. Measure with mode='alternate', or with "
    "mode='log' and again with mode='replay'."
)


def report_headline(report: Report) -> str:
    """What the runs show, in one sentence."""
    if report.comparison is not None:
        return headline(report.comparison.headroom)
    if report.backends is not None:
        return backends_headline(report.backends)
    (one,) = report.runs
    (side,) = one.sides
    if side.summary.iteration_ns is None:
        return "Not measured: no steady-state batches"
    if side.arm == "ideal":
        return "Loading was free in this run: it replayed kept batches"
    waited = f"Training waited for batches {share(side.summary.wait_share)} of the time"
    between = interval(one.rate, number)
    known = f" (95% CI {between})" if between else ""
    rate = one.rate and per_second(one.rate.value, short_name(one.unit))
    return f"{waited}, at {rate}{known}" if rate else waited


def headline(headroom: Headroom) -> str:
    """The verdict, and what free loading would gain with its interval, in one sentence."""
    name, found = verdict_name(headroom), headroom.speedup
    verdict = name[0].upper() + name[1:]
    if found is None:
        return f"{verdict}: {_unmeasured_side(headroom)}"
    if headroom.verdict == INCONCLUSIVE:
        return f"{verdict}: {reason(headroom)}"
    gain = "no faster" if found.value < NO_FASTER else f"{speedup(found.value)} as fast"
    between = interval(found, speedup)
    known = f" (95% CI {between})" if between else ""
    return f"{verdict}: training would be {gain} if loading were free{known}"


def measured(headroom: Headroom) -> str:
    """How many batches of each arm were measured, and in how many pairs."""
    told = f"{headroom.real_batches:,} real and {headroom.ideal_batches:,} ideal batches"
    if headroom.pairs is None:
        return f"{told} in two separate runs"
    return f"{told} in {counted(headroom.pairs, 'pair of blocks', 'pairs of blocks')}"


def lost_in_words(headroom: Headroom) -> str:
    """The time lost per batch and its two parts, with intervals, in one sentence."""
    return (
        f"Lost per batch: {lost_of_iteration(headroom)}: "
        f"{estimated(headroom.waiting_ns, duration)} waiting and "
        f"{estimated(headroom.contention_ns, duration)} contention."
    )


def lost_of_iteration(headroom: Headroom) -> str:
    """The time lost per batch, and the lost share."""
    lost = estimated(headroom.lost_ns, duration)
    if headroom.lost_ns is None:
        return lost
    return f"{lost} of {duration(headroom.real_ns)} ({estimated(headroom.lost_share, share)})"


def required_in_words(required: float | None) -> str:
    """How much faster the loader must be."""
    if required is None:
        return NOT_MEASURED
    if required > 1:
        return f"the loader must be {speedup(required)} faster to keep up"
    return f"{speedup(required)} of an ideal iteration: alone, the loader is fast enough"


def backends_headline(found: BackendReport) -> str:
    """Which backend trains fastest, by how much, with its interval, in one sentence.

    Of the ranks of one training, what all of them do together.
    """
    if are_ranks([one.run for one in found.backends]):
        return _ranks_headline(found)
    known = [one for one in ranked(found.backends) if one.real]
    if not known:
        return "No backend was measured"
    first = known[0]
    if len(known) == 1:
        return _only_backend(first, found.unit)
    ahead = [one for one in found.differences if one.one == first.name]
    if not ahead[0].shown:
        return _no_fastest(first, ahead)
    which = "" if len(ahead) == 1 else "the next, "
    ratio, other = estimated(ahead[0].ratio, speedup), short_name(ahead[0].other)
    return f"{short_name(first.name)} trains fastest: {ratio} as fast as {which}{other}"


def _ranks_headline(found: BackendReport) -> str:
    """Their throughput together, and the share lost on those that lose least and most."""
    rates = [one.real.value for one in found.backends if one.real is not None]
    together = f"{counted(len(found.backends), 'rank', 'ranks')} of one training"
    if len(rates) == len(found.backends):
        together += f", {number(sum(rates))} {short_name(found.unit)}/s together"
    lost = sorted(one.lost_share.value for one in found.backends if one.lost_share is not None)
    if not lost:
        return f"{together}; what free loading would gain was not measured"
    return f"{together}: each loses {share(lost[0])} to {share(lost[-1])} of its time to loading"


def _only_backend(one: BackendResult, unit: str) -> str:
    name = short_name(one.name)
    if one.speedup is None:
        return f"{name}: {estimated(one.real, number)} {short_name(unit)}/s"
    gain = estimated(one.speedup, speedup)
    return f"{name}: training would be {gain} as fast if loading were free"


def _no_fastest(first: BackendResult, ahead: Sequence[Difference]) -> str:
    if ahead[0].ratio.low is None:
        other, ratio = short_name(ahead[0].other), estimated(ahead[0].ratio, speedup)
        name = short_name(first.name)
        return f"{name} was {ratio} as fast as {other}, with too few measurements for a CI"
    level = [short_name(one.other) for one in ahead if not one.shown]
    *others, last = short_name(first.name), *level
    fastest = "" if len(ahead) == len(level) else "the fastest, "
    return f"No difference shown between {fastest}{', '.join(others)} and {last}"


def measured_in_words(found: BackendReport) -> str:
    """How many backends, or ranks, how they were run, and how many batches were measured."""
    of_ranks = are_ranks([one.run for one in found.backends])
    each = "rank" if of_ranks else "backend"
    told = counted(len(found.backends), each, f"{each}s")
    if not of_ranks:
        told += " under one training step"
    known = [one for one in found.backends if one.real]
    if not known:
        return f"{told}."
    ideal = [one.ideal_batches for one in known if one.ideal]
    also = f" and {_span(ideal)} ideal" if ideal else ""
    real = _span(one.real_batches for one in known)
    runs = [one.run for one in known if one.run is not None]
    if of_one_comparison(runs):
        told += f", in turns, {printable(runs[0].header.settings.get('rounds'))} rounds in random"
        told += " order"
    elif len(runs) > 1:
        told += ", in separate runs"
    return f"{told}; {real} real{also} batches measured per {each}."


def _span(counts: Iterable[int]) -> str:
    found = sorted(set(counts))
    return f"{found[0]:,}" if len(found) == 1 else f"{found[0]:,}-{found[-1]:,}"


def failures(found: BackendReport) -> list[str]:
    """The backends whose loader raised, with the error, a sentence each."""
    return [f"{one.name} failed: {one.error}" for one in found.backends if one.error]


def run_notes(one: RunReport) -> list[str]:
    """What reading the run brought up, what happened while it ran, and what went wrong in it."""
    run, name = one.run, short_name(one.run.header.name)
    lines = [f"{name}: {note}" for note in run.notes]
    lines += [f"{name}, {event}" for event in _events(run)]
    lines += [
        f"{name}, epoch {end.epoch} failed: {end.error}"
        for end in run.ends
        if end.cause == "failed"
    ]
    lines += [
        f"{name}: memory of the {found.subject} grows: {growth_reason(found)}. "
        f"{growth_advice(found)}"
        for found in one.metrics.growths
        if found.grows
    ]
    return [printable(line) for line in lines]


def described_loader(run: Run) -> str:
    """What served the batches of `run`, in a few words: what is known, and nothing of the rest."""
    loader, cache = run.header.loader, run.header.cache
    if cache is not None:
        return printable(f"{cache.batches} kept batches replayed")
    if loader.backend == NOT_RECORDED:
        return "loader not recorded"
    parts = [shortened(class_name(loader), LONGEST_NAME)]
    for name, value in (
        ("workers", loader.workers),
        ("prefetch depth", loader.prefetch_depth),
        ("batch size", loader.batch_size),
    ):
        parts += [] if value is None else [f"{name} {shortened(str(value), LONGEST_NAME)}"]
    return printable(", ".join(parts))


def class_name(loader: LoaderInfo) -> str:
    """The name of the loader's class, without the module that it is in."""
    return str(loader.backend).rsplit(".", maxsplit=1)[-1]


def _unmeasured_side(headroom: Headroom) -> str:
    if headroom.pairs is not None:
        return reason(headroom)
    if headroom.real_ns is None and headroom.ideal_ns is None:
        return "the steady throughput of neither run was measured"
    side = "real" if headroom.real_ns is None else "ideal"
    return f"the steady throughput of the {side} run was not measured"


def verdict_name(headroom: Headroom) -> str:
    """The verdict in a few words: highly input-bound."""
    return headroom.verdict


def reason(headroom: Headroom) -> str:
    """Why the verdict is concluded: a clause without a full stop."""
    return headroom.reason


def verdict_advice(headroom: Headroom) -> str:
    """What to do about it, in sentences."""
    return headroom.advice


def cautions(headroom: Headroom) -> list[str]:
    """What makes the figures mean less than they seem to, a sentence each."""
    return [headroom.caution] if headroom.caution else []


def not_measured(headroom: Headroom) -> list[str]:
    """What was not measured and why, a sentence each."""
    return list(headroom.not_measured)


def finding_sentence(finding: Finding) -> str:
    """What is wrong."""
    return finding.sentence


def finding_advice(finding: Finding) -> str:
    """What to change."""
    return finding.advice


def finding_source(finding: Finding) -> str:
    """Where the rule is from."""
    return finding.source


def why_not_checked(check: Check) -> str:
    """Why a rule could not tell, as a clause; "" where it could."""
    return check.reason


def growth_reason(growth: Growth) -> str:
    """How the memory of a subject grows, or why that is not known: a clause."""
    return growth.reason


def growth_advice(growth: Growth) -> str:
    """What to do about it; "" for nothing."""
    return growth.advice


def _events(run: Run) -> list[str]:
    """What happened and when; what happened again is told once, with how often it did."""
    times_ns: dict[str, list[int]] = {}
    for event in run.events:
        times_ns.setdefault(event.message, []).append(event.time_ns)
    return [
        f"at {duration(first)}: {message}"
        + (f" ({len(again) + 1:,} times, last at {duration(again[-1])})" if again else "")
        for message, (first, *again) in times_ns.items()
    ]


def gate_sentence(gate: Gate) -> str:
    """Whether more than the limit is lost, and why."""
    return gate.reason


def backend_cautions(report: BackendReport) -> list[str]:
    """What makes the figures mean less than they seem to, a sentence each."""
    return list(report.cautions)


def backend_not_measured(report: BackendReport) -> list[str]:
    """What was not measured of which backends and why, a sentence each."""
    return list(report.not_measured)


def backend_verdict(result: BackendResult) -> str:
    """The verdict in a few words."""
    return result.verdict


def difference_sentence(difference: Difference) -> str:
    """Which backend is how much faster, with the interval, or that no difference is shown."""
    return str(difference)
