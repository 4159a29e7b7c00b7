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
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from loadeval.data.columns import UNKNOWN
from loadeval.estimate.cautions import BY_BATCH, MACHINE_FACTS, differs
from loadeval.estimate.gap import (
    Gap,
    arms_of,
    gap_by,
    means_of,
    samples_known,
    throughput,
    with_amounts,
)
from loadeval.estimate.stats import Estimate, Jackknife
from loadeval.estimate.steady import epoch_lengths, pairs_that_count
from loadeval.estimate.verdict import (
    FEWEST_BATCHES,
    MODERATE_SHARE,
    STILL_TRUSTED,
    WIDEST_SHARE,
    Outcome,
    drift_ns,
    side_of,
)
from loadeval.words import share

if TYPE_CHECKING:
    from loadeval.data.columns import Columns
    from loadeval.data.run import Run

BATCHES = "batches"
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
TOLD_BY_FACTS = (
    *("num_workers", "prefetch_factor", "prefetch_depth", "batch_size", "pin_memory"),
    *("persistent_workers", "in_order"),
)
"""Settings that show in the loader's facts, whoever chose them."""
AS_PROGRAMMED = "the program's"

Kind = Literal["one run", "real and ideal", "before and after", "backends"]
Pace = Literal["slower", "faster", "equal", "undecided"]
Period = Literal["over whole epochs", "in the steady state"]
OVER_EPOCHS: Period = "over whole epochs"


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


def throughput_ratio(run: Run, baseline: Run, by_sample: bool) -> Estimate | None:
    """The steady throughput of `run` over that of `baseline`; None where one has none.

    Where both took turns they are compared round by round, and drift slower than a round is gone.
    """
    rounds = np.intersect1d(pairs_that_count(run), pairs_that_count(baseline))
    if not took_turns([run, baseline]) or not len(rounds):
        rates = [throughput(each, by_sample).get("real") for each in (run, baseline)]
        return rates[0] / rates[1] if rates[0] and rates[1] else None

    def in_rounds(run: Run) -> Columns:
        arm = arms_of(run)["real"]
        pair = pairs_that_count(run)[arm.block]
        block, place = np.searchsorted(rounds, pair), pair.astype(np.float64)
        return with_amounts(arm.replace(block=block, place=place), by_sample).take(
            np.isin(pair, rounds)
        )

    def figures(tables: Mapping[str, Columns]) -> Sequence[float]:
        wait, step, other_wait, other_step = means_of(tables)
        return [(wait + step) / (other_wait + other_step)]

    tables = {"real": in_rounds(baseline), "ideal": in_rounds(run)}
    sampled = Jackknife(figures, tables, [("real", "ideal")] if len(rounds) > 1 else [])
    return sampled.estimate(sampled.values[0], positive=True)


class Difference(NamedTuple):
    """`ratio` is the throughput of the backend `one` over that of the backend `other`."""

    one: str
    other: str
    ratio: Estimate


def names_of(runs: Sequence[Run]) -> list[str]:
    """The runs' names, or their paths where names are not different; numbered at worst."""
    for names in ([run.header.name for run in runs], [str(run.path) for run in runs]):
        if len(set(names)) == len(names):
            return names
    return [f"{run.header.name} ({number})" for number, run in enumerate(runs, start=1)]


def differences(backends: Mapping[str, Run]) -> list[Difference]:
    """Between every two backends that were measured, the fastest first."""
    by_sample = unit_of(list(backends.values())) != BATCHES
    rates = {name: throughput(run, by_sample).get("real") for name, run in backends.items()}
    known = {name: rate.value for name, rate in rates.items() if rate is not None}
    found = []
    for one, other in combinations(sorted(known, key=lambda name: -known[name]), 2):
        ratio = throughput_ratio(backends[one], backends[other], by_sample)
        if ratio is not None:
            found.append(Difference(one, other, ratio))
    return found


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
    earlier one for as many samples. `pace` goes by the throughput that was `judged`, of `period`;
    where it is undecided `rule` and `reason` say why. `cautions` are sentences.
    """

    pace: Pace
    judged: Estimate | None
    period: Period
    rule: str
    reason: str
    unit: str
    epochs: Compared
    steady: Compared
    lost: Compared
    wait: Compared
    step: Compared
    changes: tuple[Changed, ...]
    cautions: tuple[str, ...]

    @property
    def headline(self) -> str:
        """Whether the run is slower than the earlier one, in one sentence."""
        throughput = _throughput_in_words(self.judged, self.period)
        return {
            "slower": f"Slower than the baseline: {throughput}",
            "faster": f"Faster than the baseline: {throughput}",
            "equal": f"As fast as the baseline, within {EQUAL_WITHIN:.0%}: {throughput}",
            "undecided": f"Undecided against the baseline: {self.reason}",
        }[self.pace]

    def gate(self, bound: float) -> tuple[Outcome, str]:
        """Whether throughput is more than `bound`, between 0 and 1, under the earlier one's."""
        slower = None if self.judged is None else 1 - self.judged
        outcome = side_of(slower, bound, self.rule in STILL_TRUSTED)
        limit, throughput = f"{bound * 100:g}%", _throughput_in_words(self.judged, self.period)
        return outcome, {
            "above": (
                f"More than {limit} slower: {throughput}; the whole 95% CI is beyond the limit"
            ),
            "not above": (
                f"Not more than {limit} slower: {throughput}; the 95% CI ends at or before the "
                "limit"
            ),
            "spans the bound": (
                f"Undecided whether more than {limit} slower: {throughput}; the 95% CI spans the "
                "limit. Measure more batches or epochs for a narrower interval."
            ),
            "inconclusive": (
                f"Undecided whether more than {limit} slower: {self.reason}. Measure more batches "
                "or epochs, on a machine that does nothing else."
            ),
        }[outcome]


def before_after(
    before: Run, now: Run, before_gap: Gap | None = None, now_gap: Gap | None = None
) -> BeforeAfter:
    """A run against an earlier one; their gaps, where they were compared with ideal loading."""
    runs = (now, before)
    unit = unit_of(runs)
    by_sample = unit != BATCHES
    rates = [throughput(run, by_sample) for run in runs]
    epochs, steady = (_compared(*(rate.get(name) for rate in rates)) for name in ("whole", "real"))
    measured = [gap_by(run, None, by_sample) for run in runs]
    lost = [
        (given or each).lost for given, each in zip((now_gap, before_gap), measured, strict=True)
    ]
    sizes = [each.samples_per_batch or 1.0 for each in measured]

    # Whole epochs are judged, if two starts or more of each run tell what these differ by. Where
    # they differ too much to decide, a steady state that is slower all the same is enough.
    judged, period = epochs.ratio, OVER_EPOCHS
    is_sure = judged is not None and judged.low is not None
    if not is_sure or (pace_of(judged) == "undecided" and pace_of(steady.ratio) == "slower"):
        judged, period = steady.ratio, "in the steady state"
    drift = max(
        drift_ns(run) / each.real.value if each.real else 0.0
        for run, each in zip(runs, measured, strict=True)
    )
    counts = [each.real_batches for each in measured]
    pace, why = pace_of(judged), _throughput_in_words(judged, period)
    rule, reason = "concluded", ""
    if judged is None:
        rule, reason = "not measured", "one of the runs has no steady-state batches"
    elif min(counts) < FEWEST_BATCHES:
        rule = "too few batches"
        reason = (
            f"too few batches: {counts[0]:,} now and {counts[1]:,} before, and each needs at "
            f"least {FEWEST_BATCHES}"
        )
    elif drift >= MODERATE_SHARE and drift > abs(judged.value - 1):
        rule = "drift within a run"  # then the machine changed between the runs too
        reason = (
            f"iterations drifted by {share(drift)} within a run, more than the "
            f"{share(abs(judged.value - 1))} between the two"
        )
    elif judged.low is None:
        rule, reason = "no confidence interval", f"{why}, too few measurements for a 95% CI"
    elif pace == "undecided":
        rule = "wide confidence interval"
        reason = (
            f"{why}; the 95% CI is neither beyond {LEAST_CHANGE:.0%} nor within {EQUAL_WITHIN:.0%}"
        )
    changes = tuple(_changes(now, before))
    return BeforeAfter(
        pace="undecided" if reason else pace,
        judged=judged,
        period=period,
        rule=rule,
        reason=reason,
        unit=unit,
        epochs=epochs,
        steady=steady,
        lost=_compared(*lost, scale=sizes[0] / sizes[1]),
        wait=_compared(*(each.real_wait for each in measured), scale=sizes[0] / sizes[1]),
        step=_compared(*(each.real_step for each in measured), scale=sizes[0] / sizes[1]),
        changes=changes,
        cautions=tuple(_cautions(changes, unit, period)),
    )


def _compared(now: Estimate | None, before: Estimate | None, *, scale: float = 1.0) -> Compared:
    """Both, and their ratio; the earlier one for as much as the later one."""
    before = before and before * scale
    return Compared(now, before, now / before if now and before and before.value > 0 else None)


def pace_of(judged: Estimate | None) -> Pace:
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


def _throughput_in_words(judged: Estimate | None, period: str) -> str:
    ratio = "not measured" if judged is None else f"{judged:times}"
    return f"{ratio} of its throughput, {period}"


def _cautions(changes: Sequence[Changed], unit: str, period: Period) -> Iterator[str]:
    """What makes the two less comparable, the weightiest first."""
    if any(change.what == "machine" and change.name in MACHINE_FACTS for change in changes):
        yield "The runs are from different machines, whose difference counts as one of the runs."
    if unit == BATCHES:
        yield f"Samples are not known in both runs: {BY_BATCH}."
    if period != OVER_EPOCHS:
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
    overrides = [run.loader.overrides or {} for run in (before, now)]
    for name in {**overrides[0], **overrides[1]}:
        values = [chosen.get(name, AS_PROGRAMMED) for chosen in overrides]
        if name not in TOLD_BY_FACTS and values[0] != values[1]:
            yield Changed("loader", name, *values)


def _facts(run: Run) -> dict[tuple[Any, str], Any]:
    header, loader = run.header, asdict(run.loader)
    environment, packages = header.environment, header.environment.get("packages")
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
