"""What makes a headroom mean less than its figures say."""

from __future__ import annotations

import math
from dataclasses import asdict
from enum import Enum
from typing import TYPE_CHECKING, Any

from loadeval.analysis.estimate.intervals import MeanTime, error_of_difference
from loadeval.analysis.estimate.metrics import quantities
from loadeval.analysis.estimate.stats import spearman
from loadeval.analysis.estimate.steady import (
    WITHIN_STEP,
    steady,
    steps_left_out,
)
from loadeval.analysis.remark import Remark
from loadeval.data.columns import UNKNOWN
from loadeval.data.redaction import is_hidden
from loadeval.data.run import NOT_RECORDED, SECOND_NS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loadeval.analysis.estimate.arms import ArmComparison, Gain
    from loadeval.analysis.estimate.metrics import Level
    from loadeval.analysis.estimate.summary import GpuWait
    from loadeval.data.columns import Column
    from loadeval.data.lines import Arm
    from loadeval.data.run import Run

STRONG = 0.5
SIGNIFICANT = 3.3
"""So many standard errors come about by chance once in a thousand times."""
MANY_FAULTS = 1000
"""So many page faults in a batch take less than a millisecond."""
FAR_MORE = 3
LEAST_STOLEN = 0.02
"""Of the CPU time in use: what other virtual machines take below that hardly matters."""
LEAST_LIMITED = 0.05
"""Of the periods of a control group: its limit matters from here on."""
OTHER_CLOCK = 0.1
"""Steps take as much longer as the clock is slower."""
SLOWED = 0.05
"""Of the time: a GPU that is slowed down for longer is said to be."""
HEATED = "thermal_throttles_per_s"
GPU_SLOWDOWNS = ("thermal_slowdown_flag", "hardware_slowdown_flag")
LEAST_STARTS_SHARE = 0.02
"""Where an epoch's start and end add less than this share, it hardly matters that they vary."""
LOADER_FACTS = ("backend", "batch_size", "device", "pinned", "length")
"""What replay leaves as it is; its workers are stopped, so their number does not matter."""
MACHINE_FACTS = ("host", "cpus_usable")


class Caution(Enum):
    """What makes the figures mean less than they seem to."""

    DIFFERENT_MACHINES = "different machines"
    DIFFERENT_LOADERS = "different loaders"
    DIFFERENT_UNITS = "different units"
    SAMPLES_UNKNOWN = "samples unknown"
    STEP_VARIES = "step time depends on the batch"
    TWO_RUNS = "two separate runs"
    WORKERS_BUSY = "workers busy in the ideal arm"
    PAGE_FAULTS = "more page faults in the ideal arm"
    LOOKED_INTO = "counted blocks looked into"
    STEPS_LEFT_OUT = "steps left out"
    HIDDEN_WAITS = "waits hidden by GPU work"
    ONE_EPOCH = "one epoch's start"
    CPU_STOLEN = "CPU time that other virtual machines took"
    CPU_LIMITED = "CPU time that a control group's limit took"
    CPU_HOT = "CPUs that heat slowed down"
    CPU_CLOCK = "the clock of the CPUs differs between the arms"
    GPU_SLOWED = "a GPU that heat or its hardware slowed down"


class BatchProperty(Enum):
    """What a step's time may depend on."""

    PLACE = "its place in the epoch"
    SIZE = "its size in bytes"


def hidden_waits(waited: GpuWait | None) -> list[Remark]:
    """A remark if the device did not wait when the host did."""
    if waited is None or not waited.hidden:
        return []
    values = {"wait_ns": waited.wait_ns, "gpu_idle_ns": waited.gpu_idle_ns}
    return [Remark(Caution.HIDDEN_WAITS, values)]


def one_epoch(gain: Gain | None) -> list[Remark]:
    """A remark if epoch starts matter, and the interval does not tell how much they vary."""
    starts_ns = gain and gain.epoch_starts_ns
    if gain is None or starts_ns is None or starts_ns.low is not None:
        return []
    starts_share = abs(starts_ns.value) / (gain.real_ns + starts_ns.value)
    return [Remark(Caution.ONE_EPOCH, {"starts_share": starts_share})] * (
        starts_share >= LEAST_STARTS_SHARE
    )


def about_the_machine(*runs: Run) -> list[Remark]:
    """What of the machine moved the figures, as far as it was read: of one run, or real and ideal.

    It differs from one measurement to the next, so no interval of one has it.
    """
    levels: dict[tuple[str, str], dict[Arm, float]] = {}
    for read in (read for run in runs for read in quantities(run)):
        arms: tuple[tuple[Arm, Level | None], ...] = (("real", read.real), ("ideal", read.ideal))
        known = {arm: level.mean for arm, level in arms if level is not None}
        levels.setdefault((read.subject, read.name), {}).update(known)

    def most(subject: str, name: str) -> float:
        return max(levels.get((subject, name), {}).values(), default=0.0)

    stolen, in_use = (levels.get(("machine", f"{name}_cores"), {}) for name in ("stolen", "cpu"))
    shares = [cores / (cores + in_use[arm]) for arm, cores in stolen.items() if in_use.get(arm)]
    limited, heated = most("machine", "cgroup_throttled_share"), most("machine", HEATED)
    clock = levels.get(("machine", "cpu_clock_hz"), {})
    slowed = max((most(*key) for key in levels if key[1] in GPU_SLOWDOWNS), default=0.0)
    cautions = []
    if shares and max(shares) >= LEAST_STOLEN:
        cautions.append(Remark(Caution.CPU_STOLEN, {"share": max(shares)}))
    if limited >= LEAST_LIMITED:
        cautions.append(Remark(Caution.CPU_LIMITED, {"share": limited}))
    if heated > 0:
        cautions.append(Remark(Caution.CPU_HOT, {"per_s": heated}))
    slower = min(clock, key=clock.__getitem__, default=None)
    if slower is not None and clock[slower] <= (1 - OTHER_CLOCK) * max(clock.values()):
        share = 1 - clock[slower] / max(clock.values())
        cautions.append(Remark(Caution.CPU_CLOCK, {"share": share, "arm": slower}))
    if slowed >= SLOWED:
        cautions.append(Remark(Caution.GPU_SLOWED, {"share": slowed}))
    return cautions


def looked_into(run: Run) -> list[Remark]:
    """A remark if stages were timed in the blocks that count, as before blocks had marks."""
    if not run.stages or run.steps.instrumented.any():
        return []
    return [Remark(Caution.LOOKED_INTO)]


def left_out(run: Run) -> list[Remark]:
    """The steps in which training did something else, and what."""
    steps_ns = run.steps.step_ns[steps_left_out(run)]
    if not len(steps_ns):
        return []
    what = dict.fromkeys(event.message for event in run.events if event.kind == WITHIN_STEP)
    figures = {"steps": len(steps_ns), "mean_ns": float(steps_ns.mean())}
    return [Remark(Caution.STEPS_LEFT_OUT, {**figures, "what": ", ".join(what)})]


def drift_ns(iterations: MeanTime) -> float:
    """How much slower or faster the second half of a run is than the first, beyond noise."""
    middle = len(iterations.total_ns) // 2
    first, second = (
        MeanTime(iterations.total_ns[rows], iterations.amount[rows])
        for rows in (slice(None, middle), slice(middle, None))
    )
    if not first.amount.sum() or not second.amount.sum():
        return 0.0
    error = error_of_difference(first, second, 1.0, 1.0)
    change_ns = abs(first.mean_ns - second.mean_ns)
    return change_ns if error is not None and change_ns > error.half_width else 0.0


def same_unit(real: Run, ideal: Run) -> bool:
    """Whether both runs call their samples the same."""
    return real.header.unit == ideal.header.unit


def about_two_runs(real: Run, ideal: Run, samples_unknown: bool) -> list[Remark]:
    """What makes two runs less comparable, the weightiest first."""
    loaders = asdict(real.header.loader), asdict(ideal.header.loader)
    environments = real.header.environment, ideal.header.environment
    cautions = [
        *_differences(Caution.DIFFERENT_MACHINES, MACHINE_FACTS, *environments),
        *_differences(Caution.DIFFERENT_LOADERS, LOADER_FACTS, *loaders),
    ]
    if not same_unit(real, ideal):
        units = {"real": real.header.unit, "ideal": ideal.header.unit}
        cautions.append(Remark(Caution.DIFFERENT_UNITS, units))
    elif samples_unknown:
        cautions.append(Remark(Caution.SAMPLES_UNKNOWN))
    for what, rho in dependences(real, ideal).items():
        cautions.append(Remark(Caution.STEP_VARIES, {"with": what.value, "rank_correlation": rho}))
    return [*cautions, Remark(Caution.TWO_RUNS)]


def _differences(
    code: Caution,
    names: tuple[str, ...],
    real_facts: Mapping[str, Any],
    ideal_facts: Mapping[str, Any],
) -> list[Remark]:
    """A remark for each fact that differs; what is not known of one of the two is no difference."""
    return [
        Remark(code, {"fact": name.replace("_", " "), "real": str(real), "ideal": str(ideal)})
        for name, real, ideal in (
            (name, real_facts.get(name), ideal_facts.get(name)) for name in names
        )
        if real != ideal
        and not any(fact in (None, NOT_RECORDED) or is_hidden(fact) for fact in (real, ideal))
    ]


def dependences(real: Run, ideal: Run) -> dict[BatchProperty, float]:
    """What a step's time depends on, with the rank correlation."""
    by_size = [_dependence(run, run.steps.nbytes) for run in (real, ideal)]
    correlations = {
        BatchProperty.PLACE: _dependence(real, real.steps.batch),
        BatchProperty.SIZE: max(by_size, key=abs),
    }
    return {name: rho for name, rho in correlations.items() if rho}


def _dependence(run: Run, column: Column) -> float:
    """The rank correlation of the steady steps with `column`; 0.0 if weak, or maybe chance."""
    rows = steady(run) & (column != UNKNOWN)
    rho = spearman(run.steps.step_ns[rows], column[rows])
    sure = abs(rho) >= STRONG and abs(rho) * math.sqrt(rows.sum() - 1) >= SIGNIFICANT
    return rho if sure else 0.0


def more_faults(run: Run, comparison: ArmComparison) -> list[Remark]:
    """Where the step met far more page faults when loading was free.

    It may: the C library gives memory back to the system and fetches it again, or does not, by
    what else was allocated meanwhile. A fault takes about a microsecond.
    """
    for read in quantities(run):
        is_of_faults = (read.subject, read.name) == ("process", "minor_faults_per_s")
        if not is_of_faults or read.real is None or read.ideal is None:
            continue
        real = read.real.mean * (comparison.real_ns or 0.0) / SECOND_NS
        ideal = read.ideal.mean * (comparison.ideal_ns or 0.0) / SECOND_NS
        if ideal - real >= MANY_FAULTS and ideal >= FAR_MORE * real:
            return [Remark(Caution.PAGE_FAULTS, {"real": real, "ideal": ideal})]
    return []
