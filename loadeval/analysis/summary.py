"""The steady part of a run, its rates and quantiles, and its whole epochs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.intervals import MeanError
from loadeval.analysis.stats import quantiles
from loadeval.runlog.blocks import whole_epochs
from loadeval.runlog.columns import UNKNOWN
from loadeval.runlog.histogram import dense
from loadeval.runlog.model import ARMS, SECOND_NS

if TYPE_CHECKING:
    import numpy.typing as npt

    from loadeval.analysis.stats import Series
    from loadeval.runlog.columns import Column
    from loadeval.runlog.model import Aggregate, Arm, Run, Window

QUANTILES = (0.5, 0.95, 0.99)
OUTLIER_TIMES_MEDIAN = 2
"""An iteration (wait + step) that counts is an outlier over so many times its arm's median."""
HIDDEN_SHARE = 0.5
"""Of the waits: when the GPU was idle for less of them, they tell little of what was lost."""
LEAST_WAIT_SHARE = 0.01
"""Of the iterations: less waiting needs no explanation."""
WITHIN_STEP = "within a step"
"""The kind of an event that tells what else than training was done in a step."""
MOST_LEFT_OUT = 0.2
"""Of the steps: what happens in more of them is a part of training."""
FEWEST_LEFT = 3
"""Epochs that training left before their end, before that is taken for their length."""
FEWEST_FOR_OUTLIERS = 20
"""Iterations before which that median is not trusted."""


@dataclass(frozen=True, slots=True)
class Waits:
    """How long the consumer was blocked for a batch, in nanoseconds, over some batches.

    Of a run that keeps one batch in N, the quantiles are read from bins: the wait that each is
    named for is in the same bin, a sixteenth of it away at most. The others are exact.
    """

    mean_ns: float
    p50_ns: float
    p95_ns: float
    p99_ns: float
    max_ns: int


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run's batches add up to. What cannot be known is None.

    `batches` and `epochs` count all that were delivered. `epoch_start_ns` is the first wait of
    each epoch that shows what its first batch costs. Everything from `steady_batches` on is of
    the steady part alone: batches whose step was closed, without the first `warmup` of each
    epoch; in an alternating run, those that count for a pair. Rates are sums over sums, so
    that a short last batch counts for what it is: `batches_per_s` and `samples_per_s`, the
    latter None when the samples of a steady batch are unknown. `wait_share` is the part of the
    iterations that was waited, 0 to 1. `bytes_per_batch` is a mean over batches whose bytes were
    counted, each standing for those after it whose were not; of a run that keeps one batch in N,
    where they were not of all, over those that are kept.
    """

    batches: int
    epochs: int
    epoch_start_ns: tuple[int, ...]
    steady_batches: int
    iteration_ns: float | None
    wait_ns: float | None
    step_ns: float | None
    wait_share: float | None
    waits: Waits | None
    samples_per_batch: float | None
    bytes_per_batch: float | None
    batches_per_s: float | None
    samples_per_s: float | None


def steady(run: Run, arm: Arm | None = None) -> npt.NDArray[np.bool_]:
    """Which batches of `run` are steady: a mask over its steps.

    Of an alternating run these are the counted ones of `arm`; by default the real one's, or
    the ideal one's where the real one has none. Of a replay they are those that were kept.
    """
    steps, closed = run.steps, closed_steps(run)
    if run.header.mode == "alternate":
        counted: npt.NDArray[np.bool_] = (steps.pair != UNKNOWN) & closed
        code = steps.arm[counted].min(initial=len(ARMS)) if arm is None else ARMS.index(arm)
        of_one: npt.NDArray[np.bool_] = steps.arm == code
        return counted & of_one
    if arm is None and run.header.mode == "replay":
        arm = "ideal"
    settled: npt.NDArray[np.bool_] = steps.batch >= warmup_of(run)
    of_arm: npt.NDArray[np.bool_] = steps.arm == (steps.arm if arm is None else ARMS.index(arm))
    return settled & closed & of_arm


def closed_steps(run: Run) -> npt.NDArray[np.bool_]:
    """Which steps are known, and were of training alone: see `steps_left_out`."""
    closed: npt.NDArray[np.bool_] = run.steps.step_ns != UNKNOWN
    closed[steps_left_out(run)] = False
    return closed


def steps_left_out(run: Run) -> npt.NDArray[np.intp]:
    """The rows of steps in which training did something else, such as an evaluation.

    None where it does so in many steps: then it is part of them.
    """
    times_ns = np.array([one.time_ns for one in run.events if one.kind == WITHIN_STEP], np.int64)
    steps, begin_ns = run.steps, run.steps.request_ns + run.steps.wait_ns
    if not len(times_ns) or not len(steps):
        return np.empty(0, np.intp)
    order = np.argsort(begin_ns, kind="stable")
    at = np.searchsorted(begin_ns[order], times_ns, side="right") - 1
    row = order[np.maximum(at, 0)]
    is_within = (times_ns >= begin_ns[row]) & (times_ns < (begin_ns + steps.step_ns)[row])
    rows = np.unique(row[is_within])
    return rows if len(rows) <= MOST_LEFT_OUT * len(steps) else rows[:0]


def whole_windows(run: Run, arm: Arm) -> list[Window]:
    """The windows of one arm in which training did nothing else."""
    steps, rows = run.steps, steps_left_out(run)
    gone = set(zip(steps.pair[rows].tolist(), steps.epoch[rows].tolist(), strict=True))
    return [one for one in run.windows if one.arm == arm and (one.pair, one.epoch) not in gone]


def warmup_of(run: Run) -> int:
    """How many batches at the start of each epoch are not steady.

    Where epochs are over before the loader's queue is full it is the first one, if there are more,
    unless another number was asked for.
    """
    warmup, lengths = run.header.warmup, epoch_lengths(run)
    longest = max(lengths.values(), default=0)
    if longest > warmup or warmup > (run.header.loader.prefetch_depth or 0) + 2:
        return warmup
    known = usual_length(run) or run.header.loader.length or warmup + 1
    are_short = len(lengths) > 1 and known <= warmup
    return min(longest - 1, 1) if are_short else warmup


def usual_length(run: Run) -> float | None:
    """How many batches an epoch has, as far as it shows: by those that were served to their end.

    Or by those that training left, where it left several; None where neither is known.
    """
    lengths, by_cause = epoch_lengths(run), dict[str, list[int]]()
    for end in run.ends:
        by_cause.setdefault(end.cause, []).append(lengths.get(end.epoch, 0))
    if whole := by_cause.get("exhausted"):
        return sum(whole) / len(whole)
    left = by_cause.get("broken off", [])
    return float(np.median(left)) if len(left) >= FEWEST_LEFT else None


def steady_aggregates(run: Run) -> list[Aggregate]:
    """The aggregates of the steady batches of a run that keeps one batch in N."""
    warmup = warmup_of(run)
    settled = (aggregate for aggregate in run.aggregates if aggregate.first >= warmup)
    return [aggregate for aggregate in settled if aggregate.step_ns is not None]


def epoch_start_waits(run: Run) -> Column:
    """The first wait of each epoch that began with the loader itself, not with kept batches.

    A replayed run has nothing but kept batches, and its first waits are told as they are. An
    epoch whose first batch was ready when the loader was wrapped has no epoch start to tell.
    """
    steps = run.steps
    first = steps.batch == 0
    if run.header.loader.ready_batches:
        first &= steps.epoch > 0
    if run.header.mode == "alternate":
        first &= steps.arm == ARMS.index("real")
    waits: Column = steps.wait_ns[first]
    return waits


def summarise(run: Run, arm: Arm | None = None) -> Summary:
    """The figures of `run`; of an alternating one those of one `arm`, as in `steady`."""
    found = _of_aggregates(run) if run.header.every > 1 else _of_steps(run, arm)
    total_ns = found.wait_ns + found.step_ns
    count, samples = found.batches, found.samples
    return Summary(
        batches=run.batches,
        epochs=len(np.unique(run.steps.epoch)),
        epoch_start_ns=tuple(epoch_start_waits(run).tolist()),
        steady_batches=count,
        iteration_ns=_ratio(total_ns, count),
        wait_ns=_ratio(found.wait_ns, count),
        step_ns=_ratio(found.step_ns, count),
        wait_share=_ratio(found.wait_ns, total_ns),
        waits=found.waits,
        samples_per_batch=_ratio(samples, count),
        bytes_per_batch=found.bytes_per_batch,
        batches_per_s=_ratio(count * SECOND_NS, total_ns),
        samples_per_s=None if samples is None else _ratio(samples * SECOND_NS, total_ns),
    )


@dataclass(frozen=True, slots=True)
class Spent:
    """What training spent its time on, over all `batches` that it got from the loader itself.

    In nanoseconds: `first_wait_ns` for the first batch of each epoch, `wait_ns` for the others,
    and `step_ns` on its steps, of which one may still have been open.
    """

    batches: int
    first_wait_ns: int
    wait_ns: int
    step_ns: int

    @property
    def total_ns(self) -> int:
        """All of it."""
        return self.first_wait_ns + self.wait_ns + self.step_ns


def spent(run: Run) -> Spent:
    """Of a run that loaded."""
    first_wait_ns = int(epoch_start_waits(run).sum())
    if run.header.every > 1:
        waits = sum(one.wait_ns for one in run.aggregates)
        step_ns = sum(one.step_ns or 0 for one in run.aggregates)
        return Spent(run.batches, first_wait_ns, waits - first_wait_ns, step_ns)
    rows = run.steps.arm == ARMS.index("real")
    wait_ns, step_ns = int(run.steps.wait_ns[rows].sum()), run.steps.step_ns[rows]
    known_ns = int(step_ns[step_ns != UNKNOWN].sum())
    return Spent(int(rows.sum()), first_wait_ns, wait_ns - first_wait_ns, known_ns)


@dataclass(frozen=True, slots=True)
class GpuWait:
    """The mean wait for a batch that counts, and how long the device had no work in it.

    `hidden` tells whether most of the waits cost nothing, for the device had work.
    """

    wait_ns: float
    gpu_idle_ns: float
    hidden: bool


def gpu_wait(run: Run, arm: Arm) -> GpuWait | None:
    """The waits of one arm as its device saw them; None where no device's clock told."""
    steps = run.steps
    rows = steady(run, arm) & (steps.gpu_idle_ns != UNKNOWN)
    if not rows.any():
        return None
    wait_ns, step_ns, idle_ns = (
        float(column[rows].mean()) for column in (steps.wait_ns, steps.step_ns, steps.gpu_idle_ns)
    )
    matters = wait_ns > LEAST_WAIT_SHARE * (wait_ns + step_ns)
    return GpuWait(wait_ns, idle_ns, matters and idle_ns < HIDDEN_SHARE * wait_ns)


@dataclass(frozen=True, slots=True)
class Epochs:
    """Means over epochs; None is not known.

    `batches` is the `usual_length` of one, `epoch_start_ns` its first wait, and `end_ns` the wait
    that ends it, known of epochs that were served to their end.
    """

    batches: float | None
    epoch_start_ns: float | None
    end_ns: float | None


def epochs_of(run: Run) -> Epochs:
    """The epochs of a run that loaded."""
    ends, length = _ends_ns(run), run.header.loader.length
    return Epochs(
        batches=usual_length(run) or (float(length) if length else None),
        epoch_start_ns=_mean(epoch_start_waits(run).tolist()),
        end_ns=_mean([wait_ns for wait_ns in ends.values() if wait_ns is not None]),
    )


def _ends_ns(run: Run) -> dict[int, int | None]:
    """How long each epoch that was served to its end took to end, None where that is not known."""
    found = {end.epoch: end.wait_ns for end in run.ends if end.cause == "exhausted"}
    prefetched = {one.epoch: one.end_ns for one in run.prefetches if one.end_ns is not None}
    return found | {epoch: prefetched[epoch] for epoch in found.keys() & prefetched.keys()}


@dataclass(frozen=True, slots=True, eq=False)
class EpochStarts:
    """What the first batches and the end of an epoch take: entries for each that was seen to start.

    `batches` is the mean length of an epoch. `first_batches` are those at its start whose waits
    and steps, and the wait that ends the epoch, take `first_ns`. Where epochs are blocks of an
    alternating run, these are all of their batches, and `pair` has the pair of each.
    """

    batches: float
    first_batches: Series
    first_ns: Series
    pair: Column | None = None

    @property
    def epochs(self) -> int:
        """How many were seen to start."""
        return len(self.first_ns)

    @property
    def steady_part(self) -> float:
        """The part of an epoch's batches that comes after the first ones."""
        return max(1 - float(self.first_batches.mean()) / self.batches, 0.0)

    def added_ns(self, real_ns: float) -> float:
        """What is added to the steady iteration `real_ns`, per batch of an epoch."""
        return float(self._beyond(real_ns).mean())

    def error(self, real_ns: float) -> MeanError | None:
        """The error of `added_ns`, by what epochs differ; None where only one was seen."""
        if self.epochs == 1:
            return None
        variance = float(self._beyond(real_ns).var(ddof=1)) / self.epochs
        return MeanError(variance, self.epochs - 1)

    def _beyond(self, real_ns: float) -> Series:
        return (self.first_ns - self.first_batches * real_ns) / self.batches


def epoch_starts_of(run: Run) -> EpochStarts | None:
    """Those of a run that loaded; None where none was seen, or an epoch's length is not known.

    The first batches are those that the steady part leaves out, as far as they were served in
    order, before anything was prefetched.
    """
    epochs = epochs_of(run)
    whole = _whole_starts(run, epochs.end_ns or 0.0)
    if whole is not None or epochs.batches is None:
        return whole
    ends, found = _ends_ns(run), []
    for epoch, (batches, batches_ns) in _first_batches(run).items():
        end_ns = ends.get(epoch)
        if epoch or not run.header.loader.ready_batches:
            found.append(
                (batches, batches_ns + (epochs.end_ns or 0.0 if end_ns is None else end_ns))
            )
    if not found:
        return None
    first_batches, first_ns = np.array(found, dtype=np.float64).T
    return EpochStarts(epochs.batches, first_batches, first_ns)


def _whole_starts(run: Run, usual_end_ns: float) -> EpochStarts | None:
    """Those of real epochs that are blocks; None where there are none.

    A step that is left out, or was open when its epoch was broken off, is taken to be like others.
    """
    steps, ends, found = run.steps, _ends_ns(run), []
    is_real, closed = steps.arm == ARMS.index("real"), closed_steps(run)
    for epoch, pair in whole_epochs(run).items():
        rows = np.flatnonzero((steps.epoch == epoch) & is_real)
        if not len(rows):
            continue
        known_ns = steps.step_ns[rows][closed[rows]]
        step_ns = float(known_ns.mean()) if len(known_ns) else 0.0
        end_ns = ends.get(epoch)
        elapsed_ns = float(steps.wait_ns[rows].sum()) + len(rows) * step_ns
        elapsed_ns += usual_end_ns if end_ns is None else end_ns
        found.append((len(rows), elapsed_ns, pair))
    if not found:
        return None
    batches, elapsed, pairs = np.array(found, dtype=np.float64).T
    return EpochStarts(float(batches.mean()), batches, elapsed, pairs.astype(np.int64))


def _first_batches(run: Run) -> dict[int, tuple[int, int]]:
    """By epoch, how many batches it was seen to begin with, and their waits and steps."""
    found: dict[int, tuple[int, int]] = {}
    first = warmup_of(run)
    if run.header.mode == "alternate":
        first = max(first, 1)
    if not first:  # they are part of the steady one
        return dict.fromkeys(epoch_lengths(run), (0, 0))
    for aggregate in run.aggregates:
        if aggregate.first < first and aggregate.step_ns is not None:
            batches, first_ns = found.get(aggregate.epoch, (0, 0))
            first_ns += aggregate.wait_ns + aggregate.step_ns
            found[aggregate.epoch] = batches + aggregate.batches, first_ns
    if run.header.every > 1:
        return found
    steps = run.steps
    plain = (steps.arm == ARMS.index("real")) & closed_steps(run)
    for epoch in np.unique(steps.epoch).tolist():
        rows = np.flatnonzero((steps.epoch == epoch) & (steps.batch < first))
        rows = rows[np.logical_and.accumulate(plain[rows])]
        if len(rows):
            found[epoch] = len(rows), int((steps.wait_ns + steps.step_ns)[rows].sum())
    return found


def epoch_lengths(run: Run) -> dict[int, int]:
    """How many batches each epoch had, as far as they are recorded."""
    if run.header.every == 1:
        numbers, counts = np.unique(run.steps.epoch, return_counts=True)
        return dict(zip(numbers.tolist(), counts.tolist(), strict=True))
    found: dict[int, int] = {}
    for aggregate in run.aggregates:
        found[aggregate.epoch] = found.get(aggregate.epoch, 0) + aggregate.batches
    return found


def numbers_in_run(run: Run) -> Column:
    """Each row's number among all batches of the run, from 0, its epochs one after the other."""
    if run.header.every == 1:
        return np.arange(len(run.steps))
    found, before = epoch_lengths(run), 0
    numbers = run.steps.batch.copy()
    for epoch in np.unique(run.steps.epoch).tolist():
        numbers[run.steps.epoch == epoch] += before
        before += found.get(epoch, 0)
    return numbers


@dataclass(frozen=True, slots=True)
class _Sums:
    """What the steady batches add up to; None is not known."""

    batches: int
    wait_ns: int
    step_ns: int
    samples: int | None
    bytes_per_batch: float | None
    waits: Waits | None


def _of_steps(run: Run, arm: Arm | None) -> _Sums:
    steps = run.steps
    chosen = steady(run, arm)
    wait_ns = steps.wait_ns[chosen]
    return _Sums(
        batches=len(wait_ns),
        wait_ns=int(wait_ns.sum()),
        step_ns=int(steps.step_ns[chosen].sum()),
        samples=_total(steps.samples[chosen]),
        bytes_per_batch=_mean_of_known(steps.nbytes[chosen]),
        waits=_waits(wait_ns),
    )


def _of_aggregates(run: Run) -> _Sums:
    aggregates = steady_aggregates(run)
    wait_ns = sum(aggregate.wait_ns for aggregate in aggregates)
    batches = sum(aggregate.batches for aggregate in aggregates)
    samples = [one.samples for one in aggregates]
    nbytes = [one.nbytes for one in aggregates if one.nbytes is not None]
    all_known = batches and len(nbytes) == len(aggregates)
    of_kept = run.steps.nbytes[steady(run)]
    return _Sums(
        batches=batches,
        wait_ns=wait_ns,
        step_ns=sum(aggregate.step_ns or 0 for aggregate in aggregates),
        samples=None if None in samples else sum(count or 0 for count in samples),
        bytes_per_batch=sum(nbytes) / batches if all_known else _mean_of_known(of_kept),
        waits=_binned(aggregates, wait_ns / batches) if aggregates else None,
    )


def _binned(aggregates: list[Aggregate], mean_ns: float) -> Waits:
    bins = np.concatenate([aggregate.wait_bins for aggregate in aggregates])
    counts = dense(bins, np.concatenate([aggregate.wait_counts for aggregate in aggregates]))
    shortest_ns = min(aggregate.shortest_wait_ns for aggregate in aggregates)
    longest_ns = max(aggregate.longest_wait_ns for aggregate in aggregates)
    p50, p95, p99 = np.clip(quantiles(counts, QUANTILES), shortest_ns, longest_ns).tolist()
    return Waits(mean_ns, p50, p95, p99, longest_ns)


def _total(column: Column) -> int | None:
    return None if (column == UNKNOWN).any() else int(column.sum())


def _mean_of_known(column: Column) -> float | None:
    """The mean of `column`, where each value goes on until the next one that is known."""
    known = np.flatnonzero(column != UNKNOWN)
    if not len(known):
        return None
    lasting = np.diff(known, append=len(column))
    return float((column[known] * lasting).sum() / lasting.sum())


def _ratio(part: int | None, whole: int) -> float | None:
    return None if part is None or whole == 0 else part / whole


def _waits(wait_ns: Column) -> Waits | None:
    if not len(wait_ns):
        return None
    p50, p95, p99 = np.quantile(wait_ns, QUANTILES).tolist()
    return Waits(float(wait_ns.mean()), p50, p95, p99, int(wait_ns.max()))


def _mean(values: list[int]) -> float | None:
    return sum(values) / len(values) if values else None


@dataclass(frozen=True, slots=True, eq=False)
class ArmIterations:
    """The iterations of one arm that count, as rows of the run's steps, and which are outliers."""

    arm: Arm
    rows: npt.NDArray[np.intp]
    outliers: npt.NDArray[np.intp]
    median_ns: float


def iterations_of(run: Run) -> list[ArmIterations]:
    """Of each arm of `run` that has any; none is an outlier of fewer than FEWEST_FOR_OUTLIERS."""
    found = []
    iteration_ns = run.steps.wait_ns + run.steps.step_ns
    for code, arm in enumerate(ARMS):
        rows = np.flatnonzero(steady(run, arm) & (run.steps.arm == code))
        if len(rows):
            median_ns = float(np.median(iteration_ns[rows]))
            slow = iteration_ns[rows] > OUTLIER_TIMES_MEDIAN * median_ns
            trusted = len(rows) >= FEWEST_FOR_OUTLIERS and median_ns > 0
            found.append(ArmIterations(arm, rows, rows[slow] if trusted else rows[:0], median_ns))
    return found
