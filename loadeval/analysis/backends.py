"""Backends side by side: what each did, and the differences between them.

Runs of one comparison took turns in rounds, so that drift hits all of them alike: two backends
are compared round by round. Runs that have nothing to do with each other are compared as they
are, each with its own spread.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, final

from loadeval.analysis.headroom import headroom
from loadeval.analysis.rounds import counted_of, loader_alone, throughput, throughput_ratio
from loadeval.analysis.summary import summarise
from loadeval.errors import UsageError
from loadeval.runtime.backends import FAILURE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.intervals import Estimate
    from loadeval.analysis.rounds import Counted
    from loadeval.runlog.model import Run

BATCHES = "batches"
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
    `not_measured` says why, a sentence each.
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
