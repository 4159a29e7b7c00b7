"""Everything that runs say, computed once: text, JSON, figures and the page only render it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.arms import run_times, throughputs
from loadeval.analysis.backends import BATCHES, BackendReport, MeasuredRun, names_of
from loadeval.analysis.findings.case import Case
from loadeval.analysis.findings.diagnosis import diagnosis_of
from loadeval.analysis.headroom import compare, same_unit
from loadeval.analysis.memory import growths
from loadeval.analysis.metrics import missing, of_two_runs, quantities
from loadeval.analysis.summary import Summary, gpu_idle_ns, summarise
from loadeval.runlog.model import ARMS, UNKNOWN, Run, Steps

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loadeval.analysis.findings.finding import Diagnosis
    from loadeval.analysis.headroom import Headroom
    from loadeval.analysis.memory import Growth
    from loadeval.analysis.metrics import Quantity
    from loadeval.analysis.stats import Estimate
    from loadeval.runlog.model import Arm

PAIR = 2


@dataclass(frozen=True, slots=True)
class Side:
    """One arm of a run, or a run that has one: its own batches, and their figures."""

    name: str
    run: Run
    summary: Summary


@dataclass(frozen=True, slots=True)
class Metrics:
    """System metrics: each quantity real beside ideal, and the probes that read nothing, and why.

    `gpu_idle_ns` is how long the device had no work in the wait for a batch, on average, in each
    arm; None where no device's clock told.
    """

    quantities: tuple[Quantity, ...]
    missing: tuple[tuple[str, str], ...]
    gpu_idle_ns: Mapping[Arm, float | None]


@dataclass(frozen=True, slots=True)
class RunReport:
    """One run by itself.

    `name` tells it from the others, and is "" where it is the only one; `number` is its place
    among them. `counted` is the run, in which no batch counts of a pair that was not measured
    whole. `diagnosis` is None where the run replayed, or was compared with another.
    """

    name: str
    number: int
    run: Run
    counted: Run
    sides: tuple[Side, ...]
    metrics: Metrics
    growths: tuple[Growth, ...]
    diagnosis: Diagnosis | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Real loading against ideal: of one alternating run (`ideal` is None), or of two runs.

    `rates` are throughputs per second in `unit`: real, ideal, and the loader alone, which two
    separate runs do not have.
    """

    real: Run
    ideal: Run | None
    headroom: Headroom
    unit: str
    rates: tuple[Estimate | None, Estimate | None, Estimate | None]
    sides: tuple[Side, Side]
    metrics: Metrics
    diagnosis: Diagnosis

    @property
    def runs(self) -> list[Run]:
        """The one run, or both."""
        return [self.real] if self.ideal is None else [self.real, self.ideal]


@dataclass(frozen=True, slots=True)
class Report:
    """All that is said of some runs.

    `comparison` is of one alternating run, or of a real and an ideal one; `backends` of several
    that each loaded; both are None for one run that did not alternate.
    """

    runs: tuple[RunReport, ...]
    comparison: Comparison | None
    backends: BackendReport | None

    @classmethod
    def of(cls, runs: Sequence[Run]) -> Report:
        """Raises UsageError where two runs cannot be compared, or one of several replayed."""
        if are_backends(runs):
            named = list(zip(names_of(runs), map(MeasuredRun.of, runs), strict=True))
            backends = BackendReport.of_backends([(name, one, None) for name, one in named])
            each = [_one_run(name, at, one)[0] for at, (name, one) in enumerate(named)]
            return cls(tuple(each), None, backends)
        if len(runs) == 1:
            only, comparison = _one_run("", 0, MeasuredRun.of(runs[0]))
            return cls((only,), comparison, None)
        real, ideal = (
            _run_report(arm, ARMS.index(arm), run) for arm, run in zip(ARMS, runs, strict=True)
        )
        return cls((real, ideal), _two_runs(real, ideal), None)

    @property
    def sides(self) -> list[Side]:
        """A column for each arm of each run, under names that tell them apart."""
        if self.comparison is not None:
            return list(self.comparison.sides)
        return [
            replace(side, name=f"{one.name}, {side.name}" if len(one.sides) > 1 else one.name)
            if one.name
            else side
            for one in self.runs
            for side in one.sides
        ]

    @property
    def diagnoses(self) -> list[tuple[str, Diagnosis]]:
        """What was found, under the name of the run that it was found in."""
        if self.comparison is not None:
            return [("", self.comparison.diagnosis)]
        return [(one.name, one.diagnosis) for one in self.runs if one.diagnosis is not None]


def are_backends(runs: Sequence[Run]) -> bool:
    """Two are backends if neither replayed: a run that did is the ideal of the other."""
    if len(runs) == PAIR:
        return all(run.header.mode != "replay" for run in runs)
    return len(runs) > PAIR


def _one_run(name: str, number: int, found: MeasuredRun) -> tuple[RunReport, Comparison | None]:
    """A run by itself, and where it alternated the comparison of its arms."""
    run, gain = found.run, found.headroom
    report = _run_report(name, number, run)
    if gain is None:
        logged = run.header.mode == "log"
        return replace(
            report, diagnosis=diagnosis_of(Case(run, None, None)) if logged else None
        ), None
    pair = np.where(np.isin(run.steps.pair, found.times.pairs or ()), run.steps.pair, UNKNOWN)
    counted = replace(run, steps=replace(run.steps, pair=pair))
    sides = (_arm(counted, "real"), _arm(counted, "ideal"))
    unit = gain.unit if gain.samples_per_batch is not None else BATCHES
    comparison = Comparison(
        run,
        None,
        gain,
        unit,
        throughputs(run, found.times, unit != BATCHES),
        sides,
        report.metrics,
        diagnosis_of(Case(run, None, gain)),
    )
    return replace(report, counted=counted, sides=sides, diagnosis=comparison.diagnosis), comparison


def _run_report(name: str, number: int, run: Run) -> RunReport:
    side = Side(run.header.mode, run, summarise(run))
    idle: dict[Arm, float | None] = {arm: gpu_idle_ns(run, arm) for arm in ARMS}
    metrics = Metrics(quantities(run), missing(run), idle)
    return RunReport(name, number, run, run, (side,), metrics, growths(run), None)


def _two_runs(real: RunReport, ideal: RunReport) -> Comparison:
    times = run_times(real.run), run_times(ideal.run)
    found = compare(real.run, ideal.run, times=times)
    sides = replace(real.sides[0], name="real"), replace(ideal.sides[0], name="ideal")
    unit = _unit_of_two(sides)
    one, other = (
        throughputs(side.run, found, unit != BATCHES)[0]
        for side, found in zip(sides, times, strict=True)
    )
    metrics = Metrics(
        of_two_runs(real.metrics.quantities, ideal.metrics.quantities),
        tuple(dict.fromkeys([*real.metrics.missing, *ideal.metrics.missing])),
        {arm: side.metrics.gpu_idle_ns[arm] for arm, side in zip(ARMS, (real, ideal), strict=True)},
    )
    diagnosis = diagnosis_of(Case(real.run, ideal.run, found))
    return Comparison(
        real.run, ideal.run, found, unit, (one, other, None), sides, metrics, diagnosis
    )


def _unit_of_two(sides: tuple[Side, Side]) -> str:
    # A side that was not measured does not decide what the other is counted in.
    measured = [side.summary for side in sides if side.summary.batches_per_s is not None]
    known = all(summary.samples_per_s is not None for summary in measured)
    real, ideal = (side.run for side in sides)
    return real.header.unit if known and same_unit(real, ideal) else BATCHES


def _arm(run: Run, arm: Arm) -> Side:
    steps = run.steps
    chosen = steps.arm == ARMS.index(arm)
    served = Steps(**{name: getattr(steps, name)[chosen] for name in Steps.__slots__})
    run = replace(run, steps=served)
    return Side(arm, run, summarise(run, arm))
