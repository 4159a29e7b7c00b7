"""Counting samples and bytes by looking at one place of a batch: exact, or unknown."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from loadeval import IterableAdapter, LoaderEvaluator, LoadevalWarning
from loadeval.core import counting
from loadeval.core.counting import BATCHES_PER_LEAF, OVERHEAD_LEAVES
from tests.scripted import register


class Pair(NamedTuple):
    x: Any
    y: Any


@dataclass
class Example:
    x: Any
    y: Any


def counts(batches: list[Any], **options: Any) -> list[tuple[int, int]]:
    evaluator = LoaderEvaluator(batches, **options)
    list(evaluator)
    steps = evaluator.recorded().steps
    return list(zip(steps.samples.tolist(), steps.nbytes.tolist(), strict=True))


def x_of(samples: int, width: int = 2) -> torch.Tensor:
    return torch.zeros(samples, width)


FORMS: dict[str, Callable[[Any], Any]] = {
    "tensor": lambda t: t,
    "array": lambda t: t.numpy(),
    "named tuple": lambda t: Pair(t, t),
    "dataclass": lambda t: Example(t, t),
    "object": lambda t: SimpleNamespace(x=t),
    "dict": lambda t: {"x": t, "names": ["a"] * len(t)},
    "dict in a dict": lambda t: {"a": {"x": t}, "b": [t]},
    "list of dicts": lambda t: [{"x": t, "y": t}] * 3,
    "UserDict": lambda t: UserDict({"x": t, "y": t}),
    "deep": lambda t: {"a": [{"b": (1, [t])}]},
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_samples_and_bytes_are_exact_in_batches_of_every_form(form: Any) -> None:
    adapter = IterableAdapter()
    batches = [form(x_of(n)) for n in [4] * 200 + [3, 5] * 20 + [4] * 10 + [1]]
    assert counts(batches) == [(adapter.samples(batch), adapter.nbytes(batch)) for batch in batches]


def test_bytes_are_verified_now_and_then() -> None:
    """A change of bytes alone, after many batches that were alike, is seen in the end."""
    period = BATCHES_PER_LEAF * (2 + OVERHEAD_LEAVES)
    wide = [{"labels": torch.zeros(4), "x": x_of(4, 3)}] * (3 * period)
    narrow = [{"labels": torch.zeros(4), "x": x_of(4)}] * (2 * period)
    sizes = [nbytes for _, nbytes in counts(wide + narrow)]
    assert set(sizes[: len(wide)]) == {64}
    late = sizes[len(wide) + period :]
    assert set(late) == {48, -1}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_batches_of_every_form_in_between_are_counted(form: Any) -> None:
    """One in the middle, or at the start, of batches of all other forms changes nothing."""
    others = [other(x_of(n)) for other in FORMS.values() for n in (3, 5)]
    batches = [batch for other in others for batch in (form(x_of(2)), other)]
    counted = [samples for samples, _ in counts(batches)]
    assert counted == [2, 3, 2, 5] * len(FORMS)


def test_a_count_that_fails_is_unknown_and_said_once() -> None:

    def fails(batch: Any) -> int:
        raise RuntimeError(f"no idea of {batch}")

    with pytest.warns(LoadevalWarning, match="no idea of 1") as said:
        assert counts([1, 2, 3], samples=fails) == [(-1, -1)] * 3
    assert len(said) == 1


class Frames(IterableAdapter):
    """Counts its own way, and fails at bytes."""

    def samples(self, batch: Any) -> int | None:  # noqa: ARG002 - the same for all
        return 99

    def nbytes(self, batch: Any) -> int | None:
        raise RuntimeError(f"no size of {batch}")


def test_an_adapters_own_rules_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, "builtins", Frames)
    with pytest.warns(LoadevalWarning, match="the bytes .* no size of .* from now on$") as said:
        assert counts([pair(4)] * 3) == [(99, -1)] * 3
    assert len(said) == 1


def pair(samples: int) -> dict[str, torch.Tensor]:
    return {"x": x_of(samples), "y": torch.zeros(samples)}


def test_what_holds_no_array_has_no_samples_and_no_bytes() -> None:
    assert counts([7, "text", None, ["a", 1], object(), {}]) == [(-1, -1)] * 6
    mixed = [[1, 2], [x_of(4), 2], [], [x_of(3)]]
    assert counts(mixed) == [(-1, -1), (4, 32), (-1, -1), (3, 24)]


WIDTHS = np.random.default_rng(0).integers(1, 99, 2_000).tolist()


@pytest.mark.parametrize(
    ("batches", "samples", "least_known"),
    [
        ([{"x": x_of(4, width), "y": x_of(4, 1)} for width in WIDTHS], 4, 2_000),
        ([{"labels": torch.zeros(4), "x": x_of(4, width)} for width in range(1, 500)], 4, 499),
        ([[b"x" * n, b"y"] for n in range(1, 300)], -1, 299),
    ],
    ids=["any width", "bytes that the first array does not tell", "byte strings"],
)
def test_bytes_are_exact_or_unknown(batches: list[Any], samples: int, least_known: int) -> None:
    """Bytes are added up of the first batches and now and then, where sizes keep changing."""
    adapter, counted = IterableAdapter(), counts(batches)
    assert {number for number, _ in counted} == {samples}
    exact = [adapter.nbytes(batch) for batch in batches]
    assert all(nbytes in {-1, size} for (_, nbytes), size in zip(counted, exact, strict=True))
    known = sum(nbytes != -1 for _, nbytes in counted)
    assert least_known // 40 <= known
    assert counted[0][1] == exact[0]


@pytest.mark.parametrize(
    ("batches", "answers", "nbytes"),
    [([pair(4)] * 3, [5, None, 7], 48), (["abc", "de"], [3, 2], -1)],
)
def test_the_users_count_wins(batches: list[Any], answers: list[int | None], nbytes: int) -> None:
    asked = iter(answers)
    expected = [(-1 if answer is None else answer, nbytes) for answer in answers]
    assert counts(batches, samples=lambda _: next(asked)) == expected


def test_a_change_of_structure_is_verified_at_once() -> None:
    """Batches of another one come for a short while, and have made another array the first."""
    usual, odd = [x_of(4), torch.zeros(7)], [None, torch.zeros(7)]
    batches = [usual] * 2000 + [odd] * 2 + [usual] * 1000
    assert [number for number, _ in counts(batches)] == [4] * 2000 + [7] * 2 + [4] * 1000


def test_of_batches_that_are_too_large_no_epoch_looks_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("loadeval.core.batch.MOST_NODES", 10)
    looked = list[Any]()
    survey = counting.survey
    monkeypatch.setattr(counting, "survey", lambda batch: looked.append(batch) or survey(batch))
    evaluator = LoaderEvaluator([list(range(20))] * 50)
    list(evaluator)
    first = len(looked)
    list(evaluator)
    assert len(looked) == first < 5
