"""One run, as predictions take it: what its batches cost, its setting, and what was measured.

What fetching takes is scaled until a replay of the run takes as long as was measured, so that a
prediction starts from what is known.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.arms import run_times, throughputs
from loadeval.analysis.cpus import CpuUse, Spinning
from loadeval.analysis.headroom import headroom
from loadeval.analysis.memory import memory_there
from loadeval.analysis.simulation import Costs, Setting, costs_of, iteration_ns, replayed
from loadeval.analysis.stages import LEAF, Blockage, StageReport, blockage_of, stages_of
from loadeval.analysis.stats import Estimate  # noqa: TC001 - dataclass fields
from loadeval.analysis.summary import summarise
from loadeval.errors import UsageError
from loadeval.runlog.columns import UNKNOWN
from loadeval.runlog.stages import TORCHS_OWN

if TYPE_CHECKING:
    from loadeval.analysis.headroom import Headroom
    from loadeval.analysis.summary import Summary
    from loadeval.runlog.model import LoaderInfo, Run

NO_EFFECT = 0.01
"""Of the iteration: what changes it by less has no effect on it."""
SCALES = (0.6, 1.6)
"""Of what fetching takes, that a calibration may find."""
CALIBRATIONS = 3
"""Steps of Newton's method."""
MOSTLY_BLOCKED = 0.2
"""Of fetching: from here on it matters whether blocked time would grow with more workers."""
USUAL_PREFETCH = 2
"""Batches that torch keeps ready for each worker, unless told otherwise."""
START_NS = {"fork": 40_000_000, "forkserver": 2_000_000_000, "spawn": 2_000_000_000}
"""To start a worker, and to end it, by start method: docs/how-it-measures.md tells where from."""
FORK_NS_PER_BYTE = 0.025
"""To copy the page tables of the training process, for each byte of its memory."""
NO_FORK_SINCE = (3, 14)
"""Python that starts processes by forkserver, unless told otherwise."""
RESUME_NS = 1_000_000
"""For each worker that lives on, at the start of an epoch."""


@dataclass(frozen=True)
class Recorded:
    """One run, as predictions take it: `measured_ns` is its iteration in the steady state."""

    loader: LoaderInfo
    costs: Costs
    setting: Setting
    measured_ns: float
    rate: Estimate
    unit: str
    stages: StageReport
    summary: Summary
    alternates: bool
    step_spins: bool
    worker_bytes: float | None
    machine_bytes: float | None
    shm_free_bytes: float | None
    start_ns: float
    tensors: float | None

    @classmethod
    def of(cls, run: Run) -> Recorded:
        """Raises UsageError where it does not tell what happens inside the loader."""
        times, stages = run_times(run), stages_of(run)
        found = headroom(run, times) if run.header.mode == "alternate" else None
        if stages is None:
            raise UsageError(
                f"{_name(run)} does not tell what happens inside the loader, so nothing can be "
                "predicted from it; expected a run with mode='alternate', or with stages=True, of "
                "a loader that loadeval looks into, such as PyTorch's DataLoader"
            )
        recorded = cls.of_parts(times.counted, stages, found)
        if recorded is None:
            raise UsageError(
                f"{_name(run)} has too few batches to predict from: its iteration, its training "
                "step or the loading of its batches was not measured; let it run for more batches"
            )
        return recorded

    @classmethod
    def of_parts(cls, run: Run, stages: StageReport, found: Headroom | None) -> Recorded | None:
        """Of a run whose batches that count are known; None where it has too few."""
        summary = summarise(run, "real")
        step_ns = summary.step_ns if found is None else found.ideal_ns
        measured_ns = summary.iteration_ns if found is None else found.real_ns
        by_sample = summary.samples_per_s is not None
        rate, *_ = throughputs(run, run_times(run), by_sample)
        use = CpuUse.of(run)
        if step_ns is None or measured_ns is None or rate is None:
            return None
        costs = costs_of(run, step_ns, _step_cpus(use, measured_ns, step_ns, stages))
        if costs is None:
            return None
        if use.others is not None:  # then the CPUs are shared in the replay
            costs = replace(costs, run_queue_ns=np.zeros(len(costs)))
        lines = {one.function: one.share * costs.fetch_ns for one in reversed(stages.code)}
        called = {name: share * costs.fetch_ns for name, share in _called(run).items()}
        return cls(
            run.header.loader,
            replace(costs, named_ns={**called, **lines, **costs.named_ns}),
            setting_of(run, costs, use),
            measured_ns,
            rate,
            run.header.unit if by_sample else "batches",
            stages,
            summary,
            found is not None,
            found is not None and _spins(setting_of(run, costs, use), use, found, costs),
            _worker_bytes(run),
            memory_there(run),
            run.header.environment.get("shm_free_bytes"),
            _start_ns(run),
            _tensors(run),
        )

    @cached_property
    def batch_bytes(self) -> float | None:
        """Of a batch."""
        return self.summary.bytes_per_batch

    @property
    def nameable(self) -> list[str]:
        """Transforms and functions, the most frequent first, that somebody could make faster."""
        own = [one for one in self.stages.code if not one.place.startswith(TORCHS_OWN)]
        names = (name for one in own for name in (one.function, one.leaf) if name)
        transforms = (one.name for one in self.stages.transforms)
        return list(dict.fromkeys((*transforms, *names)))

    @property
    def blocked(self) -> float:
        """The share of fetching in which workers are blocked."""
        whole_ns = float(self.costs.fetch_ns.sum())
        return float(self.costs.blocked_ns.sum()) / whole_ns if whole_ns else 0.0

    @property
    def blockage(self) -> Blockage:
        """What workers are blocked by, where they are for long."""
        if self.blocked < MOSTLY_BLOCKED or not self.setting.workers:
            return Blockage.NONE
        return blockage_of(self.stages, self.setting.workers, self.blocked)

    def calibrated(self, growth: float) -> Calibrated:
        """Its costs with one CPU in use, scaled until replaying it takes what was measured."""
        setting = replace(self.setting, growth=growth)
        costs = self.costs
        costs = replace(costs, cpu_ns=costs.cpu_ns / replayed(costs, setting).grown)
        scale, found = 1.0, replayed(costs, setting)
        for _ in range(CALIBRATIONS):
            if abs(found.iteration_ns / self.measured_ns - 1) < NO_EFFECT:
                break
            tried = scale * 1.1
            steeper_ns = iteration_ns(costs.fetched_in(tried), setting)
            slope = (steeper_ns - found.iteration_ns) / (tried - scale)
            if slope * 0.1 * scale < NO_EFFECT * found.iteration_ns:  # something else limits it
                break
            scale += (self.measured_ns - found.iteration_ns) / slope
            scale = min(max(scale, SCALES[0]), SCALES[1])
            found = replayed(costs.fetched_in(scale), setting)
        return Calibrated(costs.fetched_in(scale), growth, found.iteration_ns, found.spread)


@dataclass(frozen=True)
class Calibrated:
    """Costs that give `base_ns` under the settings of the run, with this growth of CPU time.

    `spread` is as of Replayed.
    """

    costs: Costs
    growth: float
    base_ns: float
    spread: float


def _spins(setting: Setting, use: CpuUse, found: Headroom, costs: Costs) -> bool:
    return Spinning.of(use, found, setting.workers, costs.handed_ns) is not None


def setting_of(run: Run, costs: Costs, use: CpuUse) -> Setting:
    """The setting of a run's loader, with the workers that have something to do."""
    workers, depth = run.header.loader.workers or 0, run.header.loader.prefetch_depth or 0
    busy = {number for one in run.stages for number in one.worker[one.samples > 0].tolist()}
    return Setting(
        workers=min(len(busy - {UNKNOWN}) or workers, workers),
        prefetch_factor=max(depth // workers, 1) if workers else USUAL_PREFETCH,
        in_order=run.header.loader.in_order is not False,
        cpus=None if use.usable is None else float(use.usable),
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
    own_ns = sum(one.work_ns for one in stages.stages if one.stage.value in ("indices", "receive"))
    return max(real.mean * measured_ns - own_ns, 0.0) / max(step_ns, 1.0)


def _start_ns(run: Run) -> float:
    """What starting a worker takes: as measured, or for a process like that of a run without."""
    ready_ns: dict[int, int] = {}
    for one in run.worker_starts:
        ready_ns[one.epoch] = max(ready_ns.get(one.epoch, 0), one.ready_ns - one.start_ns)
    if ready_ns:
        return float(np.median(list(ready_ns.values()))) / (run.header.loader.workers or 1)
    environment = run.header.environment
    version = tuple(map(int, re.findall(r"\d+", str(environment.get("python")))[:2]))
    method = run.header.loader.start_method
    if method is None:  # the default of that system and Python
        is_linux = str(environment.get("platform") or "Linux").startswith("Linux")
        method = ("forkserver" if version >= NO_FORK_SINCE else "fork") if is_linux else "spawn"
    found_ns = START_NS.get(method, START_NS["spawn"])
    return found_ns + (FORK_NS_PER_BYTE * _process_bytes(run) if method == "fork" else 0.0)


def _process_bytes(run: Run) -> float:
    """Of the training process, as far as it was read."""
    for one in run.readings:
        used = one.values.get("rss_bytes") if one.subject == "process" else None
        if used is not None and not np.isnan(used).all():
            return float(np.nanmax(used))
    return 0.0


def _tensors(run: Run) -> float | None:
    """Of a batch, on average; None where none were counted."""
    counted = np.concatenate([one.tensors for one in run.stages])
    counted = counted[counted != UNKNOWN]
    return float(counted.mean()) if len(counted) else None


def _called(run: Run) -> dict[str, float]:
    """Of each function that is called by what the user wrote, the share of fetching it runs for."""
    seen: Counter[str] = Counter()
    for one in run.code:
        for told, count in one.running.items():
            seen[told.partition(LEAF)[2]] += count
    total = sum(sum((*one.running.values(), *one.blocked.values())) for one in run.code)
    return {name: count / total for name, count in seen.items() if name}


def _worker_bytes(run: Run) -> float | None:
    """What one more worker takes; None where it was not read.

    The PSS of a worker falls with the processes that share what it was forked from, such as
    the workers of other loaders. So that is left out where the readings tell it: what is
    anonymous counts what is shared in full, and PSS a part of it for each of the workers and their
    parent. Mapped files are shared by all.
    """
    for one in run.readings:
        alive = one.values.get("alive_workers")
        if one.subject != "workers" or alive is None:
            continue
        unknown = np.full(len(alive), np.nan)
        names = ("pss_bytes", "pss_file_bytes", "anonymous_bytes", "rss_bytes")
        pss, of_files, anonymous, rss = (one.values.get(name, unknown) for name in names)
        own = np.maximum(((alive + 1) * (pss - of_files) - anonymous) / np.maximum(alive, 1), 0.0)
        for total in (own, pss, anonymous, rss):
            found = total[alive > 0] / alive[alive > 0]
            if not np.isnan(found).all():
                return float(np.nanmedian(found))
    return None


def _name(run: Run) -> str:
    return str(run.path or run.header.name)
