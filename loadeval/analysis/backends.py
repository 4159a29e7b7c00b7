"""Backends side by side: what each did, and the differences between them.

Runs of one comparison took turns in rounds, so that drift hits all of them alike: two backends
are compared round by round. Runs that have nothing to do with each other are compared as they
are, each with its own spread.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from itertools import combinations
from typing import TYPE_CHECKING, final

from loadeval.analysis.estimate.arms import run_times
from loadeval.analysis.estimate.cautions import MACHINE_FACTS
from loadeval.analysis.estimate.headroom import headroom
from loadeval.analysis.estimate.metrics import Metrics
from loadeval.analysis.estimate.steady import epoch_lengths
from loadeval.analysis.estimate.summary import summarise
from loadeval.analysis.estimate.throughput import throughput_ratio, throughputs
from loadeval.analysis.inside.operators import operators_of, threads_of
from loadeval.analysis.inside.stages import stages_of
from loadeval.analysis.remark import Remark
from loadeval.data.columns import UNKNOWN
from loadeval.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Self

    from loadeval.analysis.estimate.headroom import Headroom
    from loadeval.analysis.estimate.stats import Estimate
    from loadeval.analysis.estimate.verdict import Verdict
    from loadeval.analysis.inside.operators import OperatorReport, ThreadReport
    from loadeval.analysis.inside.stages import StageReport
    from loadeval.data.run import Run

BATCHES = "batches"
FEWEST_MANY = 3


class BackendState(Enum):
    """What became of a backend."""

    COMPARED = "compared with ideal loading"
    NOT_COMPARED = "not measured"
    FAILED = "failed"


class BackendCaution(Enum):
    """What makes the figures of several backends mean less than they seem to."""

    UNEQUAL_WORK = "unequal work"
    UNEQUAL_EPOCHS = "unequal epochs"
    DIFFERENT_MACHINES = "different machines"
    SEPARATE_RUNS = "separate runs"
    BY_BATCH = "compared by batch"
    MANY_DIFFERENCES = "many differences"


class MissingOfBackend(Enum):
    """What was not measured of a backend, besides what is missing of its headroom."""

    IDEAL = "ideal arm and loader alone"
    EPOCH_START = "epoch start"
    THROUGHPUT = "throughput"


@final
@dataclass(frozen=True, slots=True)
class BackendResult:
    """What was measured of one backend; what is not known is None.

    `real`, `ideal` and `loader_only` are throughputs per second, in the comparison's unit:
    training with the loader as it is, training on batches in memory, and the loader with nobody
    training. `speedup` is what ideal loading would gain, and `lost_share` = 1 - 1 / `speedup`.
    Times are in nanoseconds a batch; `epoch_start_ns` is the mean first wait of an epoch.
    `epoch_sizes` are those of whole epochs, in that unit. `headroom` is None where there is no
    ideal arm, and `not_measured` says what is missing. `error` is what the loader raised.
    A `BackendReport` has the `metrics` of each that has a `run`, and the `stages` or `operators`,
    and the `threads`, of each whose loader was looked into.
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
    epoch_sizes: tuple[int, ...] = ()
    headroom: Headroom | None = None
    not_measured: tuple[Remark, ...] = ()
    error: str | None = None
    run: Run | None = None
    metrics: Metrics | None = None
    stages: StageReport | None = None
    operators: OperatorReport | None = None
    threads: ThreadReport | None = None

    @property
    def state(self) -> BackendState:
        """Whether it was measured."""
        if self.error is not None:
            return BackendState.FAILED
        return BackendState.NOT_COMPARED if self.headroom is None else BackendState.COMPARED

    @property
    def verdict(self) -> Verdict | None:
        """Whether it limits training; None where that was not measured."""
        return None if self.headroom is None else self.headroom.verdict

    @property
    def cautions(self) -> tuple[Remark, ...]:
        """What makes its figures mean less than they seem to."""
        return () if self.headroom is None else self.headroom.cautions


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


def unit_of(runs: Sequence[Run]) -> str:
    """What throughput is counted in: samples under their name, where all runs know theirs."""
    units = {run.header.unit for run in runs}
    measured = [times for times in map(run_times, runs) if times.real.count]
    known = bool(measured) and all(times.has_samples for times in measured)
    return units.pop() if known and len(units) == 1 else BATCHES


def result_of(name: str, run: Run, unit: str) -> BackendResult:
    """What a run says of the backend `name`, with throughputs in `unit`.

    Raises UsageError for a run that replayed: it has no real arm.
    """
    if run.header.mode == "replay":
        raise UsageError(
            f"{run.path or name} was recorded with mode='replay', and tells nothing of its "
            "loader's throughput; to compare backends, give runs with mode='alternate' or "
            "mode='log'"
        )
    for event in run.events:
        if event.kind == "failed backend":
            return failed(name, event.message, run)
    real, ideal, loader_only = throughputs(run, unit != BATCHES)
    sizes = tuple(sorted(whole_epochs(run, unit)))
    if run.header.mode != "alternate":
        summary = summarise(run)
        starts = summary.epoch_start_ns
        missing = [*([MissingOfBackend.THROUGHPUT] if real is None else []), MissingOfBackend.IDEAL]
        return BackendResult(
            name,
            real=real,
            real_ns=summary.iteration_ns,
            epoch_start_ns=sum(starts) / len(starts) if starts else None,
            real_batches=summary.steady_batches,
            epoch_sizes=sizes,
            not_measured=tuple(map(Remark, missing)),
            run=run,
        )
    gain = headroom(run)
    # Where backends take turns, an epoch does not begin anew.
    was_ready = comparison_of(run) is not None and bool(run.header.loader.ready_batches)
    no_epoch_start = (Remark(MissingOfBackend.EPOCH_START),) if was_ready else ()
    return BackendResult(
        name,
        real=real,
        ideal=ideal,
        loader_only=loader_only,
        speedup=gain.speedup,
        lost_share=gain.lost_share,
        real_ns=gain.real_ns,
        ideal_ns=gain.ideal_ns,
        loader_only_ns=gain.loader_only_ns,
        epoch_start_ns=None if was_ready else gain.epoch_start_ns,
        real_batches=gain.real_batches,
        ideal_batches=gain.ideal_batches,
        epoch_sizes=sizes,
        headroom=gain,
        not_measured=(*gain.not_measured, *no_epoch_start),
        run=run,
    )


def failed(name: str, error: str, run: Run | None = None) -> BackendResult:
    """The result of a backend whose loader raised `error`: no figures, though maybe a run."""
    return BackendResult(name, error=error, run=run)


def ranked(results: Sequence[BackendResult]) -> list[BackendResult]:
    """The fastest first, at the end what was not measured, and what failed."""

    def rank(result: BackendResult) -> tuple[bool, bool, float]:
        value = 0.0 if result.real is None else result.real.value
        return result.error is not None, result.real is None, -value

    return sorted(results, key=rank)


def of_one_comparison(runs: Sequence[Run]) -> bool:
    """Whether the runs took turns in the rounds of one comparison."""
    comparisons = {comparison_of(run) for run in runs}
    return len(comparisons) == 1 and None not in comparisons


def comparison_of(run: Run) -> str | None:
    """What the runs of one comparison have in common; None for a run by itself."""
    comparison = run.header.settings.get("comparison")
    return comparison if isinstance(comparison, str) else None


@dataclass(frozen=True, slots=True)
class BackendReport:
    """Several backends under one training step.

    `backends` are in the order they were given in, `differences` between every two that were
    measured, the fastest first. Throughputs are per second, in `unit`. `cautions` say what makes
    the figures mean less than they seem to, besides what each backend has of its own.
    """

    backends: tuple[BackendResult, ...]
    differences: tuple[Difference, ...]
    unit: str
    cautions: tuple[Remark, ...]

    @classmethod
    def of_backends(
        cls,
        measured: Sequence[tuple[str, Run | None, str | None]],
        unlike: Sequence[str] = (),
    ) -> Self:
        """Report on backends by name, each with its run, and the error that it failed with, if any.

        `unlike` tells in what their work differs. Raises UsageError when one of them replayed.
        """
        unit = unit_of([run for _, run, error in measured if run and error is None])
        results = []
        for name, run, error in measured:
            if error is not None:
                result = failed(name, error, run)
            elif run is not None:
                result = result_of(name, run, unit)
            else:
                continue
            if run is not None:
                counted = run_times(run).counted
                result = replace(
                    result,
                    metrics=Metrics.of(counted),
                    stages=stages_of(run),
                    operators=operators_of(counted),
                    threads=threads_of(counted),
                )
            results.append(result)
        times = {name: run_times(run) for name, run, _ in measured if run is not None}
        fastest_first = [
            (result.name, result.run) for result in ranked(results) if result.real and result.run
        ]
        by_sample = unit != BATCHES
        differences = tuple(
            Difference(
                name,
                other,
                throughput_ratio(
                    times[name], times[other], by_sample, of_one_comparison([run, beside])
                ),
            )
            for (name, run), (other, beside) in combinations(fastest_first, 2)
        )
        return cls(tuple(results), differences, unit, tuple(cautions_of(results, unit, unlike)))

    @classmethod
    def of_runs(cls, runs: Sequence[Run]) -> Self:
        """Report on runs that alternated or logged, one for each backend, named as they are.

        Raises UsageError when one of them replayed.
        """
        named = zip(names_of(runs), runs, strict=True)
        return cls.of_backends([(name, run, None) for name, run in named])

    def __getitem__(self, name: str) -> BackendResult:
        """The result of the backend `name`."""
        for result in self.backends:
            if result.name == name:
                return result
        known = ", ".join(repr(result.name) for result in self.backends)
        raise KeyError(f"{name!r} is none of the backends {known}")


def names_of(runs: Sequence[Run]) -> list[str]:
    """The runs' names, or their paths where names are not different; numbered at worst."""
    for names in ([run.header.name for run in runs], [str(run.path) for run in runs]):
        if len(set(names)) == len(names):
            return names
    return [f"{run.header.name} ({number})" for number, run in enumerate(runs, start=1)]


def cautions_of(
    results: Sequence[BackendResult], unit: str, unlike: Sequence[str] = ()
) -> list[Remark]:
    """What makes backends less comparable, the weightiest first.

    `unlike` tells in what their work differs, a clause for each difference.
    """
    measured = [result for result in results if result.real and result.run]
    runs = [result.run for result in measured if result.run]
    cautions = []
    if unlike:
        cautions.append(Remark(BackendCaution.UNEQUAL_WORK, {"differences": "; ".join(unlike)}))
    # How large an epoch is is known only when it has been served.
    sizes = [set(result.epoch_sizes) for result in measured if result.epoch_sizes]
    if sizes and not set.intersection(*sizes):
        cautions.append(Remark(BackendCaution.UNEQUAL_EPOCHS, {"unit": unit}))
    for fact in MACHINE_FACTS:
        values = {str(value) for run in runs if (value := run.header.environment.get(fact))}
        if len(values) > 1:
            differing = {"fact": fact.replace("_", " "), "values": ", ".join(sorted(values))}
            cautions.append(Remark(BackendCaution.DIFFERENT_MACHINES, differing))
    if len(runs) > 1 and not of_one_comparison(runs):
        cautions.append(Remark(BackendCaution.SEPARATE_RUNS))
    if runs and unit == BATCHES:
        cautions.append(Remark(BackendCaution.BY_BATCH))
    count = len(runs) * (len(runs) - 1) // 2
    if count >= FEWEST_MANY:
        cautions.append(Remark(BackendCaution.MANY_DIFFERENCES, {"count": count}))
    return cautions


def whole_epochs(run: Run, unit: str) -> set[int]:
    """How many samples, or batches, the epochs had that `run` served from beginning to end.

    Only after the end of an epoch is it sure that the next one begins at its beginning.
    """
    over = {end.epoch for end in run.ends if end.cause == "exhausted"}
    whole = {epoch_number for epoch_number in over if epoch_number - 1 in over}
    if unit == BATCHES:
        return {count for epoch, count in epoch_lengths(run).items() if epoch in whole}
    counts = [run.steps.samples[run.steps.epoch == epoch_number] for epoch_number in whole]
    return {int(epoch.sum()) for epoch in counts if (epoch != UNKNOWN).all()}
