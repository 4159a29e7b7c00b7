"""Several runs: which they are, and of two of the same loader whether training became slower.

Two runs one after the other differ by chance, which the intervals have, and by what the machine did
meanwhile, which no interval of two runs has. So a difference counts where its whole interval lies
beyond LEAST_CHANGE, as Criterion.rs does with its `noise_threshold`. Two runs are equal where all
of it lies within EQUAL_WITHIN, which tests equivalence (Schuirmann, Journal of Pharmacokinetics and
Biopharmaceutics 15, 1987). Otherwise nothing is decided.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal, NamedTuple

import numpy as np

from loadeval.data.columns import Columns
from loadeval.data.redaction import is_hidden
from loadeval.data.run import NOT_RECORDED, Run
from loadeval.estimate.gap import arms_of, gap, means_of, samples_known, throughput
from loadeval.estimate.stats import Estimate, Tables, jackknife
from loadeval.estimate.steady import pairs_that_count
from loadeval.estimate.verdict import BY_BATCH, FEWEST_BATCHES, gate

BATCHES = "batches"
LEAST_CHANGE = 0.02
"""A throughput that differs by less counts as the same.

Twice the default of Criterion.rs, whose benchmarks do less with the machine than a training does.
"""
EQUAL_WITHIN = 0.10
"""Nothing is concluded from a wider interval of the time lost either."""
NOT_SETTINGS = {"adapter", "made_by", "made_at", "setting_names", "overrides", "ready_batches"}
"""What is known of a loader and nobody sets."""
TOLD_FACTS = ("backend", "batch_size", "device", "pinned", "length", "host", "cpus_usable")
"""What a log and its replay have alike, but for workers: those of the replay are stopped."""
ENVIRONMENT_FACTS = ("host", "platform", "cpus", "cpus_usable", "omp_num_threads", "world_size")

Pace = Literal["slower", "faster", "equal", "undecided"]
What = Literal["loader", "versions", "machine"]


# Several runs


def took_turns(runs: Sequence[Run]) -> bool:
    """Whether the runs took turns in the rounds of one comparison."""
    comparisons = {run.header.settings.get("comparison") for run in runs}
    return len(comparisons) == 1 and None not in comparisons


def unit_of(runs: Sequence[Run]) -> str:
    """What throughput is counted in: samples under their name, where all runs know theirs."""
    units = {run.header.unit for run in runs}
    arms = [arm for run in runs for arm in arms_of(run).values()]
    return units.pop() if arms and len(units) == 1 and all(map(samples_known, arms)) else BATCHES


class Difference(NamedTuple):
    """`ratio` is the throughput of the backend `one` over that of the backend `other`."""

    one: str
    other: str
    ratio: Estimate


def differences(backends: Mapping[str, Run]) -> list[Difference]:
    """Between the fastest backend and each other that was measured, the faster first."""
    by_sample = unit_of(list(backends.values())) != BATCHES
    rates = {name: throughput(gap(run), by_sample).get("real") for name, run in backends.items()}
    known = {name: rate for name, rate in rates.items() if rate is not None}
    names = sorted(known, key=lambda name: -known[name].value)
    found = []
    for other in names[1:]:
        ratio = _in_rounds(backends[names[0]], backends[other], by_sample)
        found.append(Difference(names[0], other, ratio or known[names[0]] / known[other]))
    return found


def _in_rounds(run: Run, other: Run, by_sample: bool) -> Estimate | None:
    """The throughput of `run` over that of the other, round by round; None of separate runs.

    So drift that is slower than a round is gone.
    """
    rounds = np.intersect1d(pairs_that_count(run), pairs_that_count(other))
    if not took_turns([run, other]) or not len(rounds):
        return None

    def rounds_of(run: Run) -> Columns:
        arm = arms_of(run)["real"]
        pair = pairs_that_count(run)[arm.block]
        placed = arm.replace(block=np.searchsorted(rounds, pair), place=pair.astype(np.float64))
        return placed.take(np.isin(pair, rounds))

    def figures(tables: Tables) -> dict[str, float]:
        wait, step, own_wait, own_step = means_of(tables, by_sample=by_sample)
        return {"ratio": (wait + step) / (own_wait + own_step)}

    tables = {"real": rounds_of(other), "ideal": rounds_of(run)}
    together = [("real", "ideal")] if len(rounds) > 1 else []
    return jackknife(figures, tables, together, ("ratio",))["ratio"]


def about_backends(backends: Mapping[str, Run]) -> Iterator[str]:
    """What makes backends less comparable, the weightiest first."""
    runs = list(backends.values())
    for fact in ("host", "cpus_usable"):
        values = {str(value) for run in runs if (value := run.header.environment.get(fact))}
        if len(values) > 1:
            name, each = fact.replace("_", " "), ", ".join(sorted(values))
            yield f"The runs are from different machines: {name} {each}."
    if len(runs) > 1 and not took_turns(runs):
        yield (
            "The runs are separate: machine drift between them counts as a difference between "
            "backends, and no 95% CI covers it."
        )
    if runs and unit_of(runs) == BATCHES:
        yield f"Samples are not known in all runs: {BY_BATCH}."


# Before and after


class Compared(NamedTuple):
    """A quantity in the later run and in the earlier one, and the first over the second.

    None is not measured. The ratio has no interval where the earlier one may be 0.
    """

    now: Estimate | None
    before: Estimate | None
    ratio: Estimate | None


class Changed(NamedTuple):
    """A setting, a version or a fact of the machine that differs; `what` it is of."""

    what: What
    name: str
    before: object
    now: object


class BeforeAfter(NamedTuple):
    """A run against an earlier one.

    `epochs` and `steady` are throughputs per second in `unit`, over whole epochs and in the steady
    state. `lost`, `wait` and `step` are in nanoseconds per batch of the later run, those of the
    earlier one for as many samples. `pace` goes by the throughput that was `judged`, which `says`
    has in words; `objection` is why not even its interval is to be trusted, or "". `cautions` are
    sentences.
    """

    pace: Pace
    headline: str
    judged: Estimate | None
    says: str
    objection: str
    unit: str
    epochs: Compared
    steady: Compared
    lost: Compared
    wait: Compared
    step: Compared
    changes: tuple[Changed, ...]
    cautions: tuple[str, ...]

    def gate(self, bound: float) -> tuple[bool | None, str]:
        """Whether throughput is more than `bound`, between 0 and 1, under the earlier one's."""
        slower, objection = None if self.judged is None else 1 - self.judged, self.objection
        if objection:
            objection += ". Measure more batches or epochs, on a machine that does nothing else."
        return gate(slower, bound, "slower", self.says, objection)


def before_after(before: Run, now: Run) -> BeforeAfter:
    """A run against an earlier one."""
    unit, now_gap, before_gap = unit_of([now, before]), gap(now), gap(before)
    now_rates, before_rates = (throughput(each, unit != BATCHES) for each in (now_gap, before_gap))
    scale = 1.0  # as many samples
    if unit != BATCHES and now_gap.samples_per_batch and before_gap.samples_per_batch:
        scale = now_gap.samples_per_batch / before_gap.samples_per_batch

    def compared(later: Estimate | None, earlier: Estimate | None, scale: float = 1.0) -> Compared:
        earlier = earlier and earlier * scale
        ratio = later / earlier if later and earlier and earlier.value > 0 else None
        return Compared(later, earlier, ratio)

    epochs = compared(now_rates.get("whole"), before_rates.get("whole"))
    steady = compared(now_rates.get("real"), before_rates.get("real"))
    # Whole epochs are judged, if two starts or more of each run tell what these differ by. Where
    # they differ too much to decide, a steady state that is slower all the same is enough.
    paces = _pace_of(epochs.ratio), _pace_of(steady.ratio)
    of_steady = epochs.ratio is None or epochs.ratio.low is None or paces == ("undecided", "slower")
    judged, pace = (steady.ratio, paces[1]) if of_steady else (epochs.ratio, paces[0])
    period = "in the steady state" if of_steady else "over whole epochs"
    says, objection = f"not measured, {period}", ""
    if judged is not None:
        says = f"{judged:times} of its throughput, {period}"
    counts = now_gap.real_batches, before_gap.real_batches
    if min(counts) < FEWEST_BATCHES:
        pace = "undecided"
        objection = (
            f"too few batches: {counts[0]:,} now and {counts[1]:,} before, and each needs at "
            f"least {FEWEST_BATCHES}"
        )
    elif judged is None or judged.low is None:
        objection = f"{says}, too few measurements for a 95% CI"
    neither = f"neither beyond {LEAST_CHANGE:.0%} nor within {EQUAL_WITHIN:.0%}"
    headlines: dict[Pace, str] = {
        "slower": f"Slower than the baseline: {says}",
        "faster": f"Faster than the baseline: {says}",
        "equal": f"As fast as the baseline, within {EQUAL_WITHIN:.0%}: {says}",
        "undecided": (
            f"Undecided against the baseline: {objection or f'{says}; the 95% CI is {neither}'}"
        ),
    }
    changes = tuple(changes_between(before, now))
    cautions = {
        f"Samples are not known in both runs: {BY_BATCH}.": unit == BATCHES,
        "Epoch starts are not judged: that takes two epochs or more in each run, whose starts "
        "differ little.": of_steady,
        "Two runs one after the other also differ by what the machine did meanwhile, and the 95% "
        "CI does not cover that: repeat both to be sure.": True,
    }
    return BeforeAfter(
        pace=pace,
        headline=headlines[pace],
        judged=judged,
        says=says,
        objection=objection,
        unit=unit,
        epochs=epochs,
        steady=steady,
        lost=compared(now_gap.lost, before_gap.lost, scale),
        wait=compared(now_gap.real_wait, before_gap.real_wait, scale),
        step=compared(now_gap.real_step, before_gap.real_step, scale),
        changes=changes,
        cautions=tuple(caution for caution, holds in cautions.items() if holds),
    )


def _pace_of(judged: Estimate | None) -> Pace:
    """What is concluded from a ratio of throughputs, which has an interval or has not."""
    if judged is None or judged.low is None:
        return "undecided"
    low, high = judged.bounds
    if high < 1 - LEAST_CHANGE:
        return "slower"
    if low > 1 + LEAST_CHANGE:
        return "faster"
    return "equal" if low >= 1 - EQUAL_WITHIN and high <= 1 + EQUAL_WITHIN else "undecided"


def changes_between(before: Run, now: Run) -> Iterator[Changed]:
    """What differs; what is not known of one of the two is no difference."""
    earlier, later = _facts(before), _facts(now)
    for what, facts in earlier.items():
        for name, value in facts.items():
            then = value, later[what].get(name)
            unknown = any(fact in (None, NOT_RECORDED) or is_hidden(fact) for fact in then)
            if then[0] != then[1] and not unknown:
                yield Changed(what, name, *then)


def about_two_runs(real: Run, ideal: Run) -> Iterator[str]:
    """What makes a log beside a replay mean less."""
    for change in changes_between(real, ideal):
        if change.name in TOLD_FACTS:
            yield (
                f"The two runs differ: {change.name.replace('_', ' ')} {change.before} (real), "
                f"{change.now} (ideal)."
            )
    if unit_of([real, ideal]) == BATCHES:
        yield f"Samples are not known in both runs: {BY_BATCH}."
    yield (
        "The runs are separate: machine drift between them counts as a loading difference, and the "
        "95% CI does not cover it."
    )


def _facts(run: Run) -> dict[What, dict[str, Any]]:
    """What is known of a run, of each kind."""
    environment = run.header.environment
    loader = {name: each for name, each in asdict(run.loader).items() if name not in NOT_SETTINGS}
    packages = environment.get("packages")
    return {
        "loader": loader,
        "versions": {
            "python": environment.get("python"),
            **(packages if isinstance(packages, Mapping) else {}),
        },
        "machine": {name: environment.get(name) for name in ENVIRONMENT_FACTS},
    }
