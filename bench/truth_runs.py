"""The speed-up of one case: measured apart by bare loops, by our alternating run, and by peers."""

import mmap
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from bench.judge import Said, compared, page_faults
from bench.zoo.truth import Case
from loadeval import LoaderEvaluator

Step = Callable[[Any], object]

UNSETTLED = 5
"""The fewest batches in memory that are stepped over before the timed ones."""
WARM_S = 0.25
"""The shortest warm-up: until CPU caches and allocator have settled."""
ENOUGH = 100
"""Batches in memory at most: steps vary less than loading does."""
CACHED = 20


@dataclass
class Truth:
    """Seconds per batch, one entry for each time that both paces were measured."""

    real_s: list[float] = field(default_factory=list)
    ideal_s: list[float] = field(default_factory=list)

    def again(self, case: Case) -> None:
        """Measure both paces once more: whole epochs of the loader, and memory's steady state."""
        epochs = case.truth_epochs or case.epochs
        with steps(case, case.batches, epochs) as step:
            real_s = epochs_s(case.loader(case.batches), step, epochs)
        self.real_s.append(real_s / (epochs * case.batches))
        count = min(case.batches, ENOUGH)
        kept = outside_heap(map(case.content, range(count)))
        warm_up, began_s = case.step(count), time.perf_counter()
        for number, batch in enumerate(served(kept)):
            if number >= UNSETTLED and time.perf_counter() - began_s >= WARM_S:
                break
            warm_up(batch)
        with steps(case, count) as step:
            self.ideal_s.append(total_s(served(kept), step) / count)

    @property
    def value(self) -> float:
        return sum(self.real_s) / sum(self.ideal_s)

    @property
    def spread(self) -> tuple[float, float]:
        ratios = [real / ideal for real, ideal in zip(self.real_s, self.ideal_s, strict=True)]
        return min(ratios), max(ratios)

    @property
    def of_two_runs(self) -> float:
        """What one run with the loader and one over batches in memory say, made by hand."""
        return self.real_s[0] / self.ideal_s[0]


@dataclass(frozen=True)
class Ours:
    """`page_faults` are those of a real and of an ideal batch, where they were counted."""

    said: Said
    elapsed_s: float
    page_faults: tuple[float | None, float | None]


def outside_heap(batches: Iterable[Any]) -> list[Any]:
    """Copies in mapped memory, one of each tensor.

    On the C heap they would change what a step's own allocations find there, and so how many page
    faults it meets.
    """
    copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def copied(leaf: torch.Tensor) -> torch.Tensor:
        if id(leaf) not in copies:
            region = torch.frombuffer(mmap.mmap(-1, leaf.nbytes), dtype=leaf.dtype)
            # The original is held too, or another could get its id.
            copies[id(leaf)] = leaf, region.reshape(leaf.shape).copy_(leaf)
        return copies[id(leaf)][1]

    return [
        {key: copied(leaf) for key, leaf in batch.items()}
        if isinstance(batch, dict)
        else copied(batch)
        for batch in batches
    ]


def served(kept: list[Any]) -> Iterator[Any]:
    """Each batch, its dictionary anew: what a step puts in there goes when the step is over."""
    for batch in kept:
        yield dict(batch) if isinstance(batch, dict) else batch


def total_s(batches: Iterable[Any], step: Step) -> float:
    began = time.perf_counter()
    for batch in batches:
        step(batch)
        del batch
    return time.perf_counter() - began


def epochs_s(loader: Any, step: Step, epochs: int) -> float:
    """Seconds of whole epochs, from each one's `iter()` to its StopIteration."""
    return sum(total_s(loader, step) for _ in range(epochs))


@contextmanager
def steps(case: Case, batches: int, runs: int = 1) -> Iterator[Step]:
    """The step of `runs` runs, each of `batches`.

    In a case that drifts it is on one core, which another process shares in the middle third.
    """
    step = case.step(batches)
    if not case.drifts:
        yield step
        return
    before, total = os.sched_getaffinity(0), batches * runs
    os.sched_setaffinity(0, {min(before)})  # the burner inherits it
    burners: list[subprocess.Popen[bytes]] = []
    count = 0

    def disturbed(batch: Any) -> None:
        nonlocal count
        if count == total // 3:
            burners.append(subprocess.Popen([sys.executable, "-Sc", "while True: pass"]))
        if count == 2 * total // 3:
            burners[0].kill()
        count += 1
        step(batch)

    try:
        yield disturbed
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()
        os.sched_setaffinity(0, before)


def alternating(case: Case) -> Ours:
    with TemporaryDirectory() as folder:
        log = Path(folder) / "run.jsonl"
        with (
            LoaderEvaluator(case.loader(case.batches), mode="alternate", log_file=log) as loader,
            steps(case, case.batches, case.epochs) as step,
        ):
            elapsed_s = epochs_s(loader, step, case.epochs)
        both = page_faults(log, "real"), page_faults(log, "ideal")
        return Ours(compared(log), elapsed_s, both)


def dali(case: Case) -> float:
    """What DALI's tutorial computes: the total of a log run over that of a replay run."""
    from nvidia.dali.plugin.pytorch import loader_evaluator

    count = min(case.peers_batches, case.batches)
    with steps(case, count, runs=2) as step:
        evaluator = loader_evaluator.LoaderEvaluator
        real_s = total_s(evaluator(case.loader(count), mode="log"), step)
        replay = evaluator(case.loader(count), mode="replay", num_cached_batches=CACHED)
        return real_s / total_s(replay, step)


def spdl(case: Case) -> float:
    """A run's mean iteration over that of a second run, once SPDL serves it from its cache."""
    from spdl.dataloader import CacheDataLoader

    count = min(case.peers_batches, case.batches)
    kept = min(CACHED, count // 2)
    with steps(case, count, runs=2) as step:
        real_s = total_s(case.loader(count), step) / count
        cached = iter(CacheDataLoader(case.loader(count), kept, kept, count))
        total_s(islice(cached, kept), step)
        return real_s / (total_s(cached, step) / (count - kept))
