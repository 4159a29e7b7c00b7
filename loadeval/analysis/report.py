"""Everything that runs say, computed once: text, JSON, figures and the page only render it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from loadeval.analysis.aligned_ranks import are_ranks
from loadeval.analysis.arms import throughputs
from loadeval.analysis.backends import BATCHES, BackendReport, MeasuredRun, names_of, unit_of
from loadeval.analysis.headroom import headroom_of_two, same_unit
from loadeval.analysis.metrics import Metrics
from loadeval.analysis.operators import threads_of
from loadeval.analysis.ranks import JobReport
from loadeval.analysis.rules.case import Case
from loadeval.analysis.rules.diagnosis import diagnosis_of
from loadeval.analysis.stages import why_no_stages
from loadeval.analysis.summary import Summary, summarise
from loadeval.analysis.whatif import LoaderModel
from loadeval.errors import UsageError
from loadeval.runlog.model import ARMS, Run, Steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.headroom import Headroom
    from loadeval.analysis.operators import OperatorReport, ThreadReport
    from loadeval.analysis.remark import Remark
    from loadeval.analysis.rules.finding import Diagnosis
    from loadeval.analysis.stages import StageReport
    from loadeval.analysis.stats import Estimate
    from loadeval.analysis.whatif import WorkerCurve
    from loadeval.runlog.model import Arm

PAIR = 2


@dataclass(frozen=True, slots=True)
class Side:
    """One arm of a run, or a run that has one: its own batches, and their figures."""

    name: str
    arm: Arm
    run: Run
    summary: Summary


@dataclass(frozen=True)
class RunReport:
    """One run by itself.

    `name` tells it from the others, and is "" where it is the only one; `number` is its place
    among them. `counted` is the run, in which no batch counts of a pair that was not measured
    whole. `rate` is its throughput per second in `unit`, of the real arm where it alternated, and
    `comparison` that of its arms. `diagnosis` is None where the run replayed, or was compared with
    another. `stages` is None where they were not timed, as `operators` is; where both are,
    `no_stages` says why, unless it replayed. `threads` is None where nobody read them; of two runs
    that are compared, the real one's has both arms.
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
    stages: StageReport | None = None
    no_stages: Remark | None = None
    operators: OperatorReport | None = None
    threads: ThreadReport | None = None

    @cached_property
    def whatif(self) -> WorkerCurve | None:
        """Its throughput with other numbers of workers; None where that cannot be predicted.

        Computed when it is first asked for, since that takes 15 ms a prediction.
        """
        if self.stages is None:
            return None
        try:
            return LoaderModel.of(self.run).curve()
        except UsageError:
            return None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Real loading against ideal: of one alternating run (`ideal` is None), or of two runs.

    `counted` is the real run, in which no batch counts of a pair that was not measured whole.
    `rates` are throughputs per second in `unit`: real, ideal, and the loader alone, which two
    separate runs do not have. `stages` and `operators` are those of the real
    run's loader, where they are known.
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
    stages: StageReport | None = None
    operators: OperatorReport | None = None

    @classmethod
    def of(cls, real: Run, ideal: Run | None = None) -> Comparison:
        """Raises UsageError where they cannot be compared, or one alone does not alternate."""
        return _compared([real] if ideal is None else [real, ideal])[1]

    @property
    def runs(self) -> list[Run]:
        """The one run, or both."""
        return [self.real] if self.ideal is None else [self.real, self.ideal]


@dataclass(frozen=True, slots=True)
class Report:
    """All that is said of some runs.

    `comparison` is of one alternating run, or of a real and an ideal one; `backends` of several
    that each loaded; both are None for one run that did not alternate. Of the ranks of one `job`
    it is what the job's run says.
    """

    runs: tuple[RunReport, ...]
    comparison: Comparison | None
    backends: BackendReport | None
    job: JobReport | None = None

    @classmethod
    def of(cls, runs: Sequence[Run], *, compared: bool = False) -> Report:
        """What `runs` say. With `compared` one that alternates, or a real and an ideal one.

        The ranks of one job are told as one. Raises UsageError where two runs cannot be compared,
        or one of several replayed.
        """
        if are_ranks(runs):
            return cls.of_job(JobReport.of(runs))
        if not compared and are_backends(runs):
            named = list(zip(names_of(runs), map(MeasuredRun, runs), strict=True))
            backends = BackendReport.of_backends([(name, one, None) for name, one in named])
            each = [_one_run(name, at, one) for at, (name, one) in enumerate(named)]
            return cls(tuple(each), None, backends)
        if len(runs) == 1 and not compared:
            one = _one_run("", 0, MeasuredRun(runs[0]))
            return cls((one,), one.comparison, None)
        two, comparison = _compared(runs)
        return cls(two, comparison, None)

    @classmethod
    def of_job(cls, job: JobReport) -> Report:
        """What the ranks of one job say."""
        one = _one_run("", 0, MeasuredRun(job.run))
        return cls((one,), one.comparison, None, job)

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


def _run_report(name: str, number: int, found: MeasuredRun) -> RunReport:
    run, unit = found.run, unit_of([found])
    arm: Arm = "ideal" if run.header.mode == "replay" else "real"
    side = Side(run.header.mode, arm, run, summarise(run))
    rate, *_ = throughputs(run, found.times, unit != BATCHES)
    counted = found.times.counted
    return RunReport(
        name,
        number,
        run,
        counted,
        unit,
        rate,
        (side,),
        found.metrics,
        None,
        stages=found.stages,
        no_stages=why_no_stages(run),
        operators=found.operators,
        threads=found.threads,
    )


def _one_run(name: str, number: int, found: MeasuredRun) -> RunReport:
    """A run by itself, and where it alternated the comparison of its arms."""
    report, gain = _run_report(name, number, found), found.headroom
    run, counted = report.run, report.counted
    if run.header.mode == "replay":
        return report
    case = Case(counted, None, gain, found.stages)
    report = replace(report, diagnosis=diagnosis_of(case))
    if gain is None or report.diagnosis is None:
        return report
    sides = (_arm(counted, "real"), _arm(counted, "ideal"))
    comparison = Comparison(
        run,
        None,
        counted,
        gain,
        report.unit,
        throughputs(run, found.times, report.unit != BATCHES),
        sides,
        report.metrics,
        report.diagnosis,
        report.stages,
        report.operators,
    )
    return replace(report, sides=sides, comparison=comparison)


def _two_runs(real: MeasuredRun, ideal: MeasuredRun) -> tuple[tuple[RunReport, ...], Comparison]:
    found = headroom_of_two(real.run, ideal.run, times=(real.times, ideal.times))
    one, other = _run_report("real", 0, real), _run_report("ideal", 1, ideal)
    sides = replace(one.sides[0], name="real"), replace(other.sides[0], name="ideal")
    unit = _unit_of_two(sides)
    rate, ideal_rate = (
        throughputs(side.run, side.times, unit != BATCHES)[0] for side in (real, ideal)
    )
    comparison = Comparison(
        real.run,
        ideal.run,
        real.run,
        found,
        unit,
        (rate, ideal_rate, None),
        sides,
        Metrics.of_two(real.metrics, ideal.metrics),
        diagnosis_of(Case(real.run, ideal.run, found, real.stages)),
        real.stages,
        real.operators,
    )
    one = replace(one, threads=threads_of(real.run, ideal.run))
    return (one, replace(other, threads=None)), comparison


def _compared(runs: Sequence[Run]) -> tuple[tuple[RunReport, ...], Comparison]:
    """One run that alternated, or a real and an ideal one."""
    if len(runs) == 1:
        one = _one_run("", 0, MeasuredRun(runs[0]))
        if one.comparison is None:
            raise UsageError(_why_not_compared(runs[0]))
        return (one,), one.comparison
    real, ideal = runs
    first = ideal.header.settings.get("replay_after")
    if ideal.header.mode == "replay" and first and len(ideal.steps) and not ideal.steps.arm.any():
        raise UsageError(
            f"{ideal.path or ideal.header.name} ended in the real batches that "
            f"replay_after={first} serves first, so nothing was replayed; expected a run that goes "
            "on after them"
        )
    return _two_runs(MeasuredRun(real), MeasuredRun(ideal))


def _why_not_compared(run: Run) -> str:
    name, first = run.path or run.header.name, run.header.settings.get("replay_after")
    if run.header.mode == "replay":
        also = f" (the real batches of replay_after={first} are left out)" if first else ""
        return (
            f"{name} was recorded with mode='replay', so it has no real arm to compare{also}; give "
            "the run with mode='log' too: loadeval compare REAL IDEAL"
        )
    return (
        f"{name} was recorded with mode={run.header.mode!r}, so it has no ideal arm to compare; "
        "give a run with mode='alternate', or the run with mode='replay' too: loadeval compare "
        "REAL IDEAL"
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
    return Side(arm, arm, run, summarise(run, arm))
