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
from itertools import combinations
from typing import Any, Literal, NamedTuple

import numpy as np

from loadeval.data.columns import UNKNOWN, Columns
from loadeval.data.run import Run
from loadeval.estimate.cautions import BY_BATCH, MACHINE_FACTS, differs
from loadeval.estimate.gap import (
    arms_of,
    gap,
    means_of,
    samples_known,
    throughput,
    with_amounts,
)
from loadeval.estimate.stats import Estimate, Jackknife
from loadeval.estimate.steady import epoch_lengths, pairs_that_count
from loadeval.estimate.verdict import FEWEST_BATCHES, Outcome, gate

BATCHES = "batches"
LEAST_CHANGE = 0.02
"""A throughput that differs by less counts as the same.

Twice the default of Criterion.rs, whose benchmarks do less with the machine than a training does.
"""
EQUAL_WITHIN = 0.10
"""Nothing is concluded from a wider interval of the time lost either."""
LOADER_FACTS = (
    *("backend", "workers", "prefetch_depth", "batch_size", "pinned", "device", "length"),
    *("start_method", "persistent_workers", "dataset", "sampler", "worker_init", "in_order"),
    "shards",
)
ENVIRONMENT_FACTS = ("host", "platform", "cpus", "cpus_usable", "omp_num_threads", "world_size")
TOLD_BY_FACTS = (
    *("num_workers", "prefetch_factor", "prefetch_depth", "batch_size", "pin_memory"),
    *("persistent_workers", "in_order"),
)
"""Settings that show in the loader's facts, whoever chose them."""

Pace = Literal["slower", "faster", "equal", "undecided"]
Period = Literal["over whole epochs", "in the steady state"]
Kind = Literal["one run", "real and ideal", "before and after", "backends"]


def kind_of(runs: Sequence[Run]) -> Kind:
    """What several runs are, which are not the ranks of one job.

    A run that replayed is the ideal of the other. Two runs of one loader in the same mode are
    before and after, unless they took turns in one comparison.
    """
    modes = {run.header.mode for run in runs}
    if len(runs) == 1:
        return "one run"
    if len(runs) > 2:  # noqa: PLR2004 - before and after
        return "backends"
    if "replay" in modes:
        return "real and ideal"
    same_loader = len({run.loader.backend for run in runs}) == len(modes) == 1
    return "before and after" if same_loader and not took_turns(runs) else "backends"


# Backends


def took_turns(runs: Sequence[Run]) -> bool:
    """Whether the runs took turns in the rounds of one comparison."""
    comparisons = {run.header.settings.get("comparison") for run in runs}
    return len(comparisons) == 1 and None not in comparisons


def unit_of(runs: Sequence[Run]) -> str:
    """What throughput is counted in: samples under their name, where all runs know theirs."""
    units = {run.header.unit for run in runs}
    arms = [arm for run in runs for arm in arms_of(run).values() if len(arm)]
    known = bool(arms) and all(map(samples_known, arms))
    return units.pop() if known and len(units) == 1 else BATCHES


def names_of(runs: Sequence[Run]) -> list[str]:
    """The runs' names, or their paths where names are not different; numbered at worst."""
    for names in ([run.header.name for run in runs], [str(run.path) for run in runs]):
        if len(set(names)) == len(names):
            return names
    return [f"{run.header.name} ({number})" for number, run in enumerate(runs, start=1)]


class Difference(NamedTuple):
    """`ratio` is the throughput of the backend `one` over that of the backend `other`."""

    one: str
    other: str
    ratio: Estimate


def differences(backends: Mapping[str, Run]) -> list[Difference]:
    """Between every two backends that were measured, the fastest first."""
    by_sample = unit_of(list(backends.values())) != BATCHES
    rates = {name: throughput(gap(run), by_sample).get("real") for name, run in backends.items()}
    known = {name: rate for name, rate in rates.items() if rate is not None}
    return [
        Difference(one, other, _ratio(backends[one], backends[other], by_sample))
        for one, other in combinations(sorted(known, key=lambda name: -known[name].value), 2)
    ]


def _ratio(run: Run, other: Run, by_sample: bool) -> Estimate:
    """The steady throughput of `run` over that of the other.

    Where both took turns they are compared round by round, and drift slower than a round is gone.
    """
    rounds = np.intersect1d(pairs_that_count(run), pairs_that_count(other))
    if not took_turns([run, other]) or not len(rounds):
        return throughput(gap(run), by_sample)["real"] / throughput(gap(other), by_sample)["real"]

    def in_rounds(run: Run) -> Columns:
        arm = arms_of(run)["real"]
        pair = pairs_that_count(run)[arm.block]
        block, place = np.searchsorted(rounds, pair), pair.astype(np.float64)
        placed = with_amounts(arm.replace(block=block, place=place), by_sample)
        return placed.take(np.isin(pair, rounds))

    def figures(tables: Mapping[str, Columns]) -> Sequence[float]:
        wait, step, other_wait, other_step = means_of(tables)
        return [(wait + step) / (other_wait + other_step)]

    tables = {"real": in_rounds(other), "ideal": in_rounds(run)}
    sampled = Jackknife(figures, tables, [("real", "ideal")] if len(rounds) > 1 else [])
    return sampled.estimate(sampled.values[0], positive=True)


def about_backends(backends: Mapping[str, Run]) -> Iterator[str]:
    """What makes backends less comparable, the weightiest first."""
    runs = list(backends.values())
    unit = unit_of(runs)
    sizes = {name: own for name, run in backends.items() if (own := _sizes_of_epochs(run, unit))}
    if sizes and not set.intersection(*sizes.values()):
        each = ", ".join(
            f"{name} {' or '.join(f'{size:,}' for size in sorted(of_run))}"
            for name, of_run in sizes.items()
        )
        yield f"The backends' epochs differ in {unit}: {each}."
    for fact in MACHINE_FACTS:
        values = {str(value) for run in runs if (value := run.header.environment.get(fact))}
        if len(values) > 1:
            name, each = fact.replace("_", " "), ", ".join(sorted(values))
            yield f"The runs are from different machines: {name} {each}."
    if len(runs) > 1 and not took_turns(runs):
        yield (
            "The runs are separate: machine drift between them counts as a difference between "
            "backends, and no 95% CI covers it."
        )
    if runs and unit == BATCHES:
        yield f"Samples are not known in all runs: {BY_BATCH}."
    if (count := len(runs) * (len(runs) - 1) // 2) > 1:
        yield f"The 95% CIs of the {count} differences are not corrected for multiple comparisons."


def _sizes_of_epochs(run: Run, unit: str) -> set[int]:
    """How many samples, or batches, the epochs had that were served from beginning to end.

    Only after the end of an epoch is it sure that the next one begins at its beginning.
    """
    over = {end.epoch for end in run.ends if end.cause == "exhausted"}
    whole = {epoch for epoch in over if epoch - 1 in over}
    if unit == BATCHES:
        return {count for epoch, count in epoch_lengths(run).items() if epoch in whole}
    counts = [run.steps.samples[run.steps.epoch == epoch] for epoch in whole]
    return {int(samples.sum()) for samples in counts if (samples != UNKNOWN).all()}


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

    what: Literal["loader", "versions", "machine", "measurement"]
    name: str
    before: object
    now: object


class BeforeAfter(NamedTuple):
    """A run against an earlier one.

    `epochs` and `steady` are throughputs per second in `unit`, over whole epochs and in the steady
    state. `lost`, `wait` and `step` are in nanoseconds per batch of the later run, those of the
    earlier one for as many samples. `pace` goes by the throughput that was `judged`, of
    `period`, which `says` has in words; `objection` is why not even its interval is to be trusted,
    or "". `cautions` are sentences.
    """

    pace: Pace
    headline: str
    judged: Estimate | None
    period: Period
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

    def gate(self, bound: float) -> tuple[Outcome, str]:
        """Whether throughput is more than `bound`, between 0 and 1, under the earlier one's."""
        slower = None if self.judged is None else 1 - self.judged
        objection = self.objection
        if objection:
            objection += ". Measure more batches or epochs, on a machine that does nothing else."
        return gate(slower, bound, "slower", self.says, objection)


def before_after(before: Run, now: Run) -> BeforeAfter:
    """A run against an earlier one."""
    unit, now_gap, before_gap = unit_of([now, before]), gap(now), gap(before)
    by_sample = unit != BATCHES
    now_rates, before_rates = (throughput(each, by_sample) for each in (now_gap, before_gap))
    scale = 1.0  # as many samples
    if by_sample and now_gap.samples_per_batch and before_gap.samples_per_batch:
        scale = now_gap.samples_per_batch / before_gap.samples_per_batch

    def compared(later: Estimate | None, earlier: Estimate | None, scale: float = 1.0) -> Compared:
        earlier = earlier and earlier * scale
        if later is None or earlier is None or earlier.value <= 0:
            return Compared(later, earlier, None)
        return Compared(later, earlier, later / earlier)

    epochs, steady, lost, wait, step = (
        compared(now_rates.get("whole"), before_rates.get("whole")),
        compared(now_rates.get("real"), before_rates.get("real")),
        compared(now_gap.lost, before_gap.lost, scale),
        compared(now_gap.real_wait, before_gap.real_wait, scale),
        compared(now_gap.real_step, before_gap.real_step, scale),
    )
    # Whole epochs are judged, if two starts or more of each run tell what these differ by. Where
    # they differ too much to decide, a steady state that is slower all the same is enough.
    judged: Estimate | None = epochs.ratio
    period: Period = "over whole epochs"
    is_sure = judged is not None and judged.low is not None
    if not is_sure or (_pace_of(judged) == "undecided" and _pace_of(steady.ratio) == "slower"):
        judged, period = steady.ratio, "in the steady state"
    pace, says = _pace_of(judged), f"not measured, {period}"
    if judged is not None:
        says = f"{judged:times} of its throughput, {period}"
    counts, objection = (now_gap.real_batches, before_gap.real_batches), ""
    if min(counts) < FEWEST_BATCHES:
        objection = (
            f"too few batches: {counts[0]:,} now and {counts[1]:,} before, and each needs at "
            f"least {FEWEST_BATCHES}"
        )
    elif judged is None or judged.low is None:
        objection = f"{says}, too few measurements for a 95% CI"
    reason = objection
    if pace == "undecided" and not reason:
        beyond = f"neither beyond {LEAST_CHANGE:.0%} nor within {EQUAL_WITHIN:.0%}"
        reason = f"{says}; the 95% CI is {beyond}"
    headline = {
        "slower": f"Slower than the baseline: {says}",
        "faster": f"Faster than the baseline: {says}",
        "equal": f"As fast as the baseline, within {EQUAL_WITHIN:.0%}: {says}",
    }
    pace = "undecided" if reason else pace
    changes = tuple(_changes(now, before))
    return BeforeAfter(
        pace=pace,
        headline=headline.get(pace, f"Undecided against the baseline: {reason}"),
        judged=judged,
        period=period,
        says=says,
        objection=objection,
        unit=unit,
        epochs=epochs,
        steady=steady,
        lost=lost,
        wait=wait,
        step=step,
        changes=changes,
        cautions=tuple(_cautions(changes, unit, period)),
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
    is_equal = low >= 1 - EQUAL_WITHIN and high <= 1 + EQUAL_WITHIN
    return "equal" if is_equal else "undecided"


def _cautions(changes: Sequence[Changed], unit: str, period: Period) -> Iterator[str]:
    """What makes the two less comparable, the weightiest first."""
    if any(change.what == "machine" and change.name in MACHINE_FACTS for change in changes):
        yield "The runs are from different machines, whose difference counts as one of the runs."
    if unit == BATCHES:
        yield f"Samples are not known in both runs: {BY_BATCH}."
    if period == "in the steady state":
        yield (
            "Epoch starts are not judged: that takes two epochs or more in each run, whose starts "
            "differ little."
        )
    yield (
        "Two runs one after the other also differ by what the machine did meanwhile, and the 95% "
        "CI does not cover that: repeat both to be sure."
    )


def _changes(now: Run, before: Run) -> Iterator[Changed]:
    """What differs; what is not known of one of the two is no difference."""
    facts_now = _facts(now)
    for (what, name), value in _facts(before).items():
        if differs(value, facts_now.get((what, name))):
            yield Changed(what, name, value, facts_now[what, name])
    chosen = [run.loader.overrides or {} for run in (before, now)]
    for name in {**chosen[0], **chosen[1]}:
        values = [overrides.get(name, "the program's") for overrides in chosen]
        if name not in TOLD_BY_FACTS and values[0] != values[1]:
            yield Changed("loader", name, *values)


def _facts(run: Run) -> dict[tuple[Any, str], Any]:
    header, loader = run.header, asdict(run.loader)
    environment = header.environment
    packages = environment.get("packages")
    parts: dict[str, Mapping[str, Any]] = {
        "loader": {name: loader[name] for name in LOADER_FACTS},
        "versions": {
            "python": environment.get("python"),
            **(packages if isinstance(packages, Mapping) else {}),
        },
        "machine": {name: environment.get(name) for name in ENVIRONMENT_FACTS},
        "measurement": {"mode": header.mode, "warmup": header.warmup, **header.settings},
    }
    return {(what, name): value for what, facts in parts.items() for name, value in facts.items()}
