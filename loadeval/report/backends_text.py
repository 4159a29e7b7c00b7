"""Several backends in plain text: a headline, tables, and the differences in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.backends import are_ranks, of_one_comparison, ranked
from loadeval.report.formatting import (
    LONGEST_NAME,
    counted,
    duration,
    estimated,
    number,
    printable,
    share,
    shortened,
    speedup,
)
from loadeval.report.ranks import ranks_headline
from loadeval.report.readings import gpus_of_backends
from loadeval.report.wording import (
    backend_cautions,
    backend_not_measured,
    backend_verdict,
    difference_sentence,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from loadeval.analysis.backends import BackendResult, Difference
    from loadeval.report.backends import BackendComparison

GAP = "  "
LONGEST_IN_TABLE = 24


def backends_text(found: BackendComparison) -> str:
    """The whole result; lines are as long as they need to be."""
    heading = [headline(found), measured_in_words(found), "Brackets are 95% intervals."]
    parts = ["\n".join(heading), _table(_paces(found))]
    if not all(one.error for one in found.backends):
        parts.append(_table(_gains(found)))
    failures = [f"{one.name} failed: {one.error}" for one in found.backends if one.error]
    for title, said in (
        ("", failures),
        ("Differences in real throughput", map(difference_sentence, found.differences)),
        ("Readings", gpus_of_backends(found.backends)),
        ("Not measured", backend_not_measured(found)),
        ("Cautions", backend_cautions(found)),
    ):
        if lines := [printable(line) for line in said]:
            parts.append("\n".join([*filter(None, [title]), *lines]))
    return "\n\n".join(parts)


def headline(found: BackendComparison) -> str:
    """Which backend trains fastest, by how much, with its interval, in one sentence.

    Of the ranks of one training, what all of them do together.
    """
    if are_ranks([one.run for one in found.backends]):
        return ranks_headline(found)
    measured = [one for one in ranked(found.backends) if one.real]
    if not measured:
        return "No backend was measured"
    first = measured[0]
    if len(measured) == 1:
        return _alone(first, found.unit)
    ahead = [one for one in found.differences if one.one == first.name]
    if not ahead[0].shown:
        return _undecided(first, ahead)
    other = shortened(printable(ahead[0].other), LONGEST_NAME)
    ratio = estimated(ahead[0].ratio, speedup)
    which = "" if len(ahead) == 1 else "the next, "
    return f"{_name(first)} trains fastest: {ratio} as fast as {which}{other}"


def _alone(first: BackendResult, unit: str) -> str:
    if first.speedup is None:
        rate = estimated(first.real, _rate)
        return f"{_name(first)}: {rate} {shortened(printable(unit), LONGEST_NAME)}/s"
    gain = estimated(first.speedup, speedup)
    return f"{_name(first)}: training would be {gain} as fast if loading were free"


def _undecided(first: BackendResult, ahead: Sequence[Difference]) -> str:
    if ahead[0].ratio.low is None:
        nearest = estimated(ahead[0].ratio, speedup)
        other = shortened(printable(ahead[0].other), LONGEST_NAME)
        return f"{_name(first)} was {nearest} as fast as {other}, with too little for an interval"
    level = [one.other for one in ahead if not one.shown]
    told = [shortened(printable(name), LONGEST_NAME) for name in (first.name, *level)]
    joined = f"{', '.join(told[:-1])} and {told[-1]}"
    fastest = "" if len(ahead) == len(level) else "the fastest, "
    return f"No difference shown between {fastest}{joined}"


def measured_in_words(found: BackendComparison) -> str:
    """How much was counted and how, in one sentence."""
    runs = [one for one in found.backends if one.real]
    told = f"{counted(len(found.backends), 'backend', 'backends')} under one training step"
    if are_ranks([one.run for one in found.backends]):
        told = counted(len(found.backends), "rank", "ranks")
    if not runs:
        return f"{told}."
    ideal = [one.ideal_batches for one in runs if one.ideal]
    also = f" and {_range(ideal)} ideal" if ideal else ""
    real = _range([one.real_batches for one in runs])
    each = "rank" if are_ranks([one.run for one in found.backends]) else "backend"
    return f"{told}{_how(runs)}; {real} real{also} batches measured per {each}."


def _how(results: Sequence[BackendResult]) -> str:
    runs = [one.run for one in results if one.run is not None]
    if of_one_comparison(runs):
        rounds = runs[0].header.settings.get("rounds")
        return f", in turns, {printable(rounds)} rounds in random order"
    return ", in separate runs" if len(runs) > 1 else ""


def _paces(found: BackendComparison) -> list[list[str]]:
    unit = shortened(printable(found.unit), LONGEST_IN_TABLE)
    rows = [[f"{unit}/s", "real", "ideal", "loader alone"]]
    for one in ranked(found.backends):
        rates = (one.real, one.ideal, one.loader_only)
        told = ["failed"] if one.error else [estimated(rate, _rate) for rate in rates]
        rows.append([_name(one, LONGEST_IN_TABLE), *told])
    return rows


def _gains(found: BackendComparison) -> list[list[str]]:
    rows = [["", "if loading were free", "lost to loading", "epoch start", "verdict"]]
    rows += [
        [
            _name(one, LONGEST_IN_TABLE),
            estimated(one.speedup, speedup),
            share(None if one.lost_share is None else one.lost_share.value),
            duration(one.epoch_start_ns),
            backend_verdict(one),
        ]
        for one in ranked(found.backends)
        if not one.error
    ]
    return rows


def _table(rows: Sequence[Sequence[str]]) -> str:
    columns = max(len(row) for row in rows)
    widths = [
        max(len(row[column]) for row in rows if column < len(row)) for column in range(columns)
    ]
    return "\n".join(
        GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip()
        for row in rows
    )


def _range(counts: Iterable[int]) -> str:
    found = sorted(set(counts))
    return f"{found[0]:,}" if len(found) == 1 else f"{found[0]:,}-{found[-1]:,}"


def _rate(value: float | None) -> str:
    return number(value or 0.0)


def _name(one: BackendResult, longest: int = LONGEST_NAME) -> str:
    return shortened(printable(one.name), longest)
