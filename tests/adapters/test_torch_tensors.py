"""How many tensors a batch has, and who reads a loader, as a run log of it tells."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import pytest
import torch
from torch.utils.data import DataLoader

from loadeval import LoaderEvaluator
from loadeval_adapters.torch_trace.iterators import COUNTED, tensors_in
from tests.runs.tables import rows_of

ONE = torch.zeros(2)


class Pair(NamedTuple):
    first: Any
    second: Any


class Graph:
    """Keeps its tensors as PyTorch Geometric's data does: a store, which knows its parent."""

    def __init__(self, *tensors: torch.Tensor) -> None:
        self.store = {"tensors": list(tensors), "parent": self}


@pytest.mark.parametrize(
    ("batch", "count"),
    [
        (ONE, 1),
        ([torch.zeros(2), {"y": torch.zeros(2), "n": 3}], 2),
        ([ONE, ONE], 1),
        (Pair(torch.zeros(1), (torch.zeros(1),)), 2),
        (Graph(torch.zeros(1), torch.zeros(1), torch.zeros(1)), 3),
        ([None, "text", 1.5], 0),
        ([object() for _ in range(200_000)], None),
    ],
)
def test_tensors_of_a_batch(batch: Any, count: int | None) -> None:
    """Each counts once, wherever it is; a module is no part of a batch."""
    assert tensors_in(batch) == count


def loader(**settings: Any) -> DataLoader[Any]:
    return DataLoader([(torch.zeros(2), torch.zeros(1))] * 8, **settings)  # type: ignore[arg-type]


def test_the_first_batches_of_each_epoch_are_counted() -> None:
    """Only the training process counts them; for workers it is known what passing a batch takes."""
    with LoaderEvaluator(loader(), mode="log", stages=True) as evaluator:
        for _ in range(2):
            list(evaluator)
        run = evaluator.recorded()
    counted = [2] * COUNTED + [-1] * (8 - COUNTED)
    assert [stages.tensors.tolist() for stages in rows_of(run)] == [counted] * 2


def test_a_loader_that_another_thread_reads() -> None:
    """Is an event, once; the main thread's reading is none."""

    def read() -> None:
        for _ in range(2):
            list(evaluator)

    with LoaderEvaluator(loader(), mode="log", stages=True) as evaluator:
        list(evaluator)
        before = len(evaluator.recorded().events)
        thread = threading.Thread(target=read)
        thread.start()
        thread.join()
        events = evaluator.recorded().events
    assert before == 0
    assert [event.kind for event in events] == ["read in a thread"]
