"""Which transforms of a dataset are timed, and that a program sees its own objects all the same."""

from __future__ import annotations

import functools
import inspect
import pickle
import random
import threading
from collections.abc import Callable, Iterator
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from loadeval import LoaderEvaluator
from loadeval_adapters.torch_trace.code import Activity
from loadeval_adapters.torch_trace.transforms import MANY, Transforms, elements_of
from tests.adapters import stage_datasets as some
from tests.adapters.loaders import recorded

Find = Callable[..., Transforms]


class Holder:
    """A transform that holds whatever it is given."""

    def __init__(self, **held: Any) -> None:
        vars(self).update(held)

    def __call__(self, x: Any) -> Any:
        return x


class Lazy:
    """Stands for what it computes as soon as somebody asks for it, if only for its class."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise RuntimeError("computed")

    def __call__(self, x: Any) -> Any:
        return x


class Unsized(torch.Tensor):
    """A tensor that tells nothing of itself."""

    @classmethod
    def __torch_function__(cls, *_: Any, **__: Any) -> Any:
        raise RuntimeError("not told")

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return "Unsized"


class Cropped:
    """The upper half."""

    def __call__(self, x: Any) -> Any:
        return x[: len(x) // 2]


class Croppings(torch.utils.data.Dataset[Any]):
    def __init__(self) -> None:
        self.transform = some.Composed([Cropped(), some.shifted])

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return self.transform(torch.zeros(8, 8))


def names(transforms: Transforms) -> list[str]:
    return [timer.name for timer in transforms.timers]


@pytest.fixture(name="found")
def _found() -> Iterator[Find]:
    """Looks into a dataset whose transform is given, and restores it at the end."""
    every: list[Transforms] = []

    def find(transform: Any) -> Transforms:
        activity = Activity()
        activity.thread = threading.get_ident()
        every.append(Transforms(SimpleNamespace(transform=transform), activity))
        every[-1].look(on=True)
        return every[-1]

    yield find
    for transforms in every:
        transforms.restore()


@pytest.mark.parametrize(
    ("held", "parts"),
    [
        ({"anything": {"a": some.Doubled(), "b": [abs]}}, ["Doubled", "abs"]),
        ({"anything": torch.nn.Sequential(some.Halved())}, ["Halved"]),
        ({"anything": [Holder(others=[some.Doubled()])]}, ["Doubled", "Holder.__call__"]),
    ],
)
def test_what_a_transform_holds(found: Find, held: dict[str, Any], parts: list[str]) -> None:
    whole = "Holder.__call__ (2)" if "Holder.__call__" in parts else "Holder.__call__"
    assert names(found(Holder(**held))) == [*parts, whole]


@pytest.mark.parametrize(
    "held",
    [
        {"mean": [0.5, 0.5], "modes": ("a", "b"), "kinds": [int, Holder]},
        {"op": some.Doubled(), "draw": random.random},  # it may be called for each pixel
        {"many": [some.shifted] * (MANY + 1)},
        {"model": torch.nn.Sequential(torch.nn.Linear(1, 1))},
        {"net": torch.nn.AvgPool2d(2)},
    ],
)
def test_what_is_no_part_of_a_transform(found: Find, held: dict[str, Any]) -> None:
    """Values and classes, single functions, long lists, models, torch's own modules."""
    assert names(found(Holder(**held))) == ["Holder"]


def test_own_methods_are_no_parts(found: Find) -> None:
    """They are its own code, whatever lists it keeps of them."""
    holder = Holder()
    holder.by_target = {"image": holder.__call__}  # type: ignore[attr-defined]
    assert names(found(holder)) == ["Holder"]


def test_a_part_of_two_transforms(found: Find) -> None:
    shared = [some.Doubled(), some.shifted]
    two = [Holder(anything=shared), Holder(anything=shared), Holder(anything=shared[:])]
    assert names(found(Holder(anything=two))) == [
        *("Doubled", "shifted", "Holder.__call__", "Holder.__call__ (2)"),
        *("Holder.__call__ (3)", "Holder.__call__ (4)"),
    ]


def test_own_code_is_apart(found: Find) -> None:
    composed = some.Composed([some.Doubled(), some.shifted])
    transforms = found(composed)
    assert composed(3) == 7
    assert names(transforms) == ["Doubled", "shifted", "Composed.__call__"]
    assert [timer.calls for timer in transforms.timers] == [1, 1, 1]
    assert all(timer.ns > 0 for timer in transforms.timers)


def test_no_more_than_twenty_four_are_told_apart(found: Find) -> None:
    doubling = [some.Doubled() for _ in range(60)]
    assert len(names(found(doubling))) == 24
    assert all(transform(2) == 4 for transform in doubling)


def test_other_threads_do_not_count(found: Find) -> None:
    transform = some.Doubled()
    (timer,) = found(transform).timers
    thread = threading.Thread(target=transform, args=(3,))
    thread.start()
    thread.join()
    assert timer.calls == 0


def test_what_stands_for_a_function_looks_like_it(found: Find) -> None:
    held = [some.shifted]
    transforms = found(held)
    (timed,) = held
    assert timed is not some.shifted
    assert isinstance(timed, FunctionType)
    assert inspect.signature(timed) == inspect.signature(some.shifted)
    assert pickle.loads(pickle.dumps(timed)) is some.shifted
    transforms.restore()
    assert held[0] is some.shifted


@pytest.mark.parametrize("one", [some.Called(), some.called])
def test_what_stands_for_a_function_passes_arguments_on(found: Find, one: Any) -> None:
    """So does a class that is timed; in a thread that fetches, and in others."""
    held = [one]
    transforms = found(held)
    for thread in (0, threading.get_ident()):
        transforms.activity.thread = thread
        assert held[0]() == ((), {})
        assert held[0](1) == ((1,), {})
        assert held[0](1, 2) == ((1, 2), {})
        assert held[0](1, x=2) == ((1,), {"x": 2})
        assert held[0](x=1) == ((), {"x": 1})
        assert held[0](self=1, call=2) == ((), {"self": 1, "call": 2})
    (timer,) = transforms.timers
    assert timer.calls == 6


def test_no_property_of_a_transform_is_read(found: Find) -> None:
    """Nor is `__getattr__` called."""
    assert names(found(some.Tailor())) == [
        *("Doubled", "shifted", "Doubled (2)", "Composed.__call__", "Registered"),
        *("abs", "Halved", "Steady.forward", "Tailor.__call__"),
    ]


def test_an_object_is_not_asked_for_its_class(found: Find) -> None:
    assert names(found(Holder(anything=[Lazy(), some.Doubled()]))) == [
        *("Lazy", "Doubled", "Holder.__call__")
    ]


def test_transforms_may_hold_themselves(found: Find) -> None:
    endless: list[Any] = [some.Doubled()]
    holder = Holder(anything=endless)
    endless += [endless, holder, {"again": endless}, (endless,)]
    assert names(found(holder)) == ["Doubled", "Holder.__call__"]


@pytest.mark.parametrize(
    ("x", "elements"),
    [
        (Image.new("RGB", (5, 4)), 60),
        (Image.new("L", (5, 4)), 20),
        (np.zeros((3, 4)), 12),
        (torch.zeros(3, 4), 12),
        (torch.nn.Parameter(torch.zeros(3)), 3),
        (b"abc", None),
        ([1, 2], None),
        (Unsized(), None),
    ],
    ids=["RGB", "grey", "array", "tensor", "parameter", "bytes", "list", "unsized"],
)
def test_the_size_of_what_a_transform_gets(x: Any, elements: int | None) -> None:
    """Pixels times channels; nothing else has a size that says what work it is."""
    assert elements_of(x) == elements


def test_sizes_are_of_one_batch(found: Find) -> None:
    """Of each call of its own object; what has none is left out."""
    cropped, taken = Cropped(), [Cropped(), some.shifted, len]
    composed = some.Composed(taken)
    transforms = found([cropped, composed])
    for side in (4, 8):
        assert composed(torch.zeros(side, side)) == side // 2
    assert cropped(x=[1, 2]) == [1]
    transforms.is_sizing = False
    composed(torch.zeros(100, 100))
    sizes = {name: pairs for name, pairs in transforms.sized.items() if pairs}
    assert sizes == {"Cropped (2)": [(16, 8), (64, 32)], "shifted": [(8, 8), (32, 32)]}
    assert {timer.name: timer.calls for timer in transforms.timers} == {
        "Cropped": 1,
        "Cropped (2)": 3,
        "shifted": 3,
        "len": 3,
        "Composed.__call__": 3,
    }


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_sizes_are_told_once_for_each_worker(workers: int, persistent: bool) -> None:
    loader = DataLoader(
        Croppings(),
        batch_size=2,
        num_workers=workers,
        persistent_workers=persistent and workers > 0,
    )
    run = recorded(loader, epochs=2)
    assert list(run.sizes) == ["Composed.__call__", "Cropped", "shifted"]
    assert run.sizes["Cropped"] == (64, 32)
    assert (run.transforms["Cropped"].calls == 2).all()


def test_between_batches_a_program_has_its_own_transforms() -> None:
    dataset = some.Tailored()
    tailor = dataset.transform
    held = {name: vars(tailor)[name] for name in ("stages", "by_chance", "last")}
    before = {name: list(value) for name, value in held.items()}
    inner = tailor.stages[2].transforms
    evaluator = LoaderEvaluator(DataLoader(dataset, batch_size=8), stages=True)
    for _ in range(2):
        for _ in evaluator:
            for name, value in held.items():
                assert vars(tailor)[name] is value
            assert {id(stage) for stage in tailor.stages} == set(map(id, before["stages"]))
            assert [pair[0] for pair in tailor.by_chance] == [
                pair[0] for pair in before["by_chance"]
            ]
            assert inner[1] is some.shifted
    evaluator.close()
    assert {id(stage) for stage in tailor.stages} == set(map(id, before["stages"]))
    for name in ("by_chance", "last"):
        assert all(map(lambda a, b: a is b, held[name], before[name]))
    calls = evaluator.recorded().transforms["shifted"].where(epoch=0).calls
    assert calls.sum() >= 80  # the function is in three lists


def test_a_list_of_transforms_that_a_program_changes() -> None:
    """What was added, removed or moved between batches stays so, and so does a new list."""
    dataset = some.Picky()
    composed = some.Composed([some.shifted, some.Doubled(), abs])
    dataset.transforms.append(composed)
    loader = LoaderEvaluator(DataLoader(dataset, batch_size=8), stages=True)
    batches = iter(loader)
    next(batches)
    own = composed.transforms
    own.insert(0, abs)
    own.remove(some.shifted)
    next(batches)
    assert own == [abs, own[1], abs]
    assert own[0] is own[2] is abs
    composed.transforms = new = [some.shifted]
    assert len(list(batches)) == 3
    loader.close()
    assert composed.transforms is new
    assert new == [some.shifted]
    assert type(own[0]) is type(abs)


def test_the_classes_of_models_are_left_alone() -> None:
    """Else torch.compile could not compile a model that uses one, also between batches."""
    dataset = some.Picky()
    dataset.transforms.append(some.Halved())
    with LoaderEvaluator(DataLoader(dataset, batch_size=8), stages=True) as evaluator:
        for _ in evaluator:
            assert "__call__" not in vars(some.Halved)
    assert "Halved" not in evaluator.recorded().transforms


def test_after_an_error_a_program_has_its_own_transforms() -> None:
    dataset = some.Tailored()
    dataset.transform.stages.append(functools.partial(dict.__getitem__, {}))
    before = set(map(id, dataset.transform.stages))
    loader = LoaderEvaluator(DataLoader(dataset, batch_size=8), stages=True)
    with pytest.raises(KeyError):
        next(iter(loader))
    assert set(map(id, dataset.transform.stages)) == before
    loader.close()
