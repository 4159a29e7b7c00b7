"""Everything that runs say, computed once: text, JSON, figures and the page only render it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from loadeval.analysis.backends import BATCHES, BackendReport, names_of, unit_of
from loadeval.analysis.baseline import BaselineReport, Examined
from loadeval.analysis.estimate.arms import run_times
from loadeval.analysis.estimate.cautions import same_unit
from loadeval.analysis.estimate.metrics import Metrics
from loadeval.analysis.estimate.summary import Summary, summarise
from loadeval.analysis.estimate.throughput import throughputs
from loadeval.analysis.inside.operators import operators_of, threads_of
from loadeval.analysis.inside.stages import stages_of, why_no_stages
from loadeval.analysis.job.alignment import are_ranks
from loadeval.analysis.job.ranks import JobReport
from loadeval.analysis.predict.whatif import LoaderModel
from loadeval.analysis.rules.case import Case
from loadeval.analysis.rules.diagnosis import diagnosis_of
from loadeval.analysis.rules.plan import plan_for
from loadeval.data.run import ARMS, Run
from loadeval.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.estimate.headroom import Headroom
    from loadeval.analysis.estimate.stats import Estimate
    from loadeval.analysis.inside.operators import OperatorReport, ThreadReport
    from loadeval.analysis.inside.stages import StageReport
    from loadeval.analysis.predict.prediction import WorkerCurve
    from loadeval.analysis.predict.recorded import Recorded
    from loadeval.analysis.remark import Remark
    from loadeval.analysis.rules.actions import Plan
    from loadeval.analysis.rules.finding import Diagnosis
    from loadeval.data.lines import Arm

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
    another, as `plan` is: what to do about its findings. `stages` is None where they were not
    timed, as `operators` is; where both are,
    `no_stages` says why, unless it replayed. `threads` is None where nobody read them; of two runs
    that are compared, the real one's has both arms. `recorded` is what predictions are made from,
    which the diagnosis took too; None where nothing can be predicted.
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
    plan: Plan | None = None
    comparison: Comparison | None = None
    stages: StageReport | None = None
    no_stages: Remark | None = None
    operators: OperatorReport | None = None
    threads: ThreadReport | None = None
    recorded: Recorded | None = None

    @cached_property
    def whatif(self) -> WorkerCurve | None:
        """The throughput with other numbers of workers; None where that cannot be predicted.

        Computed when it is first asked for, since that takes 15 ms a prediction.
        """
        return None if self.recorded is None else LoaderModel([self.recorded]).curve()


@dataclass(frozen=True, slots=True)
class Comparison:
    """Real loading against ideal: of one alternating run (`ideal` is None), or of two runs.

    `counted` is the real run, in which no batch counts of a pair that was not measured whole.
    `plan` is what to do about the findings of the `diagnosis`.

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
    plan: Plan
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
    it is what the job's run says. `baseline` compares with an earlier run.
    """

    runs: tuple[RunReport, ...]
    comparison: Comparison | None
    backends: BackendReport | None
    job: JobReport | None = None
    baseline: BaselineReport | None = None

    @classmethod
    def of(cls, runs: Sequence[Run]) -> Report:
        """What `runs` say: one, a real and an ideal one, or several backends.

        The ranks of one job are told as one. Raises UsageError where two runs cannot be compared,
        or one of several replayed.
        """
        if are_ranks(runs):
            return cls.of_job(JobReport.of(runs))
        if are_backends(runs):
            named = zip(names_of(runs), runs, strict=True)
            each = [_one_run(name, at, run) for at, (name, run) in enumerate(named)]
            return cls(tuple(each), None, BackendReport.of_runs(runs))
        if len(runs) == 1:
            alone = _one_run("", 0, runs[0])
            return cls((alone,), alone.comparison, None)
        two, comparison = _compared(runs)
        return cls(two, comparison, None)

    @classmethod
    def of_job(cls, job: JobReport) -> Report:
        """What the ranks of one job say."""
        whole = _one_run("", 0, job.run)
        return cls((whole,), whole.comparison, None, job)

    @property
    def examined(self) -> Examined:
        """The run that loaded, and what it was found to lose.

        Raises UsageError for several backends, and for a run by itself that replayed.
        """
        if self.backends is not None:
            raise UsageError(
                "these are runs of several backends; expected one run or job, or a real and an "
                "ideal run"
            )
        if self.comparison is not None:
            comparison = self.comparison
            return Examined(comparison.real, comparison.headroom, comparison.diagnosis)
        (alone,) = self.runs
        if alone.diagnosis is None:
            raise UsageError(
                f"{alone.run.path or alone.run.header.name} was recorded with mode='replay', so it "
                "loaded nothing; expected a run with mode='log' or 'alternate'"
            )
        return Examined(alone.run, None, alone.diagnosis)

    def against(self, baseline: Report) -> Report:
        """The same, compared with an earlier run. Raises UsageError as `examined` does."""
        return replace(self, baseline=BaselineReport.of(self.examined, baseline.examined))

    @property
    def sides(self) -> list[Side]:
        """A column for each arm of each run, under names that tell them apart."""
        if self.comparison is not None:
            return list(self.comparison.sides)
        return [
            replace(side, name=f"{run.name}, {side.name}" if len(run.sides) > 1 else run.name)
            if run.name
            else side
            for run in self.runs
            for side in run.sides
        ]

    @property
    def plans(self) -> list[tuple[str, Plan]]:
        """What to do, under the name of the run that it is of."""
        if self.comparison is not None:
            return [("", self.comparison.plan)]
        return [(run.name, run.plan) for run in self.runs if run.plan is not None]

    @property
    def diagnoses(self) -> list[tuple[str, Diagnosis]]:
        """What was found, under the name of the run that it was found in."""
        if self.comparison is not None:
            return [("", self.comparison.diagnosis)]
        return [(run.name, run.diagnosis) for run in self.runs if run.diagnosis is not None]


def are_backends(runs: Sequence[Run]) -> bool:
    """Two are backends if neither replayed: a run that did is the ideal of the other."""
    if len(runs) == PAIR:
        return all(run.header.mode != "replay" for run in runs)
    return len(runs) > PAIR


def _run_report(name: str, number: int, run: Run) -> RunReport:
    unit = unit_of([run])
    arm: Arm = "ideal" if run.header.mode == "replay" else "real"
    side = Side(run.header.mode, arm, run, summarise(run, arm))
    rate, *_ = throughputs(run, unit != BATCHES)
    counted = run_times(run).counted
    return RunReport(
        name,
        number,
        run,
        counted,
        unit,
        rate,
        (side,),
        Metrics.of(counted),
        None,
        stages=stages_of(run),
        no_stages=why_no_stages(run),
        operators=operators_of(counted),
        threads=threads_of(counted),
    )


def _one_run(name: str, number: int, run: Run) -> RunReport:
    """A run by itself, and where it alternated the comparison of its arms."""
    report = _run_report(name, number, run)
    if run.header.mode == "replay":
        return report
    case, counted = Case(run), report.counted
    diagnosis = diagnosis_of(case)
    plan = plan_for(case, diagnosis)
    report = replace(
        report,
        diagnosis=diagnosis,
        plan=plan,
        recorded=None if case.headroom is None else case.recorded,
    )
    if case.headroom is None:
        return report
    sides = (_arm(counted, "real"), _arm(counted, "ideal"))
    comparison = Comparison(
        run,
        None,
        counted,
        case.headroom,
        report.unit,
        throughputs(run, report.unit != BATCHES),
        sides,
        report.metrics,
        diagnosis,
        plan,
        report.stages,
        report.operators,
    )
    return replace(report, sides=sides, comparison=comparison)


def _two_runs(real: Run, ideal: Run) -> tuple[tuple[RunReport, ...], Comparison]:
    case = Case(real, ideal)
    diagnosis = diagnosis_of(case)
    assert case.headroom is not None  # noqa: S101 - there is one of any two runs
    of_real, of_ideal = _run_report("real", 0, real), _run_report("ideal", 1, ideal)
    sides = replace(of_real.sides[0], name="real"), replace(of_ideal.sides[0], name="ideal")
    unit = _unit_of_two(sides)
    rate, ideal_rate = (throughputs(run, unit != BATCHES)[0] for run in (real, ideal))
    comparison = Comparison(
        real,
        ideal,
        real,
        case.headroom,
        unit,
        (rate, ideal_rate, None),
        sides,
        Metrics.of_two(of_real.metrics, of_ideal.metrics),
        diagnosis,
        plan_for(case, diagnosis),
        of_real.stages,
        of_real.operators,
    )
    of_real = replace(
        of_real,
        recorded=case.recorded,
        threads=threads_of(real, ideal),
    )
    return (of_real, replace(of_ideal, threads=None)), comparison


def _compared(runs: Sequence[Run]) -> tuple[tuple[RunReport, ...], Comparison]:
    """One run that alternated, or a real and an ideal one."""
    if len(runs) == 1:
        alone = _one_run("", 0, runs[0])
        if alone.comparison is None:
            raise UsageError(why_not_compared(runs[0]))
        return (alone,), alone.comparison
    real, ideal = runs
    first = ideal.header.settings.get("replay_after")
    if ideal.header.mode == "replay" and first and len(ideal.steps) and not ideal.steps.arm.any():
        raise UsageError(
            f"{ideal.path or ideal.header.name} ended in the real batches that "
            f"replay_after={first} serves first, so nothing was replayed; expected a run that goes "
            "on after them"
        )
    return _two_runs(real, ideal)


def why_not_compared(run: Run) -> str:
    """Why one run by itself shows no speed-up, and what to give besides."""
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
    run = replace(run, steps=steps.take(chosen))
    return Side(arm, arm, run, summarise(run, arm))
