"""Backends side by side: what each did, and the differences between them.

Runs of one comparison took turns in rounds, so that drift hits all of them alike: two backends
are compared round by round. Runs that have nothing to do with each other are compared as they
are, each with its own spread.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, final

from loadeval.analysis.epochs import lengths
from loadeval.analysis.headroom import headroom
from loadeval.analysis.readings import metrics_of
from loadeval.analysis.rounds import counted_of, loader_alone, throughput, throughput_ratio
from loadeval.analysis.summary import summarise
from loadeval.errors import UsageError
from loadeval.runlog.model import UNKNOWN
from loadeval.runtime.backends import FAILURE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Self

    from loadeval.analysis.intervals import Estimate
    from loadeval.analysis.readings import Metrics
    from loadeval.analysis.rounds import Counted
    from loadeval.runlog.model import Run

BATCHES = "batches"
PLACE = ("rank", "world_size")
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
FAILED = "failed"
NOT_MEASURED = "not measured"
NO_IDEAL = "The ideal pace and the loader alone were not measured: the run does not alternate."
NO_EPOCH_START = "Its epoch start was not measured: it had batches ready whenever its turn began."
NO_PACE = "No pace was measured: nothing counts, or it took no time by the run's clock."


@final
@dataclass(frozen=True, slots=True)
class BackendResult:
    """What was measured of one backend; what is not known is None.

    `real`, `ideal` and `loader_only` are throughputs per second, in the comparison's unit:
    training with the loader as it is, training on batches in memory, and the loader with nobody
    training. `speedup` is what free loading would gain, and `lost_share` = 1 - 1 / `speedup`.
    Times are in nanoseconds a batch; `epoch_start_ns` is the mean first wait of an epoch. `verdict`
    is "failed" where the loader raised `error`, and "not measured" where there is no ideal.
    `not_measured` says why, a sentence each. A `BackendReport` has `metrics` of each that has a
    `run`.
    """

    name: str
    real: Estimate | None = None
    ideal: Estimate | None = None
    loader_only: Estimate | None = None
    speedup: Estimate | None = None
    lost_share: Estimate | None = None
    real_ns: float | None = None
    ideal_ns: float | None = None
    loader_only_ns: float | None = None
    epoch_start_ns: float | None = None
    real_batches: int = 0
    ideal_batches: int = 0
    verdict: str = NOT_MEASURED
    reason: str = ""
    caution: str = ""
    not_measured: tuple[str, ...] = ()
    error: str | None = None
    run: Run | None = None
    metrics: Metrics | None = None


@final
@dataclass(frozen=True, slots=True)
class Difference:
    """`ratio` is the throughput of the backend `one` over that of the backend `other`."""

    one: str
    other: str
    ratio: Estimate

    @property
    def shown(self) -> bool:
        """Whether 1 is outside of the interval."""
        low, high = self.ratio.low, self.ratio.high
        return low is not None and high is not None and not low <= 1 <= high

    def __str__(self) -> str:
        """In words, with the interval."""
        low, high = self.ratio.low, self.ratio.high
        found = f"{self.ratio.value:.2f}x"
        if low is None or high is None:
            return (
                f"{self.one} {found} as fast as {self.other}, too little measured for an interval"
            )
        found = f"{found} [{low:.2f}x, {high:.2f}x]"
        if self.shown:
            return f"{self.one} {found} as fast as {self.other}"
        return f"no difference shown between {self.one} and {self.other}: {found}"


def unit_of(runs: Sequence[Run]) -> str:
    """What throughput is counted in: samples under their name, where all runs know theirs."""
    units = {run.header.unit for run in runs}
    found = [one for one in map(counted_of, runs) if one.real.count]
    known = bool(found) and all(one.has_samples for one in found)
    return units.pop() if known and len(units) == 1 else BATCHES


def result_of(name: str, run: Run, unit: str) -> BackendResult:
    """What `run` says of the backend `name`, with throughputs in `unit`.

    Raises UsageError for a run that replayed: it has no real pace.
    """
    if run.header.mode == "replay":
        raise UsageError(
            f"{run.path or name} was recorded with mode='replay', and tells nothing of its "
            "loader's pace; to compare backends, give runs with mode='alternate' or mode='log'"
        )
    for event in run.events:
        if event.message.startswith(FAILURE):
            return failed(name, event.message.removeprefix(FAILURE), run)
    counted, by_sample = counted_of(run), unit != BATCHES
    if run.header.mode == "alternate":
        return _alternated(name, run, counted, by_sample)
    return _logged(name, run, counted, by_sample)


def failed(name: str, error: str, run: Run | None = None) -> BackendResult:
    """The result of a backend whose loader raised `error`: no figures, though maybe a run."""
    return BackendResult(name, verdict=FAILED, reason=error, error=error, run=run)


def differences(results: Sequence[BackendResult], unit: str) -> tuple[Difference, ...]:
    """Between every two backends that were measured, the fastest ones first."""
    counted = {
        result.name: (result.run, counted_of(result.run))
        for result in ranked(results)
        if result.real is not None and result.run is not None
    }
    found = []
    for (name, (run, one)), (against, (beside, other)) in combinations(counted.items(), 2):
        together = of_one_comparison([run, beside])
        ratio = throughput_ratio(one, other, unit != BATCHES, together)
        found.append(Difference(name, against, ratio))
    return tuple(found)


def ranked(results: Sequence[BackendResult]) -> list[BackendResult]:
    """The fastest first, at the end what was not measured, and what failed."""

    def rank(result: BackendResult) -> tuple[bool, bool, float]:
        value = 0.0 if result.real is None else result.real.value
        return result.error is not None, result.real is None, -value

    return sorted(results, key=rank)


def of_one_comparison(runs: Sequence[Run]) -> bool:
    """Whether the runs took turns in the rounds of one comparison."""
    found = {comparison_of(run) for run in runs}
    return len(found) == 1 and None not in found


def comparison_of(run: Run) -> str | None:
    """What the runs of one comparison have in common; None for a run by itself."""
    found = run.header.settings.get("comparison")
    return found if isinstance(found, str) else None


def _alternated(name: str, run: Run, counted: Counted, by_sample: bool) -> BackendResult:
    found, ideal = headroom(run), counted.ideal
    # In turns, its epochs do not begin anew.
    was_ready = comparison_of(run) is not None and bool(run.header.loader.ready_batches)
    return BackendResult(
        name,
        real=throughput(counted.real, counted.spread, by_sample, counted.missed),
        ideal=None if ideal is None else throughput(ideal, counted.spread, by_sample),
        loader_only=loader_alone(run, by_sample),
        speedup=found.speedup,
        lost_share=found.lost_share,
        real_ns=found.real_ns,
        ideal_ns=found.ideal_ns,
        loader_only_ns=found.loader_only_ns,
        epoch_start_ns=None if was_ready else found.epoch_start_ns,
        real_batches=found.real_batches,
        ideal_batches=found.ideal_batches,
        verdict=found.verdict,
        reason=found.reason,
        caution=found.caution,
        not_measured=(*found.not_measured, *((NO_EPOCH_START,) if was_ready else ())),
        run=run,
    )


def _logged(name: str, run: Run, counted: Counted, by_sample: bool) -> BackendResult:
    summary = summarise(run)
    real, epoch_starts = throughput(counted.real, counted.spread, by_sample), summary.epoch_start_ns
    return BackendResult(
        name,
        real=real,
        real_ns=summary.iteration_ns,
        epoch_start_ns=sum(epoch_starts) / len(epoch_starts) if epoch_starts else None,
        real_batches=summary.steady_batches,
        not_measured=(NO_IDEAL,) if real is not None else (NO_PACE, NO_IDEAL),
        run=run,
    )


@dataclass(frozen=True, slots=True)
class BackendReport:
    """Several backends under one training step.

    `backends` are in the order they were given in, `differences` between every two that were
    measured, the fastest first. Throughputs are per second, in `unit`. `cautions` say what makes
    the figures mean less than they seem to, and `not_measured` what is missing and why.
    """

    backends: tuple[BackendResult, ...]
    differences: tuple[Difference, ...]
    unit: str
    cautions: tuple[str, ...]
    not_measured: tuple[str, ...]

    @classmethod
    def of_results(
        cls, results: Sequence[BackendResult], unit: str, unlike: Sequence[str] = ()
    ) -> Self:
        """Of backends that were measured; `unlike` tells in what their work differs."""
        return cls(
            backends=tuple(
                one if one.run is None else replace(one, metrics=metrics_of(one.run))
                for one in results
            ),
            differences=differences(results, unit),
            unit=unit,
            cautions=cautions(results, unit, unlike),
            not_measured=unmeasured(results),
        )

    @classmethod
    def of_runs(cls, runs: Sequence[Run]) -> Self:
        """Of runs that alternated or logged, one for each backend, named as they are.

        Raises UsageError when one of them replayed.
        """
        unit = unit_of(runs)
        named = zip(_names(runs), runs, strict=True)
        return cls.of_results([result_of(name, run, unit) for name, run in named], unit)

    def __getitem__(self, name: str) -> BackendResult:
        """The result of the backend `name`."""
        for result in self.backends:
            if result.name == name:
                return result
        known = ", ".join(repr(result.name) for result in self.backends)
        raise KeyError(f"{name!r} is none of the backends {known}")


def _names(runs: Sequence[Run]) -> list[str]:
    """The runs' names, or their paths where names are not different; numbered at worst."""
    for names in ([run.header.name for run in runs], [str(run.path) for run in runs]):
        if len(set(names)) == len(names):
            return names
    return [f"{run.header.name} ({number})" for number, run in enumerate(runs, start=1)]


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


def are_ranks(runs: Sequence[Run | None]) -> bool:
    """Whether each is of another rank of a training that has the same number of them."""
    places = [tuple(run.header.environment.get(name) for name in PLACE) for run in runs if run]
    ranks, sizes = {rank for rank, _ in places}, {size for _, size in places}
    told = None not in ranks and None not in sizes
    return told and len(runs) == len(ranks) > 1 and len(sizes) == 1
