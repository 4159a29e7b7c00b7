"""Samples and bytes: counted exactly, or unknown."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from loadeval import IterableAdapter, LoaderEvaluator, LoadevalWarning
from loadeval.runtime.counting import Counter


def counts(batches: list[Any], **options: Any) -> list[tuple[int, int]]:
    evaluator = LoaderEvaluator(batches, **options)
    list(evaluator)
    steps = evaluator.recorded().steps
    return list(zip(steps.samples.tolist(), steps.nbytes.tolist(), strict=True))


def pair(samples: int, width: int = 2) -> dict[str, torch.Tensor]:
    return {"x": torch.zeros(samples, width), "y": torch.zeros(samples)}


def test_inputs_and_labels_are_counted_by_the_first_dimension() -> None:
    """Dicts, lists and tuples of inputs and labels count alike."""
    for form in (dict, lambda batch: list(batch.values()), lambda batch: tuple(batch.values())):
        assert counts([form(pair(4))] * 2) == [(4, 48), (4, 48)]


def test_a_short_last_batch_counts_for_what_it_is() -> None:
    """Each batch is counted, not the first one taken for all."""
    assert counts([pair(4), pair(4), pair(1)]) == [(4, 48), (4, 48), (1, 12)]


def test_inputs_of_varying_width_are_counted() -> None:
    """A batch of other shapes is counted anew, also when its labels stay the same."""
    assert counts([pair(4, 2), pair(4, 5), pair(4, 2)]) == [(4, 48), (4, 96), (4, 48)]


def test_batches_of_another_kind_in_between_are_counted() -> None:
    """A batch that is not like the first one is counted all the same."""
    odd: list[Any] = [pair(4), {"x": torch.zeros(3, 2)}, pair(4) | {"z": torch.zeros(4)}, pair(4)]
    assert counts(odd) == [(4, 48), (3, 24), (4, 64), (4, 48)]


def test_labels_of_several_dimensions_are_counted() -> None:
    """Two arrays, none of one dimension, are counted batch by batch."""
    batches = [(np.zeros((n, 2)), np.zeros((n, 3))) for n in (4, 6)]
    assert counts(batches) == [(4, 160), (6, 240)]


def test_equal_bytes_of_other_shapes_are_told_apart() -> None:
    """8 x 50 and 10 x 40 tokens take the same bytes, and are 8 and 10 samples."""
    batches = [{"ids": torch.zeros(*s), "mask": torch.zeros(*s)} for s in ((8, 50), (10, 40))]
    assert [samples for samples, _ in counts(batches)] == [8, 10]


def test_nested_batches_are_counted() -> None:
    """Samples are the first dimension of the first array; bytes are those of all."""
    batch = [{"image": torch.zeros(4, 2), "meta": ["a", b"bc"]}, np.zeros(4)]
    assert counts([batch]) == [(4, 32 + 2 + 32)]


def test_scalars_have_no_samples() -> None:
    """An array without dimensions says nothing about samples, its bytes are known."""
    assert counts([[torch.tensor(1.0)]]) == [(-1, 4)]


@pytest.mark.parametrize(
    "batch", [7, "text", None, ["a", 1], pytest.param(object(), id="an object")], ids=repr
)
def test_what_cannot_be_counted_is_unknown(batch: Any) -> None:
    """Without an array samples and bytes are unknown, not 0 and not 1."""
    assert counts([batch]) == [(-1, -1)]


def test_the_users_count_wins() -> None:
    """samples= is asked for each batch, and may say that it does not know."""
    answers = iter([5, None, 7])
    assert counts([pair(4)] * 3, samples=lambda _: next(answers)) == [(5, 48), (-1, 48), (7, 48)]


def test_plain_values_are_counted_by_the_user() -> None:
    """samples= works on batches in which loadeval finds nothing to count."""
    assert counts(["abc", "de"], samples=len) == [(3, -1), (2, -1)]


def test_a_count_that_fails_is_unknown_and_said_once() -> None:
    """A samples= that raises ends no training run: unknown from there on."""

    def fails(batch: Any) -> int:
        raise RuntimeError(f"no idea of {batch}")

    with pytest.warns(LoadevalWarning, match="no idea of 1") as said:
        assert counts([1, 2, 3], samples=fails) == [(-1, -1)] * 3
    assert len(said) == 1


def test_bytes_that_fail_are_unknown_and_said_once() -> None:
    """An adapter whose count of bytes raises has its samples all the same."""

    class Sizeless(IterableAdapter):
        def nbytes(self, batch: Any) -> int | None:
            raise RuntimeError(f"no size of {batch}")

    counter = Counter(Sizeless(), None)
    with pytest.warns(LoadevalWarning, match="no size of") as said:
        assert [counter.count(pair(4)) for _ in range(3)] == [(4, -1)] * 3
    assert len(said) == 1


def test_an_adapters_own_rules_are_asked() -> None:
    """An adapter that counts its own way is not bypassed by the quick way."""

    class Frames(IterableAdapter):
        def samples(self, batch: Any) -> int | None:  # noqa: ARG002 - the same for all
            return 99

    count = Counter(Frames(), None).best_for(pair(4))
    assert count is not None
    assert count(pair(4)) == (99, 48)


def test_counts_are_the_same_object_while_nothing_changes() -> None:
    """The hot loop sees by identity that a count did not change."""
    for batches in ([pair(4), pair(4)], [[1, b"ab"], [1, b"ab"]]):
        count = Counter(IterableAdapter(), None).best_for(batches[0])
        assert count is not None
        assert count(batches[0]) is count(batches[1])
