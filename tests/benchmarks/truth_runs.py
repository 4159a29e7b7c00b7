"""The speed-up of one case: measured apart, by our alternating run, and by our peers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from nvidia.dali.plugin.pytorch.loader_evaluator import LoaderEvaluator as DALIEvaluator
from spdl.dataloader import CacheDataLoader

from loadeval import LoaderEvaluator

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from loadeval.analysis.headroom import Headroom
    from tests.benchmarks.truth_cases import Case
    from tests.benchmarks.truth_loaders import Step

OUR_BATCHES = 200
PEERS_BATCHES = 100
MORE = 8
"""Batches that a bare loop leaves in the loader, so that its workers are busy to the end."""
UNSETTLED = 5
"""Batches at the start of an epoch that are left out of the truth: a queue of four, and one."""
CACHED = 20
CORE = 0


@dataclass
class Truth:
    """Seconds, one entry for each time that both paces were measured."""

    real_s: list[float] = field(default_factory=list)
    ideal_s: list[float] = field(default_factory=list)
    epoch_start_s: list[float] = field(default_factory=list)

    def again(self, case: Case) -> None:
        """Measure both paces once more."""
        count = case.truth_batches
        epoch_start_s, real_s = bare(case, case.loader(count + MORE))
        self.epoch_start_s.append(epoch_start_s)
        self.real_s.append(real_s)
        kept = [case.content(index) for index in reversed(range(count))]
        self.ideal_s.append(bare(case, emptied(kept))[1])

    @property
    def value(self) -> float:
        return sum(self.real_s) / sum(self.ideal_s)

    @property
    def spread(self) -> tuple[float, float]:
        ratios = [real / ideal for real, ideal in zip(self.real_s, self.ideal_s, strict=True)]
        return min(ratios), max(ratios)

    def of_epoch(self, batches: int) -> float:
        """With epoch start, which free loading would not have."""
        opening = sum(self.epoch_start_s) / batches
        return (opening + sum(self.real_s)) / sum(self.ideal_s)


def emptied(kept: list[Any]) -> Iterator[Any]:
    """The batches of a reversed list, none of which is held once it is handed out."""
    while kept:
        yield kept.pop()


def bare(case: Case, batches: Iterable[Any]) -> tuple[float, float]:
    """Seconds to the first batch, and per batch in steady state."""
    step, asked = case.step(case.truth_batches), time.perf_counter()
    delivered, ended = [], []
    for batch in islice(batches, case.truth_batches):
        delivered.append(time.perf_counter())
        step(batch)
        del batch
        ended.append(time.perf_counter())
    settled_s = ended[-1] - ended[UNSETTLED - 1]
    return delivered[0] - asked, settled_s / (len(ended) - UNSETTLED)


@contextmanager
def disturbed(step: Step, batches: int) -> Iterator[Step]:
    """`step` on one core, which another process shares in the middle third of `batches`."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {CORE})  # the burner inherits it
    burners: list[subprocess.Popen[bytes]] = []
    served = 0

    def counting(batch: Any) -> None:
        nonlocal served
        if served == batches // 3:
            burners.append(subprocess.Popen([sys.executable, "-Sc", "while True: pass"]))
        if served == 2 * batches // 3:
            burners[0].kill()
        served += 1
        step(batch)

    try:
        yield counting
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()
        os.sched_setaffinity(0, before)


def steps(case: Case, batches: int, runs: int = 1) -> Any:
    """The step of `runs` runs, each of `batches`, as a context."""
    one = case.step(batches)
    return disturbed(one, batches * runs) if case.drifts else nullcontext(one)


def alternating(case: Case) -> Headroom:
    """Ours: one training loop."""
    with (
        LoaderEvaluator(case.loader(OUR_BATCHES), mode="alternate") as loader,
        steps(case, OUR_BATCHES) as step,
    ):
        for batch in loader:
            step(batch)
            del batch
        return loader.headroom()


def total_s(batches: Iterable[Any], step: Step) -> float:
    """Seconds of a whole loop."""
    began = time.perf_counter()
    for batch in batches:
        step(batch)
        del batch
    return time.perf_counter() - began


def dali(case: Case) -> float:
    """As its tutorial does: the total of a log run over that of a replay run."""
    count = PEERS_BATCHES
    with steps(case, count, runs=2) as step:
        real_s = total_s(DALIEvaluator(case.loader(count), mode="log"), step)
        replay = DALIEvaluator(case.loader(count), mode="replay", num_cached_batches=CACHED)
        return real_s / total_s(replay, step)


def spdl(case: Case) -> float:
    """A run's mean iteration over that of a second run, once it is served from the cache."""
    count = PEERS_BATCHES
    with steps(case, count, runs=2) as step:
        real_s = total_s(case.loader(count), step) / count
        cached = iter(CacheDataLoader(case.loader(count), CACHED, CACHED, count))
        total_s(islice(cached, CACHED), step)
        return real_s / (total_s(cached, step) / (count - CACHED))
