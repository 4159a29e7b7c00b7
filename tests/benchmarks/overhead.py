"""Nanoseconds added to each batch over a bare `for`: ours beside the floor and our peers.

Every subject serves the same 20,000 in-memory batches to a loop that does nothing, in one
process, in random order within each round; the table shows medians over the rounds. The floor
is the least that any logger can do: a generator with two clock readings and one append.
"""

from __future__ import annotations

import random
import statistics
import tempfile
from collections import deque
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from loadeval import LoaderEvaluator
from loadeval.measure.device import Starving
from loadeval.measure.stage import CHUNK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

BATCHES = 20_000
ROUNDS = 25
NUMBER = 7
CUDA = torch.cuda.is_available()
TENSORS = {"x": torch.zeros(8, 3, 4, 4), "y": torch.zeros(8, dtype=torch.long)}


class Batches:
    """A loader as quick as any: the same batch again and again."""

    def __init__(self, batch: Any) -> None:
        self.batch = batch

    def __len__(self) -> int:
        return BATCHES

    def __iter__(self) -> Iterator[Any]:
        batch = self.batch
        for _ in range(BATCHES):
            yield batch


def floor(loader: Iterable[Any]) -> Iterator[Any]:
    """Two clock readings and one append."""
    waits: list[int] = []
    iterator = iter(loader)
    while True:
        request = perf_counter_ns()
        try:
            batch = next(iterator)
        except StopIteration:
            return
        waits.append(perf_counter_ns() - request)
        yield batch


def replayed(loader: Batches) -> LoaderEvaluator:
    """Ours, replaying twenty batches."""
    return LoaderEvaluator(loader, mode="replay")


def logged_to_file(loader: Batches) -> LoaderEvaluator:
    """Ours, with a run log, whose thread shares the interpreter with the loop."""
    path = Path(tempfile.gettempdir()) / "loadeval-overhead.jsonl"
    return LoaderEvaluator(loader, log_file=path, overwrite=True)


def annotated(loader: Batches) -> LoaderEvaluator:
    """Ours, with ranges of torch's profiler, which is off."""
    return LoaderEvaluator(loader, annotate="torch")


class NoEvent:
    """Stands for an event of CUDA's where there is no device: what is left is our own part."""

    def record(self) -> None:
        """Note no time."""

    def query(self) -> bool:
        """It has always passed."""
        return True

    def elapsed_time(self, _: NoEvent) -> float:
        """No milliseconds."""
        return 0.0


def starving(loader: Batches) -> Iterator[Any]:
    """The loader, watched for the device's starving: two events for each batch."""
    event = partial(torch.cuda.Event, enable_timing=True) if CUDA else NoEvent
    found = Starving(0, event, deque())
    batches = found.watched(iter(loader))
    for _ in range(0, BATCHES, CHUNK):
        yield from islice(batches, CHUNK)
        found.take()


@dataclass(frozen=True)
class Subject:
    """Something to time: `make(loader)` is iterated once in each round."""

    name: str
    batch: Any
    make: Callable[[Any], Iterable[Any]]
    limit: float | None = None


def peer(module: str, name: str) -> Any:
    """A peer's class, or None when its package is not installed."""
    try:
        return getattr(import_module(module), name)
    except ImportError:
        return None


def subjects() -> list[Subject]:
    """What is timed, and the limit on its ratio to the floor where we promise one."""
    dali = peer("nvidia.dali.plugin.pytorch.loader_evaluator", "LoaderEvaluator")
    spdl = peer("spdl.dataloader", "CacheDataLoader")
    found = [
        Subject("bare for", TENSORS, iter),
        Subject("floor", TENSORS, floor),
        Subject("loadeval log, batches of one number", NUMBER, LoaderEvaluator, 1.5),
        Subject("loadeval log", TENSORS, LoaderEvaluator, 3.0),
        Subject("loadeval replay", TENSORS, replayed, 3.0),
        Subject("loadeval log, to a file", TENSORS, logged_to_file),
        Subject('loadeval log, annotate="torch"', TENSORS, annotated),
        Subject(
            f"starving alone, {'events on the device' if CUDA else 'no CUDA'}", NUMBER, starving
        ),
    ]
    if dali is not None:
        found.append(Subject("DALI LoaderEvaluator log", TENSORS, dali))
        found.append(Subject("DALI LoaderEvaluator replay", TENSORS, lambda b: dali(b, "replay")))
    if spdl is not None:
        found.append(Subject("SPDL CacheDataLoader", TENSORS, lambda b: spdl(b, 20, 20, BATCHES)))
    return found


def ns_per_batch(subject: Subject) -> float:
    """One round: the time of a loop over the subject, per batch."""
    iterable = subject.make(Batches(subject.batch))
    began = perf_counter_ns()
    for _ in iterable:
        pass
    return (perf_counter_ns() - began) / BATCHES


def measure(timed: list[Subject]) -> dict[str, float]:
    """Medians over the rounds of what each subject adds to the bare loop."""
    rounds: dict[str, list[float]] = {subject.name: [] for subject in timed}
    order = list(timed)
    for _ in track(range(ROUNDS), description="rounds"):
        random.shuffle(order)
        for subject in order:
            rounds[subject.name].append(ns_per_batch(subject))
    bare = rounds["bare for"]
    return {
        name: statistics.median(own - base for own, base in zip(times, bare, strict=True))
        for name, times in rounds.items()
    }


def cycles_by_arm() -> dict[str, float]:
    """Nanoseconds from request to request, by our own clock: logged, and inside blocks.

    Of numbers, since only a batch that was pulled ahead has memory to free.
    """
    found = {}
    logged = LoaderEvaluator(Batches(NUMBER))
    alternating = LoaderEvaluator(Batches(NUMBER), mode="alternate", batches=4000)
    for evaluator in (logged, alternating):
        for _ in evaluator:
            pass
    steps = logged.recorded().steps
    found["log"] = float(np.median(steps.wait_ns + steps.step_ns))
    steps = alternating.recorded().steps
    for code, arm in enumerate(("real", "ideal")):
        rows = (steps.arm == code) & (steps.pair >= 0)
        found[f"alternate, {arm} block"] = float(
            np.median(steps.wait_ns[rows] + steps.step_ns[rows])
        )
        found[f"alternate, {arm} block, wait"] = float(np.median(steps.wait_ns[rows]))
    found["log, wait"] = float(np.median(logged.recorded().steps.wait_ns))
    return dict(sorted(found.items()))


def main() -> None:
    """Print the tables."""
    timed = subjects()
    added = measure(timed)
    table = Table("each batch: a dict of two tensors", "added ns", "x floor", "limit")
    for subject in timed:
        ratio = added[subject.name] / added["floor"]
        limit = "" if subject.limit is None else f"{subject.limit:g}"
        table.add_row(subject.name, f"{added[subject.name]:,.0f}", f"{ratio:.2f}", limit)
    Console().print(table)
    inside = Table("inside blocks: median cycle by our own clock", "ns")
    for name, ns in cycles_by_arm().items():
        inside.add_row(name, f"{ns:,.0f}")
    Console().print(inside)


if __name__ == "__main__":
    main()
