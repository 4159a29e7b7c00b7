"""Batches that are odd graphs of objects, and loaders that do not say how long they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from loadeval import LoaderEvaluator, read_run

BATCHES = 30


class Node:
    """A tree whose nodes know their parents."""

    def __init__(self, depth: int, parent: Node | None = None) -> None:
        self.parent = parent
        self.value = torch.ones(2)
        self.children = [Node(depth - 1, self) for _ in range(2)] if depth else []


def in_itself() -> Any:
    batch: list[Any] = [torch.ones(4, 2)]
    batch.append(batch)
    return batch


def doubling() -> Any:
    """A list that stands twice in the next one, sixty times: each visit would double."""
    batch: Any = [torch.ones(4)]
    for _ in range(60):
        batch = [batch, batch]
    return batch


ODD = {
    "a list in itself": in_itself,
    "a tree with parents": lambda: Node(6),
    "a list shared sixty times over": doubling,
    "many numbers": lambda: list(range(101_000)),
}


def trained_on(loader: Any, tmp_path: Path, mode: str) -> list[Any]:
    """The batches that a training gets, whose log can be read."""
    log = tmp_path / "run.jsonl"
    with LoaderEvaluator(loader, mode=mode, log_file=log, probes=()) as evaluator:
        got = [batch for batch in evaluator]  # noqa: C416 - list() would ask for the length
    assert read_run(log).batches == len(got)
    return got


@pytest.mark.filterwarnings("ignore:batches hold what cannot be copied")
@pytest.mark.parametrize("mode", ["log", "alternate"])
@pytest.mark.parametrize("batch", ODD.values(), ids=ODD)
def test_any_graph_of_objects_is_served(batch: Any, mode: str, tmp_path: Path) -> None:
    """Bounded in depth, objects and time: the training goes on, with as many batches."""
    batches = [batch() for _ in range(BATCHES)]
    got = trained_on(batches, tmp_path, mode)
    assert len(got) == BATCHES
    assert all(type(served) is type(batches[0]) for served in got)
    if mode == "log":
        assert all(served is sent for served, sent in zip(got, batches, strict=True))


@pytest.mark.parametrize("samples", [2**80, -5, 4.0, "four"])
def test_an_odd_number_of_samples_is_unknown(samples: Any, tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    with LoaderEvaluator([torch.ones(4)] * 5, samples=lambda _: samples, log_file=log) as evaluator:
        assert len(list(evaluator)) == 5
    assert read_run(log).batches == 5
