"""Padding of some batches, where they are counted: which batches, and at no harm to any."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from loadeval import LoaderEvaluator, Run, read_run
from loadeval.estimate.metrics import FEWEST_PADDED


def batch_of(length: int, rows: int = 4) -> dict[str, torch.Tensor]:
    """Sequences of which the longest has so many tokens, and the others one."""
    mask = torch.zeros(rows, length, dtype=torch.long)
    mask[:, 0], mask[0] = 1, 1
    return {"input_ids": mask * 7, "attention_mask": mask}


def looked_at(run: Run) -> dict[tuple[int, int], int]:
    """The length of each batch whose padding is known, by epoch and number."""
    columns = (run.padding[name].tolist() for name in ("epoch", "batch", "length"))
    return {(epoch, number): length for epoch, number, length in zip(*columns, strict=True)}


def recorded(batches: Any, epochs: int = 1, **options: Any) -> Run:
    evaluator = LoaderEvaluator(batches, **options)
    for _ in range(epochs):
        list(evaluator)
    return evaluator.recorded()


LENGTHS = [2 + number % 50 for number in range(400)]


def test_padding_is_counted_exactly() -> None:
    padding = recorded([batch_of(10)] * 3).padding
    names = ("batch", "positions", "padded", "length", "longest")
    assert [int(padding[name][0]) for name in names] == [0, 40, 27, 10, 10]


@pytest.mark.parametrize("is_constant", [True, False])
def test_few_batches_are_looked_at(is_constant: bool) -> None:
    lengths = [20] * 400 if is_constant else LENGTHS
    numbers = [number for _, number in looked_at(recorded([batch_of(n) for n in lengths]))]
    assert numbers[0] == 0
    assert FEWEST_PADDED <= len(numbers) <= len(set(lengths)) + 12


def test_both_arms_are_looked_at(tmp_path: Path) -> None:
    """In an alternating run a batch has its number among those that were served."""
    path = tmp_path / "run.jsonl"
    batches = [batch_of(length) for length in LENGTHS]
    evaluator = LoaderEvaluator(batches, mode="alternate", seed=0, log_file=path)
    served = [[batch["input_ids"].shape[1] for batch in evaluator] for _ in range(2)]
    evaluator.close()
    run = read_run(path)
    known = looked_at(run)
    assert all(length == served[epoch][number] for (epoch, number), length in known.items())
    arms = {int(run.steps.arm[epoch * len(batches) + number]) for epoch, number in known}
    assert arms == {0, 1}
