"""Sentences about backends side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.backends import (
    BackendCaution,
    MissingOfBackend,
    of_one_comparison,
    ranked,
)
from loadeval.report.formatting import (
    counted,
    estimated,
    number,
    printable,
    short_name,
    speedup,
)
from loadeval.report.wording import verdict
from loadeval.report.wording.verdict import SEPARATE, TOO_FEW_FOR_CI, reason, remarks_in_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from enum import Enum

    from loadeval.analysis.backends import BackendReport, BackendResult, Difference

BRACKETS = "Brackets: 95% CI."
CAUTIONS: dict[Enum, str] = {
    **verdict.CAUTIONS,
    BackendCaution.UNEQUAL_WORK: "The backends do not do equal work: {differences}.",
    BackendCaution.UNEQUAL_EPOCHS: "The backends' epochs differ in {unit}: {sizes}.",
    BackendCaution.DIFFERENT_MACHINES: "The runs are from different machines: {fact} {values}.",
    BackendCaution.SEPARATE_RUNS: (
        f"{SEPARATE} a difference between backends, and no 95% CI covers it."
    ),
    BackendCaution.BY_BATCH: (
        "Samples are not known for every batch, or have different names: throughput is in batches."
    ),
    BackendCaution.MANY_DIFFERENCES: (
        "The 95% CIs of the {count} differences are not corrected for multiple comparisons."
    ),
}
MISSING: dict[Enum, str] = {
    **verdict.MISSING,
    MissingOfBackend.IDEAL: (
        "No ideal throughput and no loader alone: the run does not alternate."
    ),
    MissingOfBackend.EPOCH_START: (
        "No epoch start: batches were ready whenever the backend's turn began."
    ),
    MissingOfBackend.THROUGHPUT: "No throughput: no measured batches, or zero elapsed time.",
}


def backends_headline(report: BackendReport) -> str:
    """Which backend trains fastest, by how much, with its interval, in one sentence."""
    known = [backend for backend in ranked(report.backends) if backend.real]
    if not known:
        return "No backend was measured"
    first = known[0]
    if len(known) == 1:
        return _only_backend(first, report.unit)
    ahead = [difference for difference in report.differences if difference.one == first.name]
    if not ahead[0].shown:
        return _no_fastest(first, ahead)
    which = "" if len(ahead) == 1 else "the next, "
    ratio, other = estimated(ahead[0].ratio, speedup), short_name(ahead[0].other)
    return f"{short_name(first.name)} trains fastest: {ratio} as fast as {which}{other}"


def _only_backend(backend: BackendResult, unit: str) -> str:
    name = short_name(backend.name)
    if backend.speedup is None:
        return f"{name}: {estimated(backend.real, number)} {short_name(unit)}/s"
    gain = estimated(backend.speedup, speedup)
    return f"{name}: training would be {gain} as fast if loading were free"


def _no_fastest(first: BackendResult, ahead: Sequence[Difference]) -> str:
    if ahead[0].ratio.low is None:
        other, ratio = short_name(ahead[0].other), estimated(ahead[0].ratio, speedup)
        name = short_name(first.name)
        return f"{name} was {ratio} as fast as {other}, with {TOO_FEW_FOR_CI}"
    level = [short_name(difference.other) for difference in ahead if not difference.shown]
    *others, last = short_name(first.name), *level
    fastest = "" if len(ahead) == len(level) else "the fastest, "
    return f"No difference shown between {fastest}{', '.join(others)} and {last}"


def measured_in_words(report: BackendReport) -> str:
    """How many backends, how they were run, and how many batches were measured."""
    text = f"{counted(len(report.backends), 'backend', 'backends')} under one training step"
    known = [backend for backend in report.backends if backend.real]
    if not known:
        return f"{text}."
    ideal = [backend.ideal_batches for backend in known if backend.ideal]
    also = f" and {_span(ideal)} ideal" if ideal else ""
    real = _span(backend.real_batches for backend in known)
    runs = [backend.run for backend in known if backend.run is not None]
    if of_one_comparison(runs):
        rounds = printable(runs[0].header.settings.get("rounds"))
        text += f", in turns, {rounds} rounds in random order"
    elif len(runs) > 1:
        text += ", in separate runs"
    return f"{text}; {real} real{also} batches measured per backend."


def _span(counts: Iterable[int]) -> str:
    counts_in_order = sorted(set(counts))
    return (
        f"{counts_in_order[0]:,}"
        if len(counts_in_order) == 1
        else f"{counts_in_order[0]:,}-{counts_in_order[-1]:,}"
    )


def failures(report: BackendReport) -> list[str]:
    """The backends whose loader raised, with the error, a sentence each."""
    return [
        f"{backend.name} failed: {backend.error}" for backend in report.backends if backend.error
    ]


def backend_verdict(result: BackendResult) -> str:
    """The verdict in a few words; or failed, or not measured."""
    return result.state.value if result.headroom is None else str(result.headroom.verdict)


def backend_reason(result: BackendResult) -> str:
    """Why: a clause without a full stop; "" where nothing was concluded."""
    return result.error or ("" if result.headroom is None else reason(result.headroom))


def backend_cautions(report: BackendReport) -> list[str]:
    """What makes the figures mean less than they seem to, a sentence each.

    What concerns some backends alone is behind their names.
    """
    sizes = (
        f"{backend.name} {' or '.join(f'{size:,}' for size in backend.epoch_sizes)}"
        for backend in report.backends
        if backend.epoch_sizes
    )
    own = {
        backend.name: [
            *remarks_in_words(CAUTIONS, backend.cautions),
            *(() if backend.run is None else backend.run.notes),
        ]
        for backend in report.backends
    }
    values = {"sizes": ", ".join(sizes)}
    return [*remarks_in_words(CAUTIONS, report.cautions, values), *_by_name(own)]


def missing_of(result: BackendResult) -> list[str]:
    """What was not measured of one backend and why, a sentence each."""
    return remarks_in_words(MISSING, result.not_measured)


def backend_not_measured(report: BackendReport) -> list[str]:
    """What is missing of which backends, and why, a sentence each."""
    return _by_name({backend.name: missing_of(backend) for backend in report.backends})


def _by_name(sentences: Mapping[str, Iterable[str]]) -> list[str]:
    """Each sentence once, behind the names of all that it concerns."""
    names: dict[str, list[str]] = {}
    for name, own in sentences.items():
        for sentence in own:
            names.setdefault(sentence, []).append(name)
    return [f"{', '.join(concerned)}: {sentence}" for sentence, concerned in names.items()]


def difference_sentence(difference: Difference) -> str:
    """How the throughputs of two backends compare: a clause without a full stop."""
    name, other, ratio = difference.one, difference.other, difference.ratio
    times = estimated(ratio, speedup)
    if ratio.low is None:
        return f"{name} {times} as fast as {other}, with {TOO_FEW_FOR_CI}"
    if difference.shown:
        return f"{name} {times} as fast as {other}"
    return f"no difference shown between {name} and {other}: {times}"
