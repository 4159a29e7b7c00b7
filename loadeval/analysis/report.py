"""Everything that runs say, computed once: text, JSON, figures and the page only render it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.arms import paired
from loadeval.analysis.backends import BATCHES, BackendReport, result_of, unit_of
from loadeval.analysis.caution import same_unit
from loadeval.analysis.findings.case import Case
from loadeval.analysis.findings.diagnosis import diagnosis_of
from loadeval.analysis.headroom import compare, headroom
from loadeval.analysis.readings import metrics_of
from loadeval.analysis.rounds import counted_of, throughput
from loadeval.analysis.summary import Summary, summarise
from loadeval.errors import UsageError
from loadeval.runlog.model import ARMS, UNKNOWN, Run, Steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.findings.finding import Diagnosis
    from loadeval.analysis.headroom import Headroom
    from loadeval.analysis.intervals import Estimate
    from loadeval.analysis.readings import Metrics
    from loadeval.runlog.model import Arm

PAIR = 2


@dataclass(frozen=True, slots=True)
class Side:
    """One arm of a run, or a run that has one: its own batches, and their figures."""

    name: str
    arm: Arm
    run: Run
    summary: Summary


@dataclass(frozen=True, slots=True)
class RunReport:
    """One run by itself.

    `name` tells it from the others, and is "" where it is the only one; `number` is its place
    among them. `counted` is the run, in which no batch counts of a pair that was not measured
    whole. `rate` is its throughput per second in `unit`, of the real arm where it alternated, and
    `comparison` that of its arms. `diagnosis` is None where the run replayed, or was compared with
    another.
    """

    name: str
    number: int
    run: Run
    counted: Run
    unit: str
    rate: Estimate | None
    sides: tuple[Side, ...]
    metrics: Metrics
    diagnosis: Diagnosis | None
    comparison: Comparison | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Real loading against ideal: of one alternating run (`ideal` is None), or of two runs.

    `counted` is the real run, in which no batch counts of a pair that was not measured whole.
    `rates` are throughputs per second in `unit`: real, ideal, and the loader alone, which two
    separate runs do not have.
    """

    real: Run
    ideal: Run | None
    counted: Run
    headroom: Headroom
    unit: str
    rates: tuple[Estimate | None, Estimate | None, Estimate | None]
    sides: tuple[Side, Side]
    metrics: Metrics
    diagnosis: Diagnosis

    @classmethod
    def of(cls, real: Run, ideal: Run | None = None) -> Comparison:
        """Raises UsageError where they cannot be compared, or one alone does not alternate."""
        _check_replay(real if ideal is None else ideal, alone=ideal is None)
        counted = real
        if ideal is None:
            found = headroom(real)
            counted = _counted(real)
            sides = _arm(counted, "real"), _arm(counted, "ideal")
            unit = found.unit if found.samples_per_batch is not None else BATCHES
            result = result_of("", real, unit_of([real]))
            rates = (result.real, result.ideal, result.loader_only)
        else:
            found = compare(real, ideal)
            sides = (
                Side("real", "real", real, summarise(real)),
                Side("ideal", "ideal", ideal, summarise(ideal)),
            )
            unit = _unit_of_two(sides)
            rates = (_rate(real, unit), _rate(ideal, unit), None)
        diagnosis = diagnosis_of(Case(real, ideal, found))
        metrics = metrics_of(real, ideal)
        return cls(real, ideal, counted, found, unit, rates, sides, metrics, diagnosis)

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
    def of(cls, runs: Sequence[Run], *, compared: bool = False) -> Report:
        """What `runs` say. With `compared` one that alternates, or a real and an ideal one.

        Raises UsageError where two runs cannot be compared, or one of several replayed.
        """
        if not compared and are_backends(runs):
            backends = BackendReport.of_runs(runs)
            return cls(_each([one.name for one in backends.backends], runs), None, backends)
        if len(runs) == 1 and runs[0].header.mode != "alternate" and not compared:
            return cls(_each([""], runs), None, None)
        comparison = Comparison.of(*runs)
        if len(runs) == 1:
            return cls((_alternating("", 0, runs[0], comparison),), comparison, None)
        named = zip(ARMS, runs, strict=True)
        each = [_run_report(name, at, run) for at, (name, run) in enumerate(named)]
        return cls(tuple(each), comparison, None)

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


def _each(names: Sequence[str], runs: Sequence[Run]) -> tuple[RunReport, ...]:
    found = []
    for at, (name, run) in enumerate(zip(names, runs, strict=True)):
        if run.header.mode == "alternate":
            found.append(_alternating(name, at, run, Comparison.of(run)))
        else:
            diagnosis = diagnosis_of(Case(run, None, None)) if run.header.mode == "log" else None
            found.append(_run_report(name, at, run, diagnosis))
    return tuple(found)


def _alternating(name: str, number: int, run: Run, comparison: Comparison) -> RunReport:
    return RunReport(
        name,
        number,
        run,
        comparison.counted,
        comparison.unit,
        comparison.rates[0],
        comparison.sides,
        comparison.metrics,
        comparison.diagnosis,
        comparison,
    )


def _run_report(name: str, number: int, run: Run, diagnosis: Diagnosis | None = None) -> RunReport:
    arm: Arm = "ideal" if run.header.mode == "replay" else "real"
    side = Side(run.header.mode, arm, run, summarise(run))
    unit = unit_of([run])
    rate, metrics = _rate(run, unit), metrics_of(run)
    return RunReport(name, number, run, run, unit, rate, (side,), metrics, diagnosis)


def _check_replay(run: Run, *, alone: bool) -> None:
    """Raises UsageError for a run that replayed and is `alone`, or whose replay did not begin."""
    if run.header.mode != "replay":
        return
    name, first = run.path or run.header.name, run.header.settings.get("replay_after")
    if not alone and first and len(run.steps) and not run.steps.arm.any():
        raise UsageError(
            f"{name} ended in the real batches that replay_after={first} serves first, so nothing "
            "was replayed; expected a run that goes on after them"
        )
    if alone:
        also = f" (the real batches of replay_after={first} are left out)" if first else ""
        raise UsageError(
            f"{name} was recorded with mode='replay', so it has no real arm to compare{also}; give "
            "the run with mode='log' too: loadeval compare REAL IDEAL"
        )


def _unit_of_two(sides: tuple[Side, Side]) -> str:
    # A side that was not measured does not decide what the other is counted in.
    measured = [side.summary for side in sides if side.summary.batches_per_s is not None]
    known = all(summary.samples_per_s is not None for summary in measured)
    real, ideal = (side.run for side in sides)
    return real.header.unit if known and same_unit(real, ideal) else BATCHES


def _rate(run: Run, unit: str) -> Estimate | None:
    counted = counted_of(run)
    return throughput(counted.real, counted.spread, unit != BATCHES)


def _counted(run: Run) -> Run:
    pairs, _, _ = paired(run)
    pair = np.where(np.isin(run.steps.pair, pairs), run.steps.pair, UNKNOWN)
    return replace(run, steps=replace(run.steps, pair=pair))


def _arm(run: Run, arm: Arm) -> Side:
    steps = run.steps
    chosen = steps.arm == ARMS.index(arm)
    served = Steps(**{name: getattr(steps, name)[chosen] for name in Steps.__slots__})
    run = replace(run, steps=served)
    return Side(arm, arm, run, summarise(run, arm))
