"""What was read beside the times: system metrics, padding in batches, and who uses the CPUs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from loadeval.data.columns import UNKNOWN, Column
from loadeval.data.lines import Arm
from loadeval.data.run import ARMS, REAL, SECOND_NS, Run, host_values, keys_of
from loadeval.estimate.stats import Estimate, slope, student
from loadeval.estimate.steady import Mask, after_warmup, closed_steps, once_per_run, whole_windows

ByArm: TypeAlias = Mapping[Arm, float | None]
THREADS = "threads"
"""The probe with many subjects, which `inside.operators` has in a table of its own."""
MOSTLY = 0.9
"""An arm must have this share of the time that a reading is about."""
FEWEST_PADDED = 4
"""Of fewer nothing is said of padding."""


class Level(NamedTuple):
    """Some readings of one quantity, in its own unit."""

    mean: float
    p95: float


class Quantity(NamedTuple):
    """One quantity of one subject, in each arm; None: not read there.

    The name of the quantity ends in its unit.
    """

    probe: str
    subject: str
    name: str
    real: Level | None
    ideal: Level | None

    @property
    def means(self) -> ByArm:
        """The mean in each arm."""
        return {"real": self.real and self.real.mean, "ideal": self.ideal and self.ideal.mean}


class Metrics(NamedTuple):
    """System metrics: each quantity real beside ideal; probes that read nothing, and why."""

    quantities: tuple[Quantity, ...]
    missing: tuple[tuple[str, str], ...]


def metrics(real: Run, ideal: Run | None = None) -> Metrics:
    """The metrics of one run, or the real arm's from one and the ideal one's from another."""
    runs = [real] if ideal is None else [real, ideal]
    missing = [
        (probe, why) for run in runs for (probe, _), why in run.missing.items() if probe != THREADS
    ]
    return Metrics(
        tuple(each for each in quantities(real, ideal) if each.probe != THREADS),
        tuple(dict.fromkeys(missing)),
    )


@once_per_run
def quantities(real: Run, ideal: Run | None = None) -> tuple[Quantity, ...]:
    """Every quantity that was read while an arm was served, in order.

    A reading is a mean since the one before it, or over the last second where a GPU's driver means
    it. It counts for an arm that was served nearly all of that time.
    """
    levels: dict[tuple[str, str, str], dict[Arm, Level]] = {}
    for arm, run in zip(ARMS, (real, ideal or real), strict=True):
        until = served(run, after_warmup(run, arm))
        for (probe, subject), table in run.readings.items():
            of_driver = ["power_watts"] if probe == "gpu" else []
            if of_driver and "sm_busy_percent" not in table:  # else a GPU's own counters tell it
                of_driver.append("kernel_busy_percent")
            for name in table.names[1:]:
                of_arm = levels.setdefault((probe, subject, name), {})
                known = ~np.isnan(table[name])
                time_ns, values = table.time_ns[known], table[name][known]
                since_ns = np.append(time_ns[:1], time_ns[:-1])
                if name in of_driver:
                    since_ns = np.minimum(since_ns, time_ns - SECOND_NS)
                least_ns = MOSTLY * np.maximum(time_ns - since_ns, 1)
                chosen = values[until(time_ns) - until(since_ns) >= least_ns]
                if len(chosen):
                    of_arm[arm] = Level(float(chosen.mean()), float(np.percentile(chosen, 95)))
    return tuple(
        Quantity(*key, of_arm.get("real"), of_arm.get("ideal"))
        for key, of_arm in levels.items()
        if of_arm
    )


def other_kernels_ns(run: Run, idle_ns: float) -> float | None:
    """How long kernels ran, at least, of the `idle_ns` a real batch without work of the training.

    They are of other streams, such as the loader's, or of other programs. None where the GPU, or
    which one it is, does not tell.
    """
    busy = [each.real for each in quantities(run) if each.name == "sm_busy_percent" and each.real]
    if len(busy) != 1:
        return None
    steps = run.steps.take(after_warmup(run, "real") & (run.steps.gpu_step_ns != UNKNOWN))
    batch_ns = float((steps.gpu_idle_ns + steps.gpu_step_ns).mean()) if len(steps) else idle_ns
    return max(busy[0].mean / 100 * batch_ns - (batch_ns - idle_ns), 0.0)


def served(run: Run, rows: Mask) -> Callable[[Column], Column]:
    """A function of times: for how long, until each, the batches of `rows` had been served.

    A batch is served from its request to the end of its step.
    """
    steps = run.steps.take(rows)
    steps = steps.take(np.argsort(steps.request_ns, kind="stable"))
    took_ns = steps.wait_ns + steps.step_ns.clip(0)
    ends_ns = np.append(0, steps.request_ns + took_ns)
    sums_ns = np.append(0, np.cumsum(took_ns))

    def until(time_ns: Column) -> Column:
        begun = np.searchsorted(steps.request_ns, time_ns, side="right")
        to_come_ns = np.where(begun > 0, ends_ns[begun] - time_ns, 0).clip(0)
        return np.asarray(sums_ns[begun] - to_come_ns)

    return until


class PaddingShare(NamedTuple):
    """The padding of the batches that were looked at.

    `share` is that of all positions, with its interval over batches. Sequences are padded to
    `length` in every batch, None where that differs; the longest of a batch has `longest` at the
    median. Where steps are seen to be longer with more positions, `step_ns` is how long one with
    the mean number of them takes, by the line through them, and `saved_ns` what padding has of it.
    """

    share: Estimate
    length: int | None
    longest: float
    step_ns: float | None = None
    saved_ns: float | None = None


def padding(run: Run) -> PaddingShare | None:
    """The padding of the run; None where too few batches told it."""
    told, steps = run.padding, run.steps
    # Nothing else is possible, but in a file that was changed.
    told = told.take((told.padded <= told.positions) & (told.positions > 0))
    count = len(told)
    if count < FEWEST_PADDED or not len(steps):
        return None
    padded, positions = told.padded.astype(np.float64), told.positions.astype(np.float64)
    mean_positions, share = float(positions.mean()), float(padded.sum() / positions.sum())
    squares = float(((padded - share * positions) ** 2).sum()) * count / (count - 1)
    half = student(count - 1) * math.sqrt(squares) / float(positions.sum())
    figures = PaddingShare(
        Estimate(share, max(share - half, 0.0), min(share + half, 1.0)),
        int(told.length[0]) if (told.length == told.length[0]).all() else None,
        float(np.median(told.longest)),
    )
    rows = np.searchsorted(keys_of(steps), keys_of(told)).clip(max=len(steps) - 1)
    known = (keys_of(steps)[rows] == keys_of(told)) & closed_steps(run)[rows]
    positions, steps = positions[known], steps.take(rows[known])
    on_gpu = len(steps) > 0 and (steps.gpu_step_ns != UNKNOWN).all()
    step_ns = (steps.gpu_step_ns if on_gpu else steps.step_ns).astype(np.float64)
    is_real = steps.arm == REAL
    each_ns = slope([(positions[arm], step_ns[arm]) for arm in (is_real, ~is_real)])
    if each_ns is None or each_ns.low is None or each_ns.low <= 0:
        return figures
    rest_ns = max(float(np.median(step_ns - each_ns.value * positions)), 0.0)
    taken_ns = rest_ns + each_ns.value * mean_positions
    return figures._replace(step_ns=taken_ns, saved_ns=each_ns.value * share * mean_positions)


# CPUs


BUSY = 0.9
"""When this share of the CPUs is in use, nothing is left for anyone who wants more."""
KeptBy = Literal["workers", "process", "starter"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpus:
    """CPUs in use, by arm, in the blocks that count; None where it was not read.

    `usable` are those that the training process or its workers may use, of `every` one of the
    machine, and `step` what a step uses with ideal loading. `computing` are those that worker
    processes compute on, all together, in the real arm. Of what `others` use, `competing` are
    usable ones, 0 where that was not read: they are taken to use first what training may not.
    `left` is what steps and others leave of the usable ones. They `are_busy` if training, workers
    and others leave nothing; that is False where it is not known, too.

    `own`, `theirs` and `shared` are those that the training process, its workers and both may run
    on, and `fewest` what that worker may use which may use the fewest: `workers_differ` if others
    may use more. `kept_by` tells what keeps workers from some CPUs: the workers themselves, the
    training process since it started, or whoever started it.
    """

    usable: int | None
    every: int | None
    training: ByArm
    workers: ByArm
    others: ByArm
    step: float | None
    computing: float | None
    competing: float
    left: float | None
    are_busy: bool
    own: int | None
    theirs: int | None
    shared: int | None
    fewest: int | None
    workers_differ: bool
    kept_by: KeptBy | None


@once_per_run
def cpus(run: Run) -> Cpus:
    """What was read in `run`."""
    environment, nothing = run.header.environment, dict.fromkeys(ARMS)
    read = {
        each.subject: each.means
        for each in quantities(run)
        if each.name == "cpu_cores" and each.probe == "host"
    }
    training, workers, machine = (
        read.get(subject, nothing) for subject in ("process", "workers", "machine")
    )
    counts = {name: n for name, n in environment.items() if isinstance(n, int) and n > 0}
    usable, every = counts.get("cpus_usable"), counts.get("cpus")

    def allowed(subject: str, name: str = "allowed_cpus") -> int | None:
        """The median of the CPUs that a process was seen to be allowed."""
        values = host_values(run, subject, name)
        return int(np.percentile(values, 50, method="higher")) if len(values) else None

    own, theirs = allowed("process"), allowed("workers")
    shared, fewest = allowed("workers", "shared_allowed_cpus"), None
    step = training["real"] if training["ideal"] is None else training["ideal"]
    kept_by: KeptBy | None = None
    if own is None or theirs is None or shared is None:
        own = theirs = shared = None
    else:
        fewest = allowed("workers", "fewest_allowed_cpus")
        threads = allowed("process", "threads_allowed_cpus") or own
        most = max(own, threads, counts.get("cpus_at_start", 0))
        every = max(allowed("machine") or 0, most, theirs)
        if theirs < every:
            # OpenMP binds the thread that imports torch to one CPU, maybe before loadeval is
            # imported.
            is_bound = own < most or (bool(environment.get("cpu_binding")) and own == 1)
            kept_by = "process" if is_bound else "starter"
            if (theirs, shared) != (own, own):
                kept_by = "workers"
        if round(step or 1.0) > 1:  # each thread of a step may be bound to a CPU of its own
            own, shared = threads, min(theirs, threads)
        usable = own + theirs - shared
    used = {arm: [use for use in (training[arm], workers[arm]) if use is not None] for arm in ARMS}
    others = {
        arm: None if not used[arm] or every_use is None else every_use - sum(used[arm])
        for arm, every_use in machine.items()
    }
    elsewhere = max((every or 0) - (usable or 0), 0)
    competing = max((others["real"] or 0.0) - elsewhere, 0.0)
    in_use = sum(used["real"]) + competing
    left = None
    if usable is not None and step is not None and others["real"] is not None:
        left = max(usable - step - competing, 0.0)
    return Cpus(
        usable=usable,
        every=every,
        training=training,
        workers=workers,
        others=others,
        step=step,
        # No CPU time at all may mean that the workers are threads of the training process.
        computing=workers_cpus(run, "real") or workers["real"],
        competing=competing,
        left=left,
        are_busy=bool(used["real"]) and usable is not None and in_use >= BUSY * usable,
        own=own,
        theirs=theirs,
        shared=shared,
        fewest=fewest,
        workers_differ=fewest is not None and theirs is not None and fewest < theirs,
        kept_by=kept_by,
    )


def workers_cpus(run: Run, arm: Arm) -> float | None:
    """How many CPUs the workers kept busy in the blocks of an arm; None where that is not known."""
    windows = whole_windows(run, arm)
    used = [window.workers_cpu_ns for window in windows if window.workers_cpu_ns is not None]
    elapsed_ns = sum(window.elapsed_ns for window in windows)
    return sum(used) / elapsed_ns if len(used) == len(windows) and elapsed_ns else None
