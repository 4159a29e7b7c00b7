"""Real against ideal loading: how much time a training loses to it, and to what.

    iteration = wait + step, the means per sample of what counts
    lost      = real - ideal, of whole epochs
              = waiting + contention + epoch starts

Where both arms alternate in one run, each real time stands beside the ideal iteration at its place
in the run, interpolated between the ideal blocks around it: what slows both is gone. Every figure
is calculated with all that was measured, and without each pair: see `jackknife`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from loadeval.data.columns import UNKNOWN, Columns, mean_known
from loadeval.data.run import ARMS, SECOND_NS, Run
from loadeval.errors import UsageError
from loadeval.estimate.stats import Estimate, Tables, jackknife
from loadeval.estimate.steady import (
    length_of_epochs,
    once_per_run,
    pairs_that_count,
    starts_of,
    steady,
)
from loadeval.words import whole_share

FEWEST_TIMES, FEWEST_PAIRS = 8, 2
"""Fewer batches of an arm, or pairs, have no interval. The second pair has its arms reversed."""
NEVER_NEGATIVE = ("real", "ideal", "whole", "speedup", "steady_speedup")


@dataclass(frozen=True, slots=True)
class Gap:
    """What data loading costs: times in nanoseconds per batch of the real arm.

    `real` and `ideal` are the steady iterations, `loader_only` a batch of the loader alone, and
    `whole` a real one over whole epochs: `starts` is what their starts and ends add. `lost` =
    `whole` - `ideal` is the sum of `waiting`, the difference of the waits, `contention`, that of
    the steps, and `starts`. Each may be negative: a step that ends by waiting for a device is
    shorter where that had work during the wait, and first batches may come faster than later ones.
    `lost_share` is the share of the time that is lost, 1 - 1 / `speedup`. `speedup` = `whole` /
    `ideal` is how many times as fast training would be if loading were free, `steady_speedup` =
    `real` / `ideal`, and `required` = `loader_only` / `ideal` how many times as fast the loader
    alone would have to be; None for one that loads nothing while a step runs.

    What was not measured is None. Of a log by itself `waiting` is all of the wait, and nothing is
    ideal. `pairs` is None unless the run alternated; `epochs` is how many were seen to start.
    `samples_per_batch` is None where arms are compared by batch. `gpu_idle` is how long the
    training's stream had no work in the wait for a real batch.
    """

    real: Estimate | None
    ideal: Estimate | None
    loader_only: Estimate | None
    waiting: Estimate | None
    contention: Estimate | None
    starts: Estimate | None
    whole: Estimate | None
    lost: Estimate | None
    lost_share: Estimate | None
    speedup: Estimate | None
    steady_speedup: Estimate | None
    required: Estimate | None
    real_wait: Estimate | None
    real_step: Estimate | None
    ideal_wait: Estimate | None
    pairs: int | None
    real_batches: int
    ideal_batches: int
    samples_per_batch: float | None
    epochs: int
    gpu_idle: float | None

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
        parts = {
            "waiting": self.waiting,
            "contention": self.contention,
            "epoch starts": self.starts,
        }
        return [(name, part) for name, part in parts.items() if part is not None]

    def share(self, name: str) -> float:
        """The share of the time, over whole epochs, that a part of it takes, or all that is lost.

        What was not measured takes 0.
        """
        part = dict(self.parts()).get(name, self.lost if name == "lost" else None)
        return part.value / self.whole.value if part and self.whole and self.whole.value else 0.0


@once_per_run
def gap(run: Run, ideal: Run | None = None) -> Gap:
    """The gap in a run that alternated, or between one that loaded and one that replayed.

    Of a log by itself it has what can be known. Times are per sample where all are known, and then
    of a batch of the mean size. Raises UsageError where the two are not real and ideal.
    """
    if ideal is not None:
        _check_modes(run, ideal)
    alternates = run.header.mode == "alternate"
    tables = arms_of(run) | ({} if ideal is None else arms_of(ideal))
    counts = {arm: len(tables.get(arm, ())) for arm in ARMS}
    size = None
    count_alike = ideal is None or run.header.unit == ideal.header.unit
    if counts["real"] and count_alike and all(map(samples_known, tables.values())):
        size = float(tables["real"].samples.mean())
    starts, length = starts_of(run) if counts["real"] else None, length_of_epochs(run) or 1.0
    of_epochs = starts is not None and "pair" in starts
    if starts is not None:
        block = np.arange(len(starts))
        if of_epochs:
            block = np.searchsorted(pairs_that_count(run), starts.pair)
        tables["starts"] = starts.replace(block=block)

    def figures(tables: Tables) -> dict[str, float]:
        means = np.array(means_of(tables, by_sample=size is not None)) * (size or 1.0)
        real_wait, real_step, ideal_wait, ideal_step = means
        real, ideal = real_wait + real_step, ideal_wait + ideal_step
        waiting, contention, beyond = real_wait - ideal_wait, real_step - ideal_step, 0.0
        if starts is not None:
            first = tables["starts"].batches.sum()
            epochs = first if of_epochs else length * tables["starts"].epochs.sum()
            beyond = (tables["starts"].ns.sum() - first * real) / epochs
        return {
            "real": real,
            "ideal": ideal,
            "waiting": waiting if counts["ideal"] else real_wait,
            "contention": contention,
            "starts": math.nan if starts is None else beyond,
            "whole": real + beyond,
            "lost": waiting + contention + beyond,
            "speedup": (real + beyond) / ideal,
            "steady_speedup": real / ideal,
            "real_wait": real_wait,
            "real_step": real_step,
            "ideal_wait": ideal_wait,
        }

    made = jackknife(figures, tables, _strata(tables, alternates, of_epochs), NEVER_NEGATIVE)
    if starts is not None and len(starts) == 1 and not of_epochs:
        made["starts"] = Estimate(made["starts"].value)  # it counts as it was seen
    known = {name: None if math.isnan(each.value) else each for name, each in made.items()}
    speedup, ideal_time, alone = known["speedup"], known["ideal"], _loader_alone(run, size)
    loads_ahead = 0 not in (run.loader.workers, run.loader.prefetch_depth)
    required = None
    if loads_ahead and speedup and ideal_time and alone and alone.value:
        required = alone / ideal_time
    return Gap(
        **known,
        loader_only=alone,
        lost_share=1 - 1 / speedup if speedup else None,
        required=required,
        pairs=len(pairs_that_count(run)) if alternates else None,
        real_batches=counts["real"],
        ideal_batches=counts["ideal"],
        samples_per_batch=size,
        epochs=0 if starts is None else len(starts),
        gpu_idle=mean_known(run.steps.gpu_idle_ns[steady(run, "real")]),
    )


def throughput(gap: Gap, by_sample: bool = True) -> dict[str, Estimate]:
    """Samples, or batches of the mean size, per second, as far as they were measured.

    `real` and `ideal` are those of the steady arms, `loader_only` of the loader alone, and `whole`
    of whole epochs with the real loader.
    """
    whole = gap.whole if gap.epochs else None
    if whole and gap.epochs == 1:  # nothing tells by how much epoch starts differ
        whole = Estimate(whole.value)
    times_ns = {
        "real": gap.real,
        "ideal": gap.ideal,
        "whole": whole,
        "loader_only": gap.loader_only,
    }
    amount = SECOND_NS * ((by_sample and gap.samples_per_batch) or 1.0)
    return {name: amount / each for name, each in times_ns.items() if each and each.value}


def _check_modes(real: Run, ideal: Run) -> None:
    for run, expected in ((real, "log"), (ideal, "replay")):
        if run.header.mode != expected:
            raise UsageError(
                f"{run.path or run.header.name} was recorded with mode={run.header.mode!r}; "
                "expected a run with mode='log', and then one with mode='replay'; or one with "
                "mode='alternate' alone"
            )


# The arms


@once_per_run
def arms_of(run: Run) -> dict[str, Columns]:
    """The batches that count, by arm: `wait_ns`, `step_ns`, `samples`, `batches` and `block`.

    `block` numbers the pairs of an alternating run, and `place` is where in it the batch comes.
    Where a device's clock told them, times are those of the device: it has no work in a wait, and
    then does what the step has queued. The host queues ahead of it, and its own times say little.
    """
    steps, pairs, alternates = run.steps, pairs_that_count(run), run.header.mode == "alternate"
    if alternates and not len(pairs):
        return {}
    by_device = np.isin(steps.pair, pairs) & (steps.gpu_step_ns != UNKNOWN)
    if by_device.any():
        steps = steps.replace(wait_ns=steps.gpu_idle_ns, step_ns=steps.gpu_step_ns)
    arms: dict[str, Columns] = {}
    for arm in {"log": ARMS[:1], "replay": ARMS[1:]}.get(run.header.mode, ARMS):
        rows = steady(run, arm) & (by_device if by_device.any() else True)
        if rows.any():
            columns = {name: steps[name][rows] for name in ("wait_ns", "step_ns", "samples")}
            columns["block"] = np.searchsorted(pairs, steps.pair[rows])
            columns["batches"] = np.ones(len(columns["block"]))
            if alternates:
                columns["place"] = np.flatnonzero(rows).astype(np.float64)
            arms[arm] = Columns(columns)
    return arms


def samples_known(arm: Columns) -> bool:
    """Whether all samples are known, and some are in each block."""
    are_known = (arm.samples != UNKNOWN).all()
    return bool(are_known and np.bincount(arm.block, arm.samples).all())


def _strata(tables: Tables, alternates: bool, of_epochs: bool) -> list[tuple[str, ...]]:
    """What was measured together; nothing where there is too little for an interval."""
    arms = [name for name in ARMS if name in tables]
    is_short = any(len(tables[name]) < FEWEST_TIMES for name in arms) and not of_epochs
    if not arms or is_short or (alternates and tables["real"].block.max() + 1 < FEWEST_PAIRS):
        return []
    if of_epochs:
        return [(*arms, "starts")]
    strata: list[tuple[str, ...]] = [tuple(arms)] if alternates else [(name,) for name in arms]
    # Of one epoch its start counts as it was seen.
    return [*strata, ("starts",)] if len(tables.get("starts", ())) > 1 else strata


def means_of(tables: Tables, *, by_sample: bool) -> list[float]:
    """The mean real wait and step, and the mean ideal ones, per sample or batch.

    They are ratios of sums, never means of ratios. Where both arms alternate, ideal blocks are
    interpolated at the places of the real batches.
    """
    real, ideal = tables.get("real"), tables.get("ideal")
    means: list[float] = []
    for arm in (real, ideal):
        if arm is None or not (arm.wait_ns.any() or arm.step_ns.any()):
            means += [math.nan, math.nan]
            continue
        unit = "samples" if by_sample else "batches"
        amount, times_ns = arm[unit], [arm.wait_ns, arm.step_ns]
        if arm is ideal and real is not None and "place" in arm:
            _, block = np.unique(arm.block, return_inverse=True)
            centres = np.bincount(block, arm.place) / np.bincount(block, arm.batches)
            of_blocks = [np.bincount(block, each) / np.bincount(block, amount) for each in times_ns]
            amount, places = real[unit], real.place / real.batches
            times_ns = [amount * np.interp(places, centres, each) for each in of_blocks]
        means += [float(each.sum()) / float(amount.sum()) for each in times_ns]
    return means


# The loader alone


def _loader_alone(run: Run, size: float | None) -> Estimate | None:
    """What a batch, of `size` samples where that is known, takes the loader with nobody training.

    None: not timed. Copying a batch is part of the time where workers load meanwhile, so waits are
    stretched to what all of them took together.
    """
    timed = [each for each in run.prefetches if each.timed and not each.instrumented]
    if not timed:
        return None
    by_sample = size is not None and all(prefetch.samples for prefetch in timed)
    tables = []
    for number, prefetch in enumerate(timed):
        waits_ns = np.array(prefetch.waits_ns[-prefetch.timed :], dtype=np.float64)
        if not waits_ns.any():
            waits_ns = np.ones(1)
        amount = float((by_sample and prefetch.samples) or prefetch.timed)
        columns = {
            "total_ns": waits_ns * (prefetch.elapsed_ns / waits_ns.sum()),
            "amount": np.full(len(waits_ns), amount / len(waits_ns)),
            "block": np.full(len(waits_ns), number),
        }
        tables.append(Columns(columns))
    alone = mean_of(Columns.concat(tables))
    return alone * size if by_sample and size else alone


def mean_of(times: Columns) -> Estimate:
    """The mean of `total_ns` for each `amount`, the ratio of their sums: see jackknife."""

    def figures(tables: Tables) -> dict[str, float]:
        return {"mean": float(tables["times"].total_ns.sum() / tables["times"].amount.sum())}

    strata = [("times",)] if len(times) >= FEWEST_TIMES else []
    return jackknife(figures, {"times": times}, strata, ("mean",))["mean"]
