"""What an epoch held is let go with it: a loader's iterator has worker processes."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import torch

from loadeval import LoaderEvaluator


class Loader:
    """Remembers its iterators, but does not keep them."""

    def __init__(self) -> None:
        self.made: list[weakref.ref[Any]] = []

    def __iter__(self) -> Iterator[torch.Tensor]:
        iterator = (torch.zeros(2) for _ in range(60))
        self.made.append(weakref.ref(iterator))
        return iterator

    def __len__(self) -> int:
        return 60


@pytest.mark.parametrize("annotate", [None, "torch"])
@pytest.mark.parametrize(
    "options", [{"mode": "log"}, {"mode": "alternate", "pairs": 10}], ids=["log", "alternate"]
)
@pytest.mark.parametrize("most", [None, 5], ids=["exhausted", "broken off"])
def test_an_iterator_is_let_go_with_its_epoch(
    options: dict[str, Any], annotate: str | None, most: int | None
) -> None:
    """The garbage collector is not needed, which a process may have switched off."""
    loader = Loader()
    gc.disable()
    try:
        with LoaderEvaluator(loader, annotate=annotate, probes=(), **options) as evaluator:
            for _ in range(3):
                for _ in islice(evaluator, most):
                    pass
                assert [reference() for reference in loader.made] == [None] * len(loader.made)
    finally:
        gc.enable()
    assert len(loader.made) == 3


def test_kept_batches_are_let_go_with_the_evaluator() -> None:
    """Those of a GPU take its memory."""
    gc.disable()
    try:
        evaluator = LoaderEvaluator(Loader(), "replay", 3, probes=())
        kept = [weakref.ref(batch) for batch in evaluator.cached_batches]
        assert [len(list(evaluator)) for _ in range(2)] == [60, 60]
        del evaluator
        assert [reference() for reference in kept] == [None] * 3
    finally:
        gc.enable()
