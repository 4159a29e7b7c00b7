"""Real against ideal loading: how much time a training loses to it, and to what.

    iteration = wait + step, the means per sample of what counts
    lost      = real - ideal, of whole epochs
              = waiting + contention + epoch starts

Where both arms alternate in one run, each real time stands beside the ideal iteration at its place
in the run, interpolated between the ideal blocks around it: what slows both is gone. Every figure
below is calculated with all that was measured, and without each pair: see `Jackknife`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from loadeval.data.columns import UNKNOWN, Columns, Values
from loadeval.data.run import ARMS, SECOND_NS, Run
from loadeval.errors import UsageError
from loadeval.estimate.epochs import length_of_epochs, starts_of
from loadeval.estimate.stats import Estimate, Jackknife
from loadeval.estimate.steady import once_per_run, pairs_that_count, steady
from loadeval.words import whole_share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.data.lines import Arm

FEWEST_TIMES = 8
"""Fewer batches of an arm have no interval."""
FEWEST_PAIRS = 2
"""With fewer pairs there is no interval. The second has its arms in the reversed order."""
FEWEST_SIZES = 20
"""An arm of fewer batches does not tell whether its steps follow their size."""
BEYOND_CHANCE = 3.0
"""A slope so many standard errors above zero is seldom chance: once in 740 times."""
LEAST_SPREAD = 0.01
"""Sizes that differ less are taken for the same."""
LEAST = 1e-9
"""It stands for nothing where something is divided by it."""


@dataclass(frozen=True, slots=True)
class Gap:
    """What data loading costs: times in nanoseconds per batch of the real arm.

    `real` and `ideal` are the steady iterations, `loader_only` a batch of the loader alone, and
    `whole` a real one over whole epochs: `starts` is what their starts and ends add. `lost` =
    `whole` - `ideal` is the sum of `waiting`, the difference of the waits, `contention`, that of
    the steps, and `starts`. Each may be negative: a step that ends by waiting for a device is
    shorter where that had work during the wait, and first batches may come faster than later ones.
    `speedup` = `whole` / `ideal` is how many times as fast training would be if loading were free,
    `steady_speedup` = `real` / `ideal`, and `required` = `loader_only` / `ideal` how many times as
    fast the loader alone would have to be; None for one that loads nothing while a step runs.

    What was not measured is None. Of a log by itself `waiting` is all of the wait, and nothing is
    ideal. `pairs` is None unless the run alternated; `of_epochs` tells whether its blocks are whole
    epochs, `epochs` how many were seen to start. `samples_per_batch` is None where arms are
    compared by batch. `gpu_idle` is how long the device had no work in the wait for a real batch.

    `lost_share` is the share of the time that is lost, 1 - 1 / `speedup`, and `shares` have that of
    `lost` and of each of its parts in the time over whole epochs: `waiting`, `contention` and
    `epoch starts`.
    """

    real: Estimate | None
    ideal: Estimate | None
    loader_only: Estimate | None
    waiting: Estimate | None
    contention: Estimate | None
    starts: Estimate | None
    lost: Estimate | None
    speedup: Estimate | None
    steady_speedup: Estimate | None
    required: Estimate | None
    whole: Estimate | None
    real_wait: Estimate | None
    real_step: Estimate | None
    ideal_wait: Estimate | None
    pairs: int | None
    real_batches: int
    ideal_batches: int
    samples_per_batch: float | None
    unit: str
    of_epochs: bool
    epochs: int
    loads_ahead: bool
    gpu_idle: float | None
    lost_share: Estimate | None = field(init=False)
    shares: Mapping[str, float] = field(init=False)

    def __post_init__(self) -> None:
        lost_share = None if self.speedup is None else 1 - 1 / self.speedup
        parts = self.parts() if self.lost is None else [("lost", self.lost), *self.parts()]
        whole = self.whole.value if self.whole else 0.0
        shares = {name: part.value / whole for name, part in parts if whole}
        object.__setattr__(self, "lost_share", lost_share)
        object.__setattr__(self, "shares", shares)

    def __str__(self) -> str:
        """The speed-up and the parts of the time lost in one line."""
        if self.speedup is None or self.lost_share is None:
            real, ideal = self.real_batches, self.ideal_batches
            return f"not measured: {real:,} real and {ideal:,} ideal batches count so far"
        parts = ", ".join(f"{name} {whole_share(self.share(name))}" for name, _ in self.parts())
        lost = whole_share(self.lost_share.value)
        return f"{self.speedup:times} if loading were free: {lost} of the time lost ({parts})"

    def parts(self) -> list[tuple[str, Estimate]]:
        """What the time lost consists of."""
        parts = (self.waiting, self.contention, self.starts)
        named = zip(("waiting", "contention", "epoch starts"), parts, strict=True)
        return [(name, part) for name, part in named if part is not None]

    def share(self, name: str) -> float:
        """The share of the time, over whole epochs, that a part of it takes, or all that is lost.

        What was not measured takes 0.
        """
        return self.shares.get(name, 0.0)


def gap(run: Run, ideal: Run | None = None) -> Gap:
    """The gap in a run that alternated, or between one that loaded and one that replayed.

    Of a log by itself it has what can be known. Raises UsageError where the two are not real and
    ideal.
    """
    if ideal is not None:
        _check_arm(run, "real")
        _check_arm(ideal, "ideal")
    return gap_by(run, ideal, None)


@once_per_run
def gap_by(run: Run, ideal: Run | None, by_sample: bool | None) -> Gap:
    """The same with times per sample, or per batch: by default per sample where all are known."""
    alternates = run.header.mode == "alternate"
    arms = arms_of(run) if ideal is None else {**arms_of(run), **arms_of(ideal)}
    same_unit = ideal is None or run.header.unit == ideal.header.unit
    known = "real" in arms and all(map(samples_known, arms.values()))
    by_sample = same_unit and known and by_sample is not False
    tables = {name: with_amounts(arm, by_sample) for name, arm in arms.items()}
    counts = {name: len(tables[name]) if name in tables else 0 for name in ARMS}
    samples_per_batch = None
    if by_sample and counts["real"]:
        samples_per_batch = float(tables["real"].amount.sum()) / counts["real"]
    scale = samples_per_batch or 1.0

    starts = starts_of(run) if counts["real"] else None
    of_epochs = starts is not None and "pair" in starts
    length = length_of_epochs(run) or 1.0
    follow_size = alternates and not of_epochs and _follow_size(tables)  # else they are the same
    if starts is not None:
        pairs = pairs_that_count(run)
        number = np.searchsorted(pairs, starts.pair) if of_epochs else np.arange(len(starts))
        tables["starts"] = starts.replace(block=number, epochs=np.ones(len(starts)))

    def figures(tables: Mapping[str, Columns]) -> Sequence[float]:
        means = [mean * scale for mean in means_of(tables, follow_size)]
        starts = tables.get("starts")
        if starts is None:
            return *means, 0.0
        first = float(starts.batches.sum())
        beyond_ns = float(starts.ns.sum()) - first * (means[0] + means[1])
        return *means, beyond_ns / (first if of_epochs else length * float(starts.epochs.sum()))

    strata = _measured_together(tables, alternates, of_epochs)
    sampled = Jackknife(figures, tables, strata, by_sums=not follow_size)
    real_wait, real_step, ideal_wait, ideal_step, starts_ns = sampled.values

    def about(values: Values, positive: bool = False) -> Estimate | None:
        return None if math.isnan(values[0]) else sampled.estimate(values, positive=positive)

    real, ideal_ns = real_wait + real_step, ideal_wait + ideal_step
    waiting, contention, whole = real_wait - ideal_wait, real_step - ideal_step, real + starts_ns
    ideal_mean = about(ideal_ns, positive=True)
    loader_only = loader_alone(run, by_sample)
    loader_only = loader_alone(run, by_sample=False) if loader_only is None else loader_only * scale
    loads_ahead = 0 not in (run.loader.workers, run.loader.prefetch_depth)
    speedup, required = about(whole / ideal_ns, positive=True), None
    if speedup and loads_ahead and loader_only and loader_only.value and ideal_mean:
        required = loader_only / ideal_mean
    starts_mean = None if starts is None else about(starts_ns)
    if starts_mean and not of_epochs and len(tables["starts"]) == 1:
        starts_mean = Estimate(starts_mean.value)  # it counts as it was seen
    idle_ns = run.steps.gpu_idle_ns[steady(run, "real")]
    idle_ns = idle_ns[idle_ns != UNKNOWN]
    return Gap(
        real=about(real, positive=True),
        ideal=ideal_mean,
        loader_only=loader_only,
        waiting=about(waiting if "ideal" in arms else real_wait),
        contention=about(contention),
        starts=starts_mean,
        lost=about(waiting + contention + starts_ns),
        speedup=speedup,
        steady_speedup=about(real / ideal_ns, positive=True),
        required=required,
        whole=about(whole, positive=True),
        real_wait=about(real_wait),
        real_step=about(real_step),
        ideal_wait=about(ideal_wait),
        pairs=len(pairs_that_count(run)) if alternates else None,
        real_batches=counts["real"],
        ideal_batches=counts["ideal"],
        samples_per_batch=samples_per_batch,
        unit=run.header.unit,
        of_epochs=of_epochs,
        epochs=0 if starts is None else len(starts),
        loads_ahead=loads_ahead,
        gpu_idle=float(idle_ns.mean()) if len(idle_ns) else None,
    )


def throughput(run: Run, by_sample: bool) -> dict[str, Estimate]:
    """Samples, or batches, per second, as far as they were measured.

    `real` and `ideal` are those of the steady arms, `loader_only` of the loader alone, and `whole`
    of whole epochs with the real loader.
    """
    measured = gap_by(run, None, by_sample)
    per_batch = SECOND_NS * (measured.samples_per_batch or 1.0)
    alone = loader_alone(run, by_sample)
    whole = measured.whole if measured.epochs else None
    if whole and measured.epochs == 1:  # nothing tells by how much epoch starts differ
        whole = Estimate(whole.value)
    times_ns = {"real": measured.real, "ideal": measured.ideal, "whole": whole}
    rates = {name: per_batch / time_ns for name, time_ns in times_ns.items() if time_ns}
    return rates if not alone or not alone.value else {**rates, "loader_only": SECOND_NS / alone}


def _check_arm(run: Run, arm: Arm) -> None:
    arms = [ARMS[code] for code in np.unique(run.steps.arm)]
    if run.header.mode == "replay" and "ideal" in arms:
        arms = ["ideal"]  # the real batches before it count nowhere
    if run.header.mode == "alternate" or (arms and arms != [arm]):
        wanted = {"real": "mode='log'", "ideal": "mode='replay'"}[arm]
        advice = "Are the two the other way round, or the same one?"
        if run.header.mode == "alternate":
            advice = "An alternating run has both: give it alone."
        raise UsageError(
            f"{run.path or run.header.name} was recorded with mode={run.header.mode!r}; expected "
            f"a run with {wanted} as the {arm} one. {advice}"
        )


# The arms


@once_per_run
def arms_of(run: Run) -> dict[str, Columns]:
    """The batches that count, by arm: `wait_ns`, `step_ns`, `samples`, `nbytes` and `block`.

    `block` numbers the pairs of an alternating run, and `place` is where in it the batch comes.
    Where a device's clock told them, times are those of the device: it has no work in a wait, and
    then does what the step has queued. The host queues ahead of it, and its own times say little.
    """
    steps = run.steps
    names = ["wait_ns", "step_ns", "samples", "nbytes"]
    if run.header.mode != "alternate":
        rows = steady(run)
        name = "ideal" if run.header.mode == "replay" else "real"
        block = np.zeros(int(rows.sum()), np.int64)
        only = Columns({name: steps[name][rows] for name in names} | {"block": block})
        return {name: only} if len(only) else {}
    pairs = pairs_that_count(run)
    by_device = np.isin(steps.pair, pairs) & (steps.gpu_step_ns != UNKNOWN)
    if by_device.any():
        steps = steps.replace(wait_ns=steps.gpu_idle_ns, step_ns=steps.gpu_step_ns)
    arms: dict[str, Columns] = {}
    for arm in ARMS if len(pairs) else ():
        rows = steady(run, arm) & (by_device if by_device.any() else True)
        arms[arm] = Columns(
            {name: steps[name][rows] for name in names}
            | {
                "block": np.searchsorted(pairs, steps.pair[rows]),
                "place": np.flatnonzero(rows).astype(np.float64),
            }
        )
    return arms


def samples_known(arm: Columns) -> bool:
    """Whether all samples are known, and some are in each block."""
    known = len(arm) > 0 and bool((arm.samples != UNKNOWN).all())
    return known and bool(np.bincount(arm.block, arm.samples).all())


def with_amounts(arm: Columns, by_sample: bool) -> Columns:
    """The arm with what its times are divided by: samples, or batches."""
    batches = np.ones(len(arm))
    amount = arm.samples.astype(np.float64) if by_sample else batches
    placed = {"placed": arm.place * amount} if "place" in arm else {}
    return arm.replace(amount=amount, batches=batches, **placed)


def _measured_together(
    tables: Mapping[str, Columns], alternates: bool, of_epochs: bool
) -> list[tuple[str, ...]]:
    """The strata; none where there is too little for an interval."""
    arms = [name for name in ARMS if name in tables]
    starts = ("starts",) if "starts" in tables else ()
    if not arms or any(len(tables[name]) < FEWEST_TIMES for name in arms if not of_epochs):
        return []
    if alternates and tables["real"].block.max() + 1 < FEWEST_PAIRS:
        return []
    if of_epochs:
        return [(*arms, *starts)]
    strata: list[tuple[str, ...]] = [tuple(arms)] if alternates else [(name,) for name in arms]
    # Of one epoch its start counts as it was seen.
    return [*strata, starts] if starts and len(tables["starts"]) > 1 else strata


def means_of(tables: Mapping[str, Columns], follow_size: bool = False) -> list[float]:
    """The mean real wait and step, and the mean ideal ones, per sample or batch.

    They are ratios of sums, never means of ratios. Where both arms alternate, ideal blocks are
    interpolated at the places of the real batches.
    """
    real, ideal = tables.get("real"), tables.get("ideal")
    if follow_size and real is not None and ideal is not None:
        real, ideal = _at_same_size(real, ideal)
    means: list[float] = []
    for arm in (real, ideal):
        if arm is None or not (arm.wait_ns.any() or arm.step_ns.any()):
            means += [math.nan, math.nan]
            continue
        amount, times_ns = arm.amount, [arm.wait_ns, arm.step_ns]
        if arm is ideal and real is not None and "place" in arm:
            _, block = np.unique(arm.block, return_inverse=True)
            centres = np.bincount(block, arm.place) / np.bincount(block, arm.batches)
            of_blocks = [np.bincount(block, each) / np.bincount(block, amount) for each in times_ns]
            amount, places = real.amount, real.placed / real.amount
            times_ns = [amount * np.interp(places, centres, each) for each in of_blocks]
        means += [float(each.sum()) / float(amount.sum()) for each in times_ns]
    return means


# Batches of different sizes


def _follow_size(tables: Mapping[str, Columns]) -> bool:
    """Whether steps grow with the bytes of their batch, beyond chance and in both arms."""
    arms = [tables[name] for name in ARMS if name in tables]
    if any(len(arm) < FEWEST_SIZES or (arm.nbytes == UNKNOWN).any() for arm in arms):
        return False
    for arm in arms:
        of_size, of_step = _within_blocks(arm, arm.nbytes), _within_blocks(arm, arm.step_ns)
        slope, square = _slope(arm, "step_ns"), max(float((of_size**2).sum()), LEAST)
        rest = of_step - slope * of_size
        error = math.sqrt(float(((rest * of_size) ** 2).sum())) / square
        spread = math.sqrt(square / len(arm)) / max(float(arm.nbytes.mean()), 1.0)
        if spread < LEAST_SPREAD or slope <= BEYOND_CHANCE * error:
            return False
    return len(arms) == len(ARMS)


def _at_same_size(*arms: Columns) -> list[Columns]:
    """Both arms as if each batch had the mean size of all, for its samples.

    Each is moved along its own line over bytes (Lin, Annals of Applied Statistics 7, 2013).
    """
    size, amount = (sum(float(arm[name].sum()) for arm in arms) for name in ("nbytes", "amount"))

    def moved(arm: Columns, name: str) -> Values:
        above = arm.nbytes - size / amount * arm.amount
        return np.asarray(arm[name] - _slope(arm, name) * above)

    return [
        arm.replace(wait_ns=moved(arm, "wait_ns"), step_ns=moved(arm, "step_ns")) for arm in arms
    ]


def _slope(arm: Columns, name: str) -> float:
    """By how much times grow for each byte within blocks: drift moves whole blocks."""
    of_time, of_size = _within_blocks(arm, arm[name]), _within_blocks(arm, arm.nbytes)
    return float((of_time * of_size).sum()) / max(float((of_size**2).sum()), LEAST)


def _within_blocks(arm: Columns, values: Values) -> Values:
    """`values` without the mean, for each amount, of the block of each."""
    amount = np.bincount(arm.block, arm.amount)
    means = np.bincount(arm.block, values) / np.maximum(amount, LEAST)
    return np.asarray(values - means[arm.block] * arm.amount)


# The loader alone


@once_per_run
def loader_alone(run: Run, by_sample: bool) -> Estimate | None:
    """What a sample, or a batch, takes the loader with nobody training; None: not timed.

    None too where its samples are not known, and are asked for. Copying a batch is part of the time
    where workers load meanwhile, so waits are stretched to what all of them took together.
    """
    timed = [each for each in run.prefetches if each.timed and not each.instrumented]
    if not timed or (by_sample and not all(prefetch.samples for prefetch in timed)):
        return None
    total_ns, amount, block = [], [], []
    for number, prefetch in enumerate(timed):
        waits_ns = np.array(prefetch.waits_ns[-prefetch.timed :], dtype=np.float64)
        if len(waits_ns) < prefetch.timed or not waits_ns.any():
            waits_ns = np.ones(1)
        size = float((by_sample and prefetch.samples) or prefetch.timed)
        total_ns.append(waits_ns * (prefetch.elapsed_ns / waits_ns.sum()))
        amount.append(np.full(len(waits_ns), size / len(waits_ns)))
        block.append(np.full(len(waits_ns), number))
    columns = {"total_ns": total_ns, "amount": amount, "block": block}
    return mean_of(Columns({name: np.concatenate(parts) for name, parts in columns.items()}))


def mean_of(times: Columns, *, positive: bool = True) -> Estimate:
    """The mean of `total_ns` for each `amount`, the ratio of their sums: see Jackknife."""

    def mean(tables: Mapping[str, Columns]) -> Sequence[float]:
        return [float(tables["times"].total_ns.sum() / tables["times"].amount.sum())]

    strata = [("times",)] if len(times) >= FEWEST_TIMES else []
    sampled = Jackknife(mean, {"times": times}, strata)
    return sampled.estimate(sampled.values[0], positive=positive)
