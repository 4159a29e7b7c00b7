"""How much of a batch is padding, told by what people have in their batches, and for which."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from loadeval import LoaderEvaluator, Run, read_run
from loadeval.core.counting import MOST_BYTES, MOST_LEAVES, Padding, padding_of
from loadeval.estimate.metrics import FEWEST_PADDED

LENGTHS = torch.tensor([3, 9, 5, 4])
LENGTH = 12
HELD = torch.arange(LENGTH) < LENGTHS[:, None]
IDS = torch.where(HELD, torch.arange(5, 5 + LENGTH).expand(4, -1), 0)
EXPECTED = Padding(positions=48, padded=27, length=12, longest=9)


FORMS: dict[str, Any] = {
    "attention mask": {"input_ids": IDS, "attention_mask": HELD.long()},
    "NumPy": {"attention_mask": HELD.numpy()},
    "padding on the left": {"attention_mask": HELD.flip(1)},
    "key padding mask": {"src": IDS, "src_key_padding_mask": ~HELD},
    "lengths": {"x": IDS, "lengths": LENGTHS},
    "time first": {"x": IDS.T, "seq_lens": LENGTHS},
    "nested": {"net_input": {"src_tokens": IDS, "src_lengths": LENGTHS}, "ntokens": 21},
}


@pytest.mark.parametrize("batch", FORMS.values(), ids=FORMS)
def test_the_padding_is_told(batch: Any) -> None:
    assert padding_of(batch) == EXPECTED


def test_the_longest_sequence_tells_the_side_of_the_padding() -> None:
    """Which value is padding has no common meaning, and it may be on the left."""
    held = HELD[:, :9].flip(1)
    for mask in (held, ~held):
        assert padding_of({"padding_mask": mask}) == Padding(36, 15, 9, 9)


def test_a_spectrogram_is_padded_in_time() -> None:
    """Its other dimension has nothing to do with lengths."""
    lengths = torch.tensor([7, 30])
    expected = Padding(60, 23, 30, 30)
    for shape in ((2, 30, 80), (2, 80, 30), (30, 2, 80)):
        assert padding_of({"x": torch.zeros(shape), "lengths": lengths}) == expected


class Failing:
    """What fails when it is looked at."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


IMAGES = torch.zeros(8, 3, 16, 16)
GENERATOR = torch.Generator().manual_seed(0)
SOME = torch.rand(8, 80, generator=GENERATOR) < 0.1
UNTOLD: dict[str, Any] = {
    "token ids": {"labels": LENGTHS, "input_ids": IDS},
    "images and labels": (IMAGES, torch.arange(8)),
    "masked patches": {"pixels": IMAGES, "mask": SOME},
    "places that differ": {"padding_mask": torch.tensor([[0, 1], [1, 0]])},
    "scores": {"attention_mask": torch.where(HELD, 0.0, -1e9)},
    "causal": {"attention_mask": torch.ones(1, 5, 5, dtype=torch.bool)},
    "lengths of nothing": {"x": torch.zeros(9, 2, 3), "lengths": LENGTHS},
    "a mask on no CPU": {"attention_mask": HELD.to("meta")},
    "a large mask": {"attention_mask": torch.ones(1, dtype=torch.uint8).expand(2, MOST_BYTES)},
    "far inside": [*({"name": "a"} for _ in range(MOST_LEAVES)), {"attention_mask": HELD}],
    "text": "text",
    "failing": {"attention_mask": Failing()},
}


@pytest.mark.parametrize("batch", UNTOLD.values(), ids=UNTOLD)
def test_what_tells_no_padding_is_left_alone(batch: Any) -> None:
    assert padding_of(batch) is None


@pytest.mark.parametrize(
    "changed", [lambda mask: mask.resize_(99), lambda mask: mask.zero_()], ids=["resize", "zero"]
)
def test_a_tensor_can_be_changed_as_before(changed: Callable[[torch.Tensor], object]) -> None:
    """A tensor that was given to NumPy cannot be resized."""
    mask = HELD.long()
    version = mask._version
    padding_of({"attention_mask": mask})
    assert (mask._version, mask.tolist()) == (version, HELD.long().tolist())
    changed(mask)


def batch_of(length: int) -> dict[str, torch.Tensor]:
    """Four sequences, of which the longest has so many tokens, and the others one."""
    mask = torch.zeros(4, length, dtype=torch.long)
    mask[:, 0], mask[0] = 1, 1
    return {"input_ids": mask * 7, "attention_mask": mask}


def looked_at(run: Run) -> dict[tuple[int, int], int]:
    """The length of each batch whose padding is known, by epoch and number."""
    columns = (run.padding[name].tolist() for name in ("epoch", "batch", "length"))
    return {(epoch, number): length for epoch, number, length in zip(*columns, strict=True)}


VARIED = [2 + number % 50 for number in range(400)]


@pytest.mark.parametrize("is_constant", [True, False])
def test_few_batches_are_looked_at(is_constant: bool) -> None:
    lengths = [20] * 400 if is_constant else VARIED
    evaluator = LoaderEvaluator([batch_of(length) for length in lengths])
    list(evaluator)
    numbers = [number for _, number in looked_at(evaluator.recorded())]
    assert numbers[0] == 0
    assert FEWEST_PADDED <= len(numbers) <= len(set(lengths)) + 12


def test_both_arms_are_looked_at(tmp_path: Path) -> None:
    """In an alternating run a batch has its number among those that were served."""
    path = tmp_path / "run.jsonl"
    batches = [batch_of(length) for length in VARIED]
    evaluator = LoaderEvaluator(batches, mode="alternate", seed=0, log_file=path)
    served = [[batch["input_ids"].shape[1] for batch in evaluator] for _ in range(2)]
    evaluator.close()
    run = read_run(path)
    known = looked_at(run)
    assert all(length == served[epoch][number] for (epoch, number), length in known.items())
    arms = {int(run.steps.arm[epoch * len(batches) + number]) for epoch, number in known}
    assert arms == {0, 1}
