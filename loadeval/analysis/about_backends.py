"""What makes a comparison of backends mean less than it seems to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.backends import BATCHES, of_one_comparison
from loadeval.analysis.epochs import lengths
from loadeval.analysis.ranks import are_ranks
from loadeval.runlog.model import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.backends import BackendResult
    from loadeval.runlog.model import Run

MACHINE_FACTS = ("host", "cpus_usable")
APART = (
    "Separate runs are compared: a drift of the machine between them counts as a difference "
    "between backends, and is in no interval."
)
BY_BATCH = "Samples are not known of every batch, or have different names: batches are compared."
MANY = (
    "Each of the {count} differences has a 95% interval of its own: one in twenty may be shown by "
    "chance."
)
FEWEST_MANY = 3


def cautions(
    results: Sequence[BackendResult], unit: str, unlike: Sequence[str] = ()
) -> tuple[str, ...]:
    """Sentences about backends that were compared in `unit`, the weightiest first.

    `unlike` tells in what their work differs, a clause for each difference.
    """
    runs = [result.run for result in results if result.real and result.run]
    said = []
    if unlike:
        said.append(f"The backends do not do equal work: {'; '.join(unlike)}.")
    said += _about_epochs(results, unit)
    said += _about_machines(runs)
    if len(runs) > 1 and not of_one_comparison(runs) and not are_ranks(runs):
        said.append(APART)
    if runs and unit == BATCHES:
        said.append(BY_BATCH)
    said += _by_name([(one.name, (one.caution, *_notes(one))) for one in results])
    count = len(runs) * (len(runs) - 1) // 2
    if count >= FEWEST_MANY:
        said.append(MANY.format(count=count))
    return tuple(said)


def unmeasured(results: Sequence[BackendResult]) -> tuple[str, ...]:
    """What is missing of which backends, and why, a sentence each."""
    return tuple(_by_name([(one.name, one.not_measured) for one in results]))


def _by_name(said: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    """Each sentence once, behind the names of all that it is said of."""
    names: dict[str, list[str]] = {}
    for name, texts in said:
        for text in filter(None, texts):
            names.setdefault(text, []).append(name)
    return [f"{', '.join(found)}: {text}" for text, found in names.items()]


def _notes(result: BackendResult) -> tuple[str, ...]:
    return () if result.run is None else result.run.notes


def _about_epochs(results: Sequence[BackendResult], unit: str) -> list[str]:
    """Whole epochs that are not equally large, which is known only when they have been served."""
    measured = [(one.name, one.run) for one in results if one.real and one.run]
    sizes = {name: whole_epochs(run, unit) for name, run in measured}
    found = {name: size for name, size in sizes.items() if size}
    if not found or set.intersection(*found.values()):
        return []
    told = (
        f"{name} {' or '.join(f'{one:,}' for one in sorted(size))}" for name, size in found.items()
    )
    return [f"The backends' epochs are not equally large, in {unit}: {', '.join(told)}."]


def whole_epochs(run: Run, unit: str) -> set[int]:
    """How many samples, or batches, the epochs had that `run` served from beginning to end.

    Only after the end of an epoch is it sure that the next one begins at its beginning.
    """
    over = {end.epoch for end in run.ends if end.cause == "exhausted"}
    whole = {one for one in over if one - 1 in over}
    if unit == BATCHES:
        return {count for epoch, count in lengths(run).items() if epoch in whole}
    if run.header.every > 1:
        return set(filter(None, (_samples_of(run, epoch) for epoch in whole)))
    counts = [run.steps.samples[run.steps.epoch == one] for one in whole]
    return {int(epoch.sum()) for epoch in counts if (epoch != UNKNOWN).all()}


def _samples_of(run: Run, epoch: int) -> int | None:
    """By its aggregates; None where they are not known."""
    found = [aggregate.samples for aggregate in run.aggregates if aggregate.epoch == epoch]
    return None if None in found else sum(count or 0 for count in found)


def _about_machines(runs: Sequence[Run]) -> list[str]:
    told = []
    for fact in MACHINE_FACTS:
        found = {str(value) for run in runs if (value := run.header.environment.get(fact))}
        if len(found) > 1:
            told.append(f"{fact.replace('_', ' ')} {' and '.join(sorted(found))}")
    return [f"The runs were made on different machines: {', '.join(told)}."] if told else []
