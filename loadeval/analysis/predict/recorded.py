"""One run, as findings and predictions take it: what its batches cost, and its present settings.

There is one replay of the present settings. What findings cost, and what advice is predicted to
bring, are both by how much it becomes shorter. It serves batches in the order that the loader did,
and workers, training and other programs share the CPUs: a worker more or less, or a step that
computes less, then changes how long all the others wait for one. What workers were seen to wait for
a CPU is left out of it, for the replay itself makes them wait; where nobody read what other
programs use, it would make them wait too little, and is left in, unless the workers are kept from
CPUs. Which share of its time a worker waited for a CPU is known better than any replay tells, so
without that batches take what was seen beside it, on CPUs of their own: see `fixes.py`. What
fetching takes is scaled until the replay takes as long as was measured.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.estimate.arms import run_times
from loadeval.analysis.estimate.headroom import headroom, headroom_of_two
from loadeval.analysis.estimate.memory import memory_there
from loadeval.analysis.estimate.stats import Estimate
from loadeval.analysis.estimate.steady import steady
from loadeval.analysis.estimate.summary import summarise
from loadeval.analysis.estimate.throughput import throughputs
from loadeval.analysis.inside.stages import (
    LEAF,
    LOCKS,
    SLEEPS,
    Blockage,
    StageReport,
    blockage_of,
    stages_of,
)
from loadeval.analysis.once import once_per_run
from loadeval.analysis.predict.costs import Costs, costs_of
from loadeval.analysis.predict.cpus import CpuUse, Spinning
from loadeval.analysis.predict.simulation import Setting, iteration_ns, replayed
from loadeval.data.columns import UNKNOWN
from loadeval.data.redaction import TORCHS_OWN
from loadeval.errors import UsageError

if TYPE_CHECKING:
    from loadeval.analysis.estimate.stats import Series
    from loadeval.analysis.estimate.summary import Summary
    from loadeval.data.lines import Arm, LoaderInfo
    from loadeval.data.run import Run

NO_EFFECT = 0.01
"""A change of less than this share of the iteration has no effect."""
SCALES = (0.6, 1.6)
"""A calibration scales what fetching takes by no less and no more."""
CALIBRATIONS = 3
"""Newton's method takes at most so many steps."""
BLOCKAGE_MATTERS = 0.2
"""From this share of fetching on it matters whether blocked time would grow with more workers."""
MOSTLY = 0.8
"""When fewer of the batches are without a slow sample, that is what batches are like."""
UNDISTURBED = 0.1
"""The quantile of steps that stands for one that has a CPU whenever it wants one."""
USUAL_PREFETCH = 2
"""Torch keeps so many batches ready for each worker, unless told otherwise."""
START_NS = {"fork": 40_000_000, "forkserver": 2_000_000_000, "spawn": 2_000_000_000}
"""Starting a worker, and ending it, takes so long by start method: see docs/how-it-measures.md."""
FORK_NS_PER_BYTE = 0.025
"""A fork copies the page tables of the training process, which takes so long for each byte."""
NO_FORK_SINCE = (3, 14)
"""From this version on Python starts processes by forkserver, unless told otherwise."""
RESUME_NS = 1_000_000
"""Each worker that lives on takes so long at the start of an epoch."""


@dataclass(frozen=True)
class PresentReplay:
    """The replay of the settings that a run had, with calibrated costs: see the file's docstring.

    `setting` has the growth of CPU time that it was calibrated with, and `costs` what batches take
    with one CPU in use. An iteration takes `iteration_ns`, and took `uncalibrated_ns` before what
    fetching takes was scaled, to so many times as much; `spread` is as of Replayed.
    """

    costs: Costs
    setting: Setting
    scale: float
    iteration_ns: float
    uncalibrated_ns: float
    spread: float


@dataclass(frozen=True)
class Recorded:
    """One run, as findings and predictions take it.

    `costs` and `setting` are as recorded; `setting` has the workers that have something to do.
    `measured_ns` is the iteration in the steady state, and `undisturbed_ns` a step that no other
    program disturbs, as one in ten was. `shares_cpus` tells whether the replay makes
    workers wait for CPUs. `spinning` are threads of the step that wait for each other by computing.
    """

    loader: LoaderInfo
    costs: Costs
    setting: Setting
    measured_ns: float
    undisturbed_ns: float
    rate: Estimate
    unit: str
    stages: StageReport
    summary: Summary
    shares_cpus: bool
    spinning: Spinning | None
    worker_bytes: float | None
    machine_bytes: float | None
    shm_free_bytes: float | None
    start_ns: float
    tensors: float | None

    @classmethod
    def of(cls, run: Run) -> Recorded:
        """Raises UsageError where nothing can be predicted from the run."""
        if run.header.mode != "alternate":
            raise UsageError(
                f"{_name(run)} was recorded with mode={run.header.mode!r}, which does not measure "
                "the training step without loading, so nothing can be predicted from it; record "
                "one that does: loadeval run --mode alternate -- COMMAND"
            )
        if stages_of(run) is None:
            raise UsageError(
                f"{_name(run)} does not tell what happens inside the loader, so nothing can be "
                "predicted from it; expected a run of a loader that loadeval looks into, such as "
                "PyTorch's DataLoader, without stages=False"
            )
        recorded = recorded_of(run, None)
        if recorded is None:
            raise UsageError(
                f"{_name(run)} has too few batches to predict from: its iteration, its training "
                "step or the loading of its batches was not measured; let it run for more batches"
            )
        return recorded

    @cached_property
    def batch_bytes(self) -> float | None:
        """The size of a batch."""
        return self.summary.bytes_per_batch

    @property
    def nameable(self) -> list[str]:
        """Transforms and functions, the most frequent first, that somebody could make faster."""
        own = [line for line in self.stages.code if not line.place.startswith(TORCHS_OWN)]
        names = (name for line in own for name in (line.function, line.leaf) if name)
        transforms = (transform.name for transform in self.stages.transforms)
        return list(dict.fromkeys((*transforms, *names)))

    @cached_property
    def blocked(self) -> float:
        """The share of fetching and collating in which a worker is blocked, slow samples apart."""
        return self._typical(self.costs.blocked_ns)

    @cached_property
    def run_queue(self) -> float:
        """The share in which it is runnable without a CPU."""
        return self._typical(self.costs.run_queue_ns)

    def _typical(self, part_ns: Series) -> float:
        typical = self.costs.slow_ns == 0
        if typical.mean() < MOSTLY:
            typical = np.ones(len(self.costs), dtype=np.bool_)
        whole_ns = float(self.costs.fetch_ns[typical].sum())
        return float(part_ns[typical].sum()) / whole_ns if whole_ns else 0.0

    @property
    def blockage(self) -> Blockage:
        """What workers are blocked by, where they are for long."""
        if self.blocked < BLOCKAGE_MATTERS or not self.setting.workers:
            return Blockage.NONE
        return blockage_of(self.stages, self.setting.workers, self.blocked)

    @property
    def may_share_bandwidth(self) -> bool:
        """Whether what blocks it may take longer with more workers: neither a lock nor a sleep."""
        line = self.stages.blocked_line
        blocked_in = "" if line is None else line.blocked_in
        is_lock = self.blockage is Blockage.LOCK or (
            blocked_in.startswith(LOCKS) and not self.setting.workers
        )
        is_other = is_lock or blocked_in.endswith(SLEEPS)
        return self.blocked >= BLOCKAGE_MATTERS and not is_other

    def present(self, growth: float, *, in_turn: bool = False) -> PresentReplay:
        """The replay of its settings, with this growth of CPU time: the same one each time.

        With `in_turn` workers share the bandwidth of their storage.
        """
        key = growth, in_turn
        if key not in self._replays:
            setting = replace(self.setting, growth=growth)
            self._replays[key] = self._calibrated(setting, in_turn=in_turn)
        return self._replays[key]

    @cached_property
    def _replays(self) -> dict[tuple[float, bool], PresentReplay]:
        return {}

    def _calibrated(self, setting: Setting, *, in_turn: bool) -> PresentReplay:
        costs = self.costs.off_the_run_queue() if self.shares_cpus else self.costs
        costs = costs.read_in_turn(self.measured_ns) if in_turn else costs
        costs = replace(costs, cpu_ns=costs.cpu_ns / replayed(costs, setting).grown)
        scale, replay = 1.0, replayed(costs, setting)
        uncalibrated_ns = replay.iteration_ns
        for _ in range(CALIBRATIONS):
            if abs(replay.iteration_ns / self.measured_ns - 1) < NO_EFFECT:
                break
            tried = scale * 1.1
            steeper_ns = iteration_ns(costs.scaled(tried), setting)
            slope = (steeper_ns - replay.iteration_ns) / (tried - scale)
            if slope * 0.1 * scale < NO_EFFECT * replay.iteration_ns:  # something else limits it
                break
            scale += (self.measured_ns - replay.iteration_ns) / slope
            scale = min(max(scale, SCALES[0]), SCALES[1])
            replay = replayed(costs.scaled(scale), setting)
        return PresentReplay(
            costs.scaled(scale),
            setting,
            scale,
            replay.iteration_ns,
            uncalibrated_ns,
            replay.spread,
        )


@once_per_run
def recorded_of(run: Run, ideal: Run | None) -> Recorded | None:
    """What is known of the loader of `run`, with `ideal` replayed or None.

    None where nobody looked into it, or it has too few batches.
    """
    stages, counted = stages_of(run), run_times(run).counted
    if stages is None:
        return None
    gain = headroom(run) if run.header.mode == "alternate" else None
    gain = gain if ideal is None else headroom_of_two(run, ideal)
    summary = summarise(counted, "real")
    step_ns = summary.step_ns if gain is None else gain.ideal_ns
    measured_ns = summary.iteration_ns if gain is None else gain.real_ns
    by_sample = summary.samples_per_s is not None
    rate, *_ = throughputs(run, by_sample)
    if step_ns is None or measured_ns is None or rate is None:
        return None
    use = CpuUse.of(counted)
    costs = costs_of(run, step_ns, _step_cpus(use, measured_ns, step_ns, stages))
    if costs is None:
        return None
    costs = costs.computed_while_blocked(stages.computing_threads)
    lines = {line.function: line.share * costs.fetch_ns for line in reversed(stages.code)}
    called = {name: share * costs.fetch_ns for name, share in _called(run).items()}
    setting = setting_of(run, costs, use)
    allowed = use.allowed
    is_confined = allowed is not None and allowed.are_kept_from(setting.workers)
    # One worker's wait for the CPU that it is bound to is none that all have.
    are_alike = allowed is None or not allowed.differ
    return Recorded(
        run.header.loader,
        replace(costs, named_ns={**called, **lines, **costs.named_ns}),
        setting,
        measured_ns,
        _undisturbed_ns(ideal or run, "real" if gain is None else "ideal", step_ns),
        rate,
        run.header.unit if by_sample else "batches",
        stages,
        summary,
        are_alike and (use.others is not None or is_confined),
        None if gain is None else Spinning.of(use, gain, setting.workers, costs.handed_ns),
        worker_bytes(run),
        memory_there(run),
        run.header.environment.get("shm_free_bytes"),
        _start_ns(run),
        _tensors(run),
    )


def setting_of(run: Run, costs: Costs, use: CpuUse) -> Setting:
    """The setting of a run's loader, with the workers that have something to do."""
    workers, depth = run.header.loader.workers or 0, run.header.loader.prefetch_depth or 0
    affinity = None if use.allowed is None else use.allowed.affinity
    busy = set(run.stages.worker[run.stages.samples > 0].tolist())
    return Setting(
        workers=min(len(busy - {UNKNOWN}) or workers, workers),
        prefetch_factor=max(depth // workers, 1) if workers else USUAL_PREFETCH,
        in_order=run.header.loader.in_order is not False,
        cpus=None if use.usable is None else float(use.usable),
        affinity=None if affinity is None or affinity.is_even else affinity,
        others_cpus=use.competing,
        pins=bool(costs.pin_ns.any()),
    )


def _step_cpus(use: CpuUse, measured_ns: float, step_ns: float, stages: StageReport) -> float:
    """CPUs that the training step uses; 1 where that was not read."""
    ideal, real = (None, None) if use.process is None else (use.process.ideal, use.process.real)
    if ideal is not None:
        return ideal.mean
    if real is None:
        return 1.0
    own_ns = sum(
        share.work_ns for share in stages.stages if share.stage.value in ("indices", "receive")
    )
    return max(real.mean * measured_ns - own_ns, 0.0) / max(step_ns, 1.0)


def _undisturbed_ns(run: Run, arm: Arm, step_ns: float) -> float:
    """What the quicker steps of an arm take, which others disturbed least; else `step_ns`."""
    steps_ns = run.steps.step_ns[steady(run, arm)]
    return float(np.quantile(steps_ns, UNDISTURBED)) if len(steps_ns) else step_ns


def _start_ns(run: Run) -> float:
    """What starting a worker takes: as measured, or for a process like that of a run without."""
    ready_ns: dict[int, int] = {}
    for start in run.worker_starts:
        ready_ns[start.epoch] = max(ready_ns.get(start.epoch, 0), start.ready_ns - start.start_ns)
    if ready_ns:
        return float(np.median(list(ready_ns.values()))) / (run.header.loader.workers or 1)
    environment = run.header.environment
    version = tuple(map(int, re.findall(r"\d+", str(environment.get("python")))[:2]))
    method = run.header.loader.start_method
    if method is None:  # the default of that system and Python
        is_linux = str(environment.get("platform") or "Linux").startswith("Linux")
        method = ("forkserver" if version >= NO_FORK_SINCE else "fork") if is_linux else "spawn"
    process_ns = START_NS.get(method, START_NS["spawn"])
    return process_ns + (FORK_NS_PER_BYTE * _process_bytes(run) if method == "fork" else 0.0)


def _process_bytes(run: Run) -> float:
    """The memory of the training process; 0 where it was not read."""
    for (_, subject), read in run.readings.items():
        used = read.rss_bytes if subject == "process" and "rss_bytes" in read else None
        if used is not None and not np.isnan(used).all():
            return float(np.nanmax(used))
    return 0.0


def _tensors(run: Run) -> float | None:
    """The mean number of tensors in a batch; None where none were counted."""
    counted = run.stages.tensors[run.stages.tensors != UNKNOWN]
    return float(counted.mean()) if len(counted) else None


def _called(run: Run) -> dict[str, float]:
    """The share of fetching that each function called by the user's code runs for."""
    seen: Counter[str] = Counter()
    for samples in run.code:
        for place, count in samples.running.items():
            seen[place.partition(LEAF)[2]] += count
    total = sum(sum((*samples.running.values(), *samples.blocked.values())) for samples in run.code)
    return {name: count / total for name, count in seen.items() if name}


def worker_bytes(*runs: Run) -> float | None:
    """What one more worker takes; None where it was not read.

    The PSS of a worker falls with the processes that share what it was forked from, such as
    the workers of other loaders. So that is left out where the readings tell it: what is
    anonymous counts what is shared in full, and PSS a part of it for each of the workers and their
    parent. Mapped files are shared by all. Of several runs the last one that tells most is taken:
    a short one may have RSS alone, which counts all that is shared.
    """
    by_run = [_worker_bytes_by_kind(run) for run in runs]
    by_kind = [[each for each in kind if each is not None] for kind in zip(*by_run, strict=True)]
    return next((known[-1] for known in by_kind if known), None)


def _worker_bytes_by_kind(run: Run) -> list[float | None]:
    """A worker's own bytes, PSS, anonymous ones and RSS; None where they were not read."""
    for (_, subject), read in run.readings.items():
        if subject != "workers" or "alive_workers" not in read:
            continue
        alive = read.alive_workers
        unknown = np.full(len(alive), np.nan)
        names = ("pss_bytes", "pss_file_bytes", "anonymous_bytes", "rss_bytes")
        pss, of_files, anonymous, rss = (read.get(name, unknown) for name in names)
        own = np.maximum(((alive + 1) * (pss - of_files) - anonymous) / np.maximum(alive, 1), 0.0)
        kinds = [total[alive > 0] / alive[alive > 0] for total in (own, pss, anonymous, rss)]
        return [None if np.isnan(each).all() else float(np.nanmedian(each)) for each in kinds]
    return [None] * 4


def _name(run: Run) -> str:
    return str(run.path or run.header.name)
