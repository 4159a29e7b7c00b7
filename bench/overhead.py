"""Nanoseconds added to each batch over a bare `for`: ours beside the floor and our peers.

Every subject serves 20,000 batches in memory to a loop that does nothing, in one process, in
random order within each round; the table shows medians over the rounds. The floor is the least
that any logger can do: a generator with two clock readings and one append.
"""

import random
import statistics
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import torch

from bench.tables import show
from bench.zoo.programs import Again
from loadeval import LoaderEvaluator

BATCHES = 20_000
ROUNDS = 25
X, Y = torch.zeros(8, 3, 4, 4), torch.zeros(8, dtype=torch.long)
TWO = {"x": X, "y": Y}


@dataclass
class Example:
    x: torch.Tensor
    y: torch.Tensor
    z: torch.Tensor


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


def tokens(samples: int, width: int) -> dict[str, torch.Tensor]:
    names = ("input_ids", "attention_mask", "labels")
    return {name: torch.zeros(samples, width, dtype=torch.long) for name in names}


Subject = tuple[Callable[[Any], Iterable[Any]], list[Any], float | None]
"""Something to time, of these batches, and the limit in times the floor that we aim at."""


def subjects() -> dict[str, Subject]:
    """Every kind of batch that we aim to be quick with, and then their neighbours.

    Fresh containers for a batch of more than eight leaves take what they take.
    """
    three = tokens(8, 16)
    eight = {f"key {number}": torch.zeros(8, 4) for number in range(8)}
    nested = {"image": {"pixels": X, "size": [Y, Y]}, "labels": Y}
    kinds: dict[str, list[Any]] = {
        "number": [7],
        "tensor": [X],
        "NumPy array": [X.numpy()],
        "tuple of two": [(X, Y)],
        "dict of two": [TWO],
        "dict of three": [three],
        "dict of eight": [eight],
        "nested dict with a list": [nested],
        "list of one dict, as DALI's": [[three]],
        "dataclass of three": [Example(*three.values())],
        "dict of three, any width": [tokens(8, width) for width in range(1, 100)],
        "two structures in turn": [three, TWO],
    }
    file = {"log_file": Path(tempfile.gettempdir()) / "loadeval-overhead.jsonl", "overwrite": True}
    found: dict[str, Subject] = {
        "bare for": (iter, [TWO], None),
        "floor": (floor, [TWO], None),
        "log, to a file": (partial(LoaderEvaluator, **file), [TWO], None),
        'log, annotate="torch"': (partial(LoaderEvaluator, annotate="torch"), [TWO], None),
    }
    for kind, batches in kinds.items():
        aim = None if len(batches) > 1 else 3.0
        found[f"log, {kind}"] = LoaderEvaluator, batches, 1.5 if kind == "number" else aim
        found[f"replay, {kind}"] = partial(LoaderEvaluator, mode="replay"), batches, aim
    try:
        dali = import_module("nvidia.dali.plugin.pytorch.loader_evaluator").LoaderEvaluator
        found["DALI LoaderEvaluator log"] = dali, [TWO], None
        found["DALI LoaderEvaluator replay"] = partial(dali, mode="replay"), [TWO], None
        spdl = import_module("spdl.dataloader").CacheDataLoader
        found["SPDL CacheDataLoader"] = lambda loader: spdl(loader, 20, 20, BATCHES), [TWO], None
    except ImportError as error:
        print(f"not all peers are here: {error}")
    return found


def main() -> None:
    """Print the table; MISSED where something takes longer than its limit."""
    timed = subjects()
    rounds: dict[str, list[float]] = {name: [] for name in timed}
    for _ in range(ROUNDS):
        for name in random.sample(list(timed), len(timed)):
            make, batches, _ = timed[name]
            iterable = make(Again(batches, BATCHES))
            began = perf_counter_ns()
            for _ in iterable:
                pass
            rounds[name].append((perf_counter_ns() - began) / BATCHES)
    bare = rounds.pop("bare for")
    added = {
        name: statistics.median(own - base for own, base in zip(times, bare, strict=True))
        for name, times in rounds.items()
    }
    rows = []
    for name, ns in added.items():
        ratio, limit = ns / added["floor"], timed[name][2]
        missed = limit is not None and ratio > limit
        cells = (f"{ns:,.0f}", f"{ratio:.2f}", "" if limit is None else f"{limit:g}")
        rows.append((name, *cells, "MISSED" if missed else ""))
    show(("", "added ns", "x floor", "limit", ""), rows)


if __name__ == "__main__":
    main()
