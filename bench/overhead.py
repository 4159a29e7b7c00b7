"""Nanoseconds added to each batch over a bare `for`: ours beside the floor and our peers.

Every subject serves 20,000 batches in memory to a loop that does nothing, in one process, in
random order within each round; the tables show medians over the rounds. The floor is the least
that any logger can do: a generator with two clock readings and one append.
"""

from __future__ import annotations

import random
import statistics
import tempfile
from collections import deque
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import cycle, islice
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from loadeval import LoaderEvaluator

# Parts of the hot loop are timed by themselves, which no public name lets do.
from loadeval.core.cuda import GpuIdleTimer
from loadeval.core.loop import CHUNK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

BATCHES = 20_000
ROUNDS = 25
NUMBER = 7
CUDA = torch.cuda.is_available()
TENSORS = {"x": torch.zeros(8, 3, 4, 4), "y": torch.zeros(8, dtype=torch.long)}


class Batches:
    """A loader as quick as any: the same batches again and again."""

    def __init__(self, batches: list[Any]) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return BATCHES

    def __iter__(self) -> Iterator[Any]:
        return islice(cycle(self.batches), BATCHES)


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


def gpu_idle_timed(loader: Batches) -> Iterator[Any]:
    """The loader, with the GPU idle time in its waits measured: two events for each batch."""
    event = partial(torch.cuda.Event, enable_timing=True) if CUDA else NoEvent
    timer = GpuIdleTimer(0, event, deque())
    batches = timer.watched(iter(loader))
    for _ in range(0, BATCHES, CHUNK):
        yield from islice(batches, CHUNK)
        timer.take()


@dataclass(frozen=True)
class Subject:
    """Something to time: `make(loader)` is iterated once in each round."""

    name: str
    batches: list[Any]
    make: Callable[[Any], Iterable[Any]]
    limit: float | None = None


@dataclass(frozen=True)
class Kind:
    """Batches of one kind, and the limits in times the floor that we promise; None: none."""

    name: str
    batches: list[Any]
    log: float | None = 3.0
    replay: float | None = 3.0


@dataclass
class Example:
    """A batch with attributes."""

    x: torch.Tensor
    y: torch.Tensor
    z: torch.Tensor


def tokens(samples: int, width: int) -> dict[str, torch.Tensor]:
    """A batch of a language model."""
    names = ("input_ids", "attention_mask", "labels")
    return {name: torch.zeros(samples, width, dtype=torch.long) for name in names}


def kinds() -> list[Kind]:
    """Every kind of batch that we promise to be quick with, and then their neighbours.

    Fresh containers for a batch of more than eight leaves take what they take.
    """
    x, y = TENSORS.values()
    three = tokens(8, 16)
    eight = {f"key {number}": torch.zeros(8, 4) for number in range(8)}
    nested = {"image": {"pixels": x, "size": [y, y]}, "labels": y}
    return [
        Kind("number", [NUMBER], 1.5),
        Kind("tensor", [x]),
        Kind("NumPy array", [x.numpy()]),
        Kind("tuple of two", [(x, y)]),
        Kind("dict of two", [TENSORS]),
        Kind("dict of three", [three]),
        Kind("dict of eight", [eight]),
        Kind("nested dict with a list", [nested]),
        Kind("list of one dict, as DALI's", [[three]]),
        Kind("dataclass of three", [Example(*three.values())], replay=None),
        Kind("dict of three, any width", [tokens(8, n) for n in range(1, 100)], None, None),
        Kind("two structures in turn", [three, {"x": x, "y": y}], None, None),
    ]


def peer(module: str, name: str) -> Any:
    """A peer's class, or None when its package is not installed."""
    try:
        return getattr(import_module(module), name)
    except ImportError:
        return None


def subjects() -> list[Subject]:
    """What is timed with one kind of batch, and the limit where we promise one."""
    dali = peer("nvidia.dali.plugin.pytorch.loader_evaluator", "LoaderEvaluator")
    spdl = peer("spdl.dataloader", "CacheDataLoader")
    of_tensors, of_number = [TENSORS], [NUMBER]
    listed = [
        Subject("bare for", of_tensors, iter),
        Subject("floor", of_tensors, floor),
        Subject("loadeval log, to a file", of_tensors, logged_to_file),
        Subject('loadeval log, annotate="torch"', of_tensors, annotated),
        Subject(
            f"GPU idle time alone, {'events on the device' if CUDA else 'no CUDA'}",
            of_number,
            gpu_idle_timed,
        ),
    ]
    if dali is not None:
        listed.append(Subject("DALI LoaderEvaluator log", of_tensors, dali))
        listed.append(
            Subject("DALI LoaderEvaluator replay", of_tensors, lambda b: dali(b, "replay"))
        )
    if spdl is not None:
        listed.append(
            Subject("SPDL CacheDataLoader", of_tensors, lambda b: spdl(b, 20, 20, BATCHES))
        )
    return listed


def subjects_of(kind: Kind) -> list[Subject]:
    """Log and replay of one kind of batch."""
    return [
        Subject(f"log, {kind.name}", kind.batches, LoaderEvaluator, kind.log),
        Subject(f"replay, {kind.name}", kind.batches, replayed, kind.replay),
    ]


def ns_per_batch(subject: Subject) -> float:
    """One round: the time of a loop over the subject, per batch."""
    iterable = subject.make(Batches(subject.batches))
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


def iterations_by_arm() -> dict[str, float]:
    """Nanoseconds from request to request, by our own clock: logged, and inside blocks.

    Of numbers, since only a batch that was prefetched ahead has memory to free.
    """
    medians_ns = {}
    logged = LoaderEvaluator(Batches([NUMBER]))
    alternating = LoaderEvaluator(Batches([NUMBER]), mode="alternate", batches=4000)
    for evaluator in (logged, alternating):
        for _ in evaluator:
            pass
    steps = logged.recorded().steps
    medians_ns["log"] = float(np.median(steps.wait_ns + steps.step_ns))
    steps = alternating.recorded().steps
    for code, arm in enumerate(("real", "ideal")):
        rows = (steps.arm == code) & (steps.pair >= 0)
        medians_ns[f"alternate, {arm} block"] = float(
            np.median(steps.wait_ns[rows] + steps.step_ns[rows])
        )
        medians_ns[f"alternate, {arm} block, wait"] = float(np.median(steps.wait_ns[rows]))
    medians_ns["log, wait"] = float(np.median(logged.recorded().steps.wait_ns))
    return dict(sorted(medians_ns.items()))


def table_of(title: str, timed: list[Subject], added: dict[str, float]) -> Table:
    """A row for each subject; MISSED where it takes longer than its limit."""
    table = Table(title, "added ns", "x floor", "limit", "")
    for subject in timed:
        ratio = added[subject.name] / added["floor"]
        limit = "" if subject.limit is None else f"{subject.limit:g}"
        missed = "MISSED" if subject.limit is not None and ratio > subject.limit else ""
        table.add_row(subject.name, f"{added[subject.name]:,.0f}", f"{ratio:.2f}", limit, missed)
    return table


def main() -> None:
    """Print the tables."""
    by_kind = [subject for kind in kinds() for subject in subjects_of(kind)]
    by_mode = subjects()
    added = measure([*by_mode, *by_kind])
    console = Console()
    console.print(table_of("a dict of two tensors", by_mode, added))
    for mode in ("log", "replay"):
        of_mode = [subject for subject in by_kind if subject.name.startswith(mode)]
        console.print(table_of("loadeval, by kind of batch", of_mode, added))
    inside = Table("inside blocks: median iteration by our own clock", "ns")
    for name, ns in iterations_by_arm().items():
        inside.add_row(name, f"{ns:,.0f}")
    console.print(inside)


if __name__ == "__main__":
    main()
