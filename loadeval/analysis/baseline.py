"""A run against an earlier one, its baseline: whether training became slower, and what changed.

Two runs one after the other differ by chance, which the intervals have, and by what the machine did
meanwhile, which no interval of two runs has. So a difference counts where its whole interval lies
beyond LEAST_CHANGE, as Criterion.rs does with its `noise_threshold`. Two runs are equal where all
of it lies within EQUAL_WITHIN, which tests equivalence (Schuirmann, "A comparison of the two
one-sided tests procedure and the power approach for assessing the equivalence of average
bioavailability", Journal of Pharmacokinetics and Biopharmaceutics 15, 1987). Otherwise nothing is
decided.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from loadeval.analysis.backends import BATCHES, of_one_comparison, unit_of
from loadeval.analysis.estimate.arms import run_times
from loadeval.analysis.estimate.cautions import MACHINE_FACTS, drift_ns
from loadeval.analysis.estimate.intervals import around, ratio, ratio_of
from loadeval.analysis.estimate.stats import Estimate
from loadeval.analysis.estimate.throughput import (
    epoch_throughput,
    epoch_throughput_ratio,
    throughput_ratio,
    throughputs,
)
from loadeval.analysis.estimate.verdict import (
    FEWEST_BATCHES,
    MODERATE_SHARE,
    WIDEST_SHARE,
    GateOutcome,
    Objection,
    Verdict,
    gate,
)
from loadeval.analysis.job.alignment import are_ranks
from loadeval.analysis.remark import Remark
from loadeval.data.redaction import is_hidden
from loadeval.data.run import NOT_RECORDED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loadeval.analysis.estimate.headroom import Headroom
    from loadeval.analysis.estimate.intervals import MeanTime
    from loadeval.analysis.rules.finding import Diagnosis, Finding
    from loadeval.data.run import Run

LEAST_CHANGE = 0.02
"""A throughput that differs by less counts as the same.

Twice the default of Criterion.rs, whose benchmarks do less with the machine than a training does.
"""
EQUAL_WITHIN = WIDEST_SHARE
"""Nothing is concluded from a wider interval of the time lost either."""
LOADER_FACTS = (
    *("backend", "workers", "prefetch_depth", "batch_size", "pinned", "device", "length"),
    *("start_method", "persistent_workers", "dataset", "sampler", "worker_init", "in_order"),
    "shards",
)
ENVIRONMENT_FACTS = ("host", "platform", "cpus", "cpus_usable", "omp_num_threads", "world_size")


class Pace(Enum):
    """The throughput of a run against that of its baseline."""

    SLOWER = "slower"
    FASTER = "faster"
    EQUAL = "equal"
    UNDECIDED = "undecided"


class Period(Enum):
    """What a throughput is of."""

    WHOLE_EPOCHS = "whole epochs"
    STEADY = "steady state"


class ChangedIn(Enum):
    """What a changed fact is of."""

    LOADER = "loader"
    VERSIONS = "versions"
    MACHINE = "machine"
    MEASUREMENT = "measurement"


class BaselineCaution(Enum):
    """What makes a comparison with a baseline mean less than it seems to."""

    OTHER_MACHINE = "different machines"
    BY_BATCH = "compared by batch"
    STARTS_NOT_JUDGED = "epoch starts not judged"
    SEPARATE_RUNS = "separate runs"


@dataclass(frozen=True, slots=True)
class Examined:
    """A run that loaded, its headroom if it was compared with ideal loading, and its findings."""

    run: Run
    headroom: Headroom | None
    diagnosis: Diagnosis


@dataclass(frozen=True, slots=True)
class NowAndBefore:
    """A quantity in a run and in its baseline, and the first over the second; None: not measured.

    The ratio has no interval where one of the two has none, or the baseline's may be 0.
    """

    now: Estimate | None = None
    before: Estimate | None = None
    ratio: Estimate | None = None


@dataclass(frozen=True, slots=True)
class ChangedFact:
    """A setting, a version or a fact of the machine that differs; both values are known."""

    where: ChangedIn
    name: str
    before: object
    now: object


@dataclass(frozen=True, slots=True)
class ChangedFinding:
    """A finding of one of the runs alone; `checked` is whether its rule could tell in the other."""

    finding: Finding
    checked: bool


@dataclass(frozen=True, slots=True)
class BaselineReport:
    """A run against its baseline.

    `epochs` and `steady` are throughputs per second in `unit`, over whole epochs and in the steady
    state. `lost`, `wait` and `step` are in nanoseconds per batch of the run, the baseline's for as
    many samples; time lost is known of runs that were compared with ideal loading. `pace` goes by
    the throughput of `period`. `drift_share` is by how much iterations changed within one of the
    runs, beyond noise.
    """

    pace: Pace
    objection: Objection | None
    period: Period
    unit: str
    epochs: NowAndBefore
    steady: NowAndBefore
    lost: NowAndBefore
    wait: NowAndBefore
    step: NowAndBefore
    batches: int
    before_batches: int
    drift_share: float
    changes: tuple[ChangedFact, ...]
    new_findings: tuple[ChangedFinding, ...]
    gone_findings: tuple[ChangedFinding, ...]
    cautions: tuple[Remark, ...]

    @classmethod
    def of(cls, now: Examined, before: Examined) -> BaselineReport:
        """`now` against its baseline `before`."""
        runs = (now.run, before.run)
        unit = unit_of(runs)
        by_sample = unit != BATCHES
        epochs, steady = _throughputs(*runs, by_sample)
        waits, steps = _waits_and_steps(*runs, by_sample)
        period = _period_judged(epochs.ratio, steady.ratio)
        judged = (epochs if period is Period.WHOLE_EPOCHS else steady).ratio
        counts = [run_times(run).real.count for run in runs]
        drift_share = max(_drift_share(run, by_sample) for run in runs)
        objection = _objection(judged, min(counts), drift_share)
        changes = tuple(_changes(*runs))
        return cls(
            pace=Pace.UNDECIDED if objection or judged is None else pace_of(judged),
            objection=objection,
            period=period,
            unit=unit,
            epochs=epochs,
            steady=steady,
            lost=_lost(now.headroom, before.headroom, by_sample),
            wait=waits,
            step=steps,
            batches=counts[0],
            before_batches=counts[1],
            drift_share=drift_share,
            changes=changes,
            new_findings=tuple(_only_in(now.diagnosis, before.diagnosis)),
            gone_findings=tuple(_only_in(before.diagnosis, now.diagnosis)),
            cautions=tuple(_cautions(changes, unit, period)),
        )

    @property
    def judged(self) -> Estimate | None:
        """The ratio of the throughputs that `pace` goes by."""
        return (self.epochs if self.period is Period.WHOLE_EPOCHS else self.steady).ratio

    def gate(self, bound: float) -> GateOutcome:
        """Whether throughput is more than `bound`, between 0 and 1, under the baseline's."""
        slower, judged = None, self.judged
        if judged is not None and judged.low is not None and judged.high is not None:
            slower = Estimate(1 - judged.value, 1 - judged.high, 1 - judged.low)
        return gate(Verdict(objection=self.objection), slower, bound)


def are_before_and_after(runs: Sequence[Run]) -> bool:
    """Whether these are two runs of the same loader in the same mode, the earlier first.

    Neither replayed, nor are they ranks of one job or backends of one comparison.
    """
    headers = [run.header for run in runs]
    kinds = {(header.mode, header.loader.backend) for header in headers}
    return (
        len(headers) == 2  # noqa: PLR2004 - before and after
        and len(kinds) == 1
        and headers[0].mode != "replay"
        and not are_ranks(runs)
        and not of_one_comparison(runs)
    )


# Throughputs and times


def _throughputs(now: Run, before: Run, by_sample: bool) -> tuple[NowAndBefore, NowAndBefore]:
    """Over whole epochs, and in the steady state."""
    epochs = NowAndBefore(
        epoch_throughput(now, by_sample),
        epoch_throughput(before, by_sample),
        epoch_throughput_ratio(now, before, by_sample),
    )
    steady_now, steady_before = (throughputs(run, by_sample)[0] for run in (now, before))
    steady = None
    if steady_now is not None and steady_before is not None:
        steady = throughput_ratio(run_times(now), run_times(before), by_sample, together=False)
    return epochs, NowAndBefore(steady_now, steady_before, steady)


def _waits_and_steps(now: Run, before: Run, by_sample: bool) -> tuple[NowAndBefore, NowAndBefore]:
    arms = [run_times(run).real for run in (now, before)]
    if not all(arm.count for arm in arms):
        return NowAndBefore(), NowAndBefore()
    size = float(arms[0].amount(by_sample).sum()) / arms[0].count
    waits, steps = (
        _mean_times([replace(time, place=None) for time in times], size)
        for times in (
            [arm.waits(by_sample) for arm in arms],
            [arm.steps(by_sample) for arm in arms],
        )
    )
    return waits, steps


def _mean_times(times: Sequence[MeanTime], size: float) -> NowAndBefore:
    now, before = (around(time.mean_ns * size, time.error(size)) for time in times)
    known = now.value > 0 and before.value > 0
    return NowAndBefore(now, before, ratio(*times) if known else None)


def _lost(now: Headroom | None, before: Headroom | None, by_sample: bool) -> NowAndBefore:
    """The time lost per batch of the run, of the baseline for as many samples."""
    lost_ns = None if now is None else now.lost_ns
    if before is None or before.lost_ns is None:
        return NowAndBefore(lost_ns)
    size = 1.0
    if by_sample and now is not None and now.samples_per_batch and before.samples_per_batch:
        size = now.samples_per_batch / before.samples_per_batch
    lost_before_ns = before.lost_ns.times(size)
    if lost_ns is None or lost_before_ns.value <= 0:
        return NowAndBefore(lost_ns, lost_before_ns)
    return NowAndBefore(lost_ns, lost_before_ns, ratio_of(lost_ns, lost_before_ns))


# What is concluded


def _drift_share(run: Run, by_sample: bool) -> float:
    iterations = run_times(run).real.iterations(by_sample)
    return drift_ns(iterations) / iterations.mean_ns if iterations.total_ns.any() else 0.0


def _objection(judged: Estimate | None, fewest: int, drift_share: float) -> Objection | None:
    """Why nothing is concluded.

    A machine that became slower or faster within a run did so between the runs too.
    """
    if judged is None:
        return Objection.NOT_MEASURED
    if fewest < FEWEST_BATCHES:
        return Objection.TOO_FEW_BATCHES
    if drift_share >= MODERATE_SHARE and drift_share > abs(judged.value - 1):
        return Objection.DRIFT
    if judged.low is None:
        return Objection.NO_INTERVAL
    return Objection.WIDE_INTERVAL if pace_of(judged) is Pace.UNDECIDED else None


def _period_judged(epochs: Estimate | None, steady: Estimate | None) -> Period:
    """Whole epochs, if two starts or more of each run tell what these differ by.

    Where they differ too much to decide, a steady state that is slower all the same is enough.
    """
    if epochs is None or epochs.low is None:
        return Period.STEADY
    if pace_of(epochs) is Pace.UNDECIDED and steady and pace_of(steady) is Pace.SLOWER:
        return Period.STEADY
    return Period.WHOLE_EPOCHS


def pace_of(judged: Estimate) -> Pace:
    """What is concluded from a ratio of throughputs, which has an interval or has not."""
    low, high = judged.low, judged.high
    if low is None or high is None:
        return Pace.UNDECIDED
    if high < 1 - LEAST_CHANGE:
        return Pace.SLOWER
    if low > 1 + LEAST_CHANGE:
        return Pace.FASTER
    return Pace.EQUAL if low >= 1 - EQUAL_WITHIN and high <= 1 + EQUAL_WITHIN else Pace.UNDECIDED


def _cautions(changes: Sequence[ChangedFact], unit: str, period: Period) -> Iterator[Remark]:
    """What makes the two less comparable, the weightiest first."""
    if any(change.name in MACHINE_FACTS for change in changes if change.where is ChangedIn.MACHINE):
        yield Remark(BaselineCaution.OTHER_MACHINE)
    if unit == BATCHES:
        yield Remark(BaselineCaution.BY_BATCH)
    if period is Period.STEADY:
        yield Remark(BaselineCaution.STARTS_NOT_JUDGED)
    yield Remark(BaselineCaution.SEPARATE_RUNS)


# What changed


def _changes(now: Run, before: Run) -> Iterator[ChangedFact]:
    """What differs; what is not known of one of the two is no difference."""
    facts_now = _facts(now)
    for (where, name), value in _facts(before).items():
        value_now = facts_now.get((where, name))
        both = value, value_now
        unknown = any(fact in (None, NOT_RECORDED) or is_hidden(fact) for fact in both)
        if value != value_now and not unknown:
            yield ChangedFact(where, name, value, value_now)


def _facts(run: Run) -> dict[tuple[ChangedIn, str], Any]:
    header = run.header
    environment, loader = header.environment, asdict(header.loader)
    measurement = {"mode": header.mode, "warmup": header.warmup}
    packages = environment.get("packages")
    parts: dict[ChangedIn, Mapping[str, Any]] = {
        ChangedIn.LOADER: {name: loader[name] for name in LOADER_FACTS},
        ChangedIn.VERSIONS: {
            "python": environment.get("python"),
            **(packages if isinstance(packages, Mapping) else {}),
        },
        ChangedIn.MACHINE: {name: environment.get(name) for name in ENVIRONMENT_FACTS},
        ChangedIn.MEASUREMENT: {**measurement, **header.settings},
    }
    return {(where, name): value for where, facts in parts.items() for name, value in facts.items()}


def _only_in(one: Diagnosis, other: Diagnosis) -> Iterator[ChangedFinding]:
    """The findings of `one` whose rules found nothing in `other`."""
    found = {finding.rule for finding in other.findings}
    unknown = {check.rule for check in other.checks if check.outcome == "not measured"}
    for finding in one.findings:
        if finding.rule not in found:
            yield ChangedFinding(finding, finding.rule not in unknown)
