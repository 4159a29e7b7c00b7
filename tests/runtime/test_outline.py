"""Counting that looks at one place of a batch: samples exact, bytes exact or unknown."""

from __future__ import annotations

from collections import UserDict
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
import torch

from loadeval import IterableAdapter, LoaderEvaluator
from loadeval.runtime import counting
from loadeval.runtime.batch import survey
from loadeval.runtime.counting import BESIDES, OFTEN, SELDOM, SPARE, Counter

if TYPE_CHECKING:
    from collections.abc import Callable


class Pair(NamedTuple):
    x: Any
    y: Any


@dataclass
class Example:
    x: Any
    y: Any


class Refusing(dict[str, Any]):
    """A dict whose items come out of `values` alone."""

    def __getitem__(self, key: str) -> Any:
        raise RuntimeError(key)


class Odd:
    """What is neither a tuple nor comparable with one."""

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return 1

    def __getitem__(self, place: int) -> int:
        return self.samples


class Shaped:
    """An array of another framework, whose shape is no tuple."""

    dtype, nbytes = "float32", 4

    def __init__(self, samples: int) -> None:
        self.shape = Odd(samples)


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
    "list": lambda t: [t, t],
    "named tuple": lambda t: Pair(t, t),
    "dataclass": lambda t: Example(t, t),
    "object": lambda t: SimpleNamespace(x=t),
    "dict": lambda t: {"x": t, "names": ["a"] * len(t)},
    "dict in a dict": lambda t: {"a": {"x": t}, "b": [t]},
    "list of dicts": lambda t: [{"x": t, "y": t}] * 3,
    "UserDict": lambda t: UserDict({"x": t, "y": t}),
    "UserDict in a tuple": lambda t: (UserDict({"x": t}), t),
    "deep": lambda t: {"a": [{"b": (1, [t])}]},
    "dotted name": lambda t: SimpleNamespace(**{"a.b": t}),
    "dict that refuses": lambda t: Refusing(x=t),
    "shape that is no tuple": lambda t: [Shaped(len(t))],
    "sparse": lambda t: [(t + 1).to_sparse()],
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_samples_are_exact_in_batches_of_every_form(form: Any) -> None:
    """Whatever the container, each batch has the samples that it has, the last one too."""
    sizes = [4] * 30 + [3, 5] * 20 + [4] * 10 + [1]
    assert [samples for samples, _ in counts([form(x_of(n)) for n in sizes])] == sizes


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_bytes_are_exact_in_batches_that_are_alike(form: Any) -> None:
    """They are known of every batch, the short last one included."""
    adapter = IterableAdapter()
    batches = [form(x_of(4)) for _ in range(200)] + [form(x_of(1))]
    expected = [adapter.nbytes(batch) for batch in batches]
    assert [nbytes for _, nbytes in counts(batches)] == expected


def test_bytes_of_other_shapes_are_exact_or_unknown() -> None:
    """Batches of any width have their bytes added up now and then, and else not known."""
    random = np.random.default_rng(0)
    batches = [{"x": x_of(4, width), "y": x_of(4, 1)} for width in random.integers(1, 99, 2_000)]
    found = counts(batches)
    exact = [(4, batch["x"].nbytes + 16) for batch in batches]
    assert all(
        one[0] == 4 and one[1] in {-1, other[1]} for one, other in zip(found, exact, strict=True)
    )
    known = sum(nbytes != -1 for _, nbytes in found)
    expected = 2_000 / (OFTEN * (2 + BESIDES))
    assert expected <= known <= 1.1 * expected + SPARE


def test_bytes_that_change_by_themselves_are_found_out() -> None:
    """Where the first array does not tell of the others, bytes are exact or unknown."""
    batches = [{"labels": torch.zeros(4), "x": x_of(4, width)} for width in range(1, 500)]
    found = counts(batches)
    exact = [16 + batch["x"].nbytes for batch in batches]
    assert all(nbytes in {-1, size} for (_, nbytes), size in zip(found, exact, strict=True))
    assert {samples for samples, _ in found} == {4}
    assert sum(nbytes != -1 for _, nbytes in found) >= 500 // (OFTEN * (2 + BESIDES))


def test_bytes_are_verified_now_and_then() -> None:
    """A change of bytes alone, after many batches that were alike, is seen in the end."""
    period = SELDOM * (2 + BESIDES)
    wide = [{"labels": torch.zeros(4), "x": x_of(4, 3)}] * (3 * period)
    narrow = [{"labels": torch.zeros(4), "x": x_of(4)}] * (2 * period)
    found = [nbytes for _, nbytes in counts(wide + narrow)]
    assert set(found[: len(wide)]) == {64}
    late = found[len(wide) + period :]
    assert set(late) == {48, -1}


def test_sizes_that_change_once_are_known_again() -> None:
    """Where all batches are wider from some batch on, their bytes are known from there on."""
    batches = [x_of(4)] * 100 + [x_of(4, 7)] * 100
    assert counts(batches) == [(4, 32)] * 100 + [(4, 112)] * 100


def test_equal_bytes_of_other_shapes_are_other_samples() -> None:
    """32 x 64 and 64 x 32 tokens take the same bytes."""
    sizes = [(32, 64), (64, 32)] * 100
    found = counts([{"ids": torch.zeros(*size)} for size in sizes])
    assert [samples for samples, _ in found] == [samples for samples, _ in sizes]


def test_structures_that_alternate_are_known_from_one_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each is learned once, and both are counted exactly."""
    looked = []

    def watched(batch: Any) -> Any:
        looked.append(batch)
        return survey(batch)

    monkeypatch.setattr(counting, "survey", watched)
    forms = [{"x": x_of(4)}, {"y": x_of(3), "z": x_of(3)}, [x_of(6)], [[x_of(5)]]]
    assert counts(forms * 50) == [(4, 32), (3, 48), (6, 48), (5, 40)] * 50
    assert len(looked) < 50


def test_more_structures_than_are_remembered_are_counted() -> None:
    """Those that were forgotten are learned anew."""
    forms = [{f"key {number}": x_of(number)} for number in range(1, 9)]
    assert [samples for samples, _ in counts(forms * 5)] == [*range(1, 9)] * 5


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_batches_of_every_form_in_between_are_counted(form: Any) -> None:
    """One in the middle, or at the start, of batches of all other forms changes nothing."""
    others = [other(x_of(n)) for other in FORMS.values() for n in (3, 5)]
    batches = [batch for other in others for batch in (form(x_of(2)), other)]
    found = [samples for samples, _ in counts(batches)]
    assert found == [2, 3, 2, 5] * len(FORMS)


def test_a_longer_user_dict_is_another_structure() -> None:
    """Its bytes are those of all that is in it."""
    short, long = UserDict(x=x_of(4)), UserDict(x=x_of(4), y=x_of(4))
    assert counts([short, long] * 20) == [(4, 32), (4, 64)] * 20


def test_arrays_that_change_while_they_are_counted_end_no_run() -> None:
    """A batch that gives another array each time it is asked has samples, of one of them."""

    class Restless(dict[str, Any]):
        asked = 0

        def _next(self) -> torch.Tensor:
            Restless.asked += 1
            return x_of(1 + Restless.asked)

        def __getitem__(self, key: str) -> Any:
            return self._next()

        def values(self) -> Any:
            return [self._next()]

        def items(self) -> Any:
            return [("x", self._next())]

    assert all(samples > 0 for samples, _ in counts([Restless(x=0) for _ in range(9)]))


def test_a_container_without_a_length_is_counted() -> None:
    """One that raises when it is asked for it has the samples that it has."""

    class Endless(dict[str, Any]):
        def __len__(self) -> int:
            raise TypeError

    assert counts([Endless(x=x_of(4))] * 3) == [(4, 32)] * 3


def test_a_tensor_in_place_of_a_tuple_is_noticed() -> None:
    """A tensor can be asked for an item as well as a tuple of tensors can."""
    forms = [(x_of(6, 3), x_of(6)), x_of(2), ([x_of(5)], x_of(5))]
    assert [samples for samples, _ in counts(forms * 10)] == [6, 2, 5] * 10


def test_another_array_in_front_is_noticed() -> None:
    """An array that comes to stand before the first one is found when bytes are added up."""
    plain = {"a": torch.tensor(1.0), "x": x_of(4)}
    other = {"a": torch.zeros(3), "x": x_of(4)}
    found = [samples for samples, _ in counts([plain] * 3 + [other] * 20)]
    assert found[:3] == [4] * 3
    assert found[-1] == 3


def test_lists_that_grow_are_the_same_structure() -> None:
    """A list with more dicts in it is no other structure; its bytes are exact or unknown."""
    dicts = {"x": x_of(4)}
    lengths = [1, 2, 3, 4] * 50
    found = counts([[dicts] * length for length in lengths])
    assert {samples for samples, _ in found} == {4}
    assert all(nbytes in {-1, 32 * n} for (_, nbytes), n in zip(found, lengths, strict=True))
    assert found[:4] == [(4, 32), (4, 64), (4, 96), (4, 128)]


def test_arrays_in_place_of_numbers_are_noticed() -> None:
    """Batches in which there was nothing to count, and then there is, are counted."""
    batches = [[1, 2], [1, 2], [x_of(4), 2], [1, 2], [], [x_of(3)], {}, {"x": x_of(2)}]
    samples = [samples for samples, _ in counts([[1, 2], *batches])]
    assert samples == [-1, -1, -1, 4, -1, -1, 3, -1, 2]


def test_byte_strings_are_exact_or_unknown() -> None:
    """Encoded images, of any size each, are added up now and then."""
    batches = [[b"x" * n, b"y"] for n in range(1, 300)]
    found = counts(batches)
    sizes = [n + 1 for n in range(1, 300)]
    assert all(one in {(-1, -1), (-1, size)} for one, size in zip(found, sizes, strict=True))
    assert found[0] == (-1, 2)


def test_samples_are_asked_of_the_user_for_every_batch() -> None:
    """Bytes are added up now and then beside them."""
    asked: list[int] = []

    def samples(batch: Any) -> int:
        asked.append(len(batch))
        return len(asked)

    batches = [[x_of(2, width)] for width in [3] * 90 + [*range(1, 90)]]
    found = counts(batches, samples=samples)
    assert [samples for samples, _ in found] == [*range(1, 180)]
    exact = [8 * batch[0].shape[1] for batch in batches]
    assert all(nbytes in {-1, size} for (_, nbytes), size in zip(found, exact, strict=True))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_arrays_without_a_shape_end_no_run() -> None:
    """A nested tensor among others has no shape to look at, and is counted as far as it can be."""
    nested = torch.nested.nested_tensor([torch.zeros(2, 3), torch.zeros(4, 3)])
    batches = [[x_of(4)], [nested], [x_of(4)], [nested, x_of(3)], [x_of(4)]]
    samples = [samples for samples, _ in counts(batches)]
    assert samples == [4, -1, 4, 3, 4]


def test_what_fails_to_tell_anything_ends_no_run() -> None:
    """An object that raises whatever it is asked has nothing that is known."""

    class Hostile:
        def __getattribute__(self, name: str) -> Any:
            raise RuntimeError(name)

    assert counts([[x_of(4)], Hostile(), [x_of(4)]]) == [(4, 32), (-1, -1), (4, 32)]
    assert counts([Hostile()]) == [(-1, -1)]


def test_a_count_is_the_same_object_where_only_bytes_are_unknown() -> None:
    """The hot loop has nothing to note for batches of any width."""
    batches = [x_of(4, width) for width in range(1, 40)]
    count = Counter(IterableAdapter(), None).best_for(batches[0])
    assert count is not None
    found = [count(batch) for batch in batches]
    assert found[SPARE + 2] == (4, -1)
    assert found[SPARE + 2] is found[SPARE + 3]
