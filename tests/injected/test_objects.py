"""Objects in batches that raise, lie or cannot be copied, and tensors that a copy would change."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch

from loadeval import LoaderEvaluator
from tests.injected.reading import IN_EACH_MODE, MODES, read

METHODS = (
    *("__getattr__", "__getattribute__", "__setattr__", "__len__", "__eq__", "__ne__", "__bool__"),
    *("__iter__", "__hash__", "__contains__", "__getitem__", "__index__", "__int__", "__float__"),
    *("__repr__", "__str__", "__format__", "__dir__", "__call__", "__sizeof__", "__array__"),
    *("__copy__", "__deepcopy__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__"),
    *("detach", "clone", "numpy", "keys", "items", "values", "copy"),
)
PROPERTIES = ("__class__", "__dict__", "shape", "dtype", "nbytes", "layout", "batch_size", "data")


def fails(*_: Any, **__: Any) -> Any:
    raise RuntimeError("broken")


def lies(*_: Any, **__: Any) -> Any:
    return "a lie"


def hostile(base: type, names: tuple[str, ...], answer: Callable[..., Any]) -> Any:
    """An instance of a subclass of `base` whose attributes `names` are all `answer`."""
    members: dict[str, Any] = {
        name: property(answer) if name in PROPERTIES else answer for name in names
    }
    members["number"] = 7  # that a batch can be told from others
    made: Any = type("Hostile", (base,), members)
    return made.__new__(made)


class Plain:
    """Has attributes."""


@pytest.mark.parametrize("answer", [fails, lies])
@pytest.mark.parametrize("names", [METHODS, PROPERTIES], ids=lambda names: names[0])
@pytest.mark.parametrize("base", [Plain, dict, list, tuple])
def test_objects_that_raise_or_lie_are_served(
    base: type, names: tuple[str, ...], answer: Any, tmp_path: Path
) -> None:
    """The classes are the loader's in each mode, in a batch and as one; there is one warning."""
    batches = [
        made
        for _ in range(4)
        for made in (hostile(base, names, answer), [hostile(base, names, answer), torch.ones(2)])
    ]
    kinds = [type(batch) for batch in batches]
    for mode in MODES:
        (folder := tmp_path / mode).mkdir()
        outcome = read(batches, mode, folder, num_cached_batches=8, change=type)
        assert outcome.epochs == [kinds]
        assert outcome.run.batches == 8
        assert len(outcome.said) <= 1


class Endless:
    """Has every attribute, each of which has every attribute."""

    def __getattr__(self, name: str) -> Any:
        return Endless() if not name.startswith("__") else object.__getattribute__(self, name)


def locked() -> Any:
    return SimpleNamespace(lock=threading.Lock(), x=torch.ones(2))


class Kept:
    """What a proxy stands for."""


KEPT = Kept()
ODD: dict[str, Callable[[], Any]] = {
    "every attribute": Endless,
    "magic mock": MagicMock,
    "lock": locked,
    "weak proxy": lambda: [weakref.proxy(KEPT)],
    "read-only mapping": lambda: MappingProxyType({"x": torch.ones(2)}),
    "open file": lambda: Path(__file__).open(encoding="utf-8"),  # noqa: SIM115 - it is closed with the batch
    "sizes": lambda: (torch.Size([3, 4]), time.localtime()),
    "random generator": lambda: [np.random.default_rng(0), torch.Generator()],
}


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("make", ODD.values(), ids=ODD)
@IN_EACH_MODE
def test_odd_objects_are_served(make: Callable[[], Any], mode: str, tmp_path: Path) -> None:
    batches = [make() for _ in range(6)]
    outcome = read(batches, mode, tmp_path, num_cached_batches=6, change=type)
    assert outcome.epochs == [[type(batch) for batch in batches]]
    assert outcome.run.batches == 6
    assert len(outcome.said) <= 1


def test_what_cannot_be_copied_is_said_once(tmp_path: Path) -> None:
    """Everything else is copied."""
    batches = [{"lock": threading.Lock(), "x": torch.ones(2)} for _ in range(60)]
    outcome = read(batches, "alternate", tmp_path, 2)
    (said,) = outcome.said
    assert "what cannot be copied (lock)" in said
    assert "mode='log'" in said
    for epoch in outcome.epochs:
        assert [served["lock"] for served in epoch] == [batch["lock"] for batch in batches]
    assert any(
        served["x"] is not batch["x"]
        for served, batch in zip(outcome.epochs[0], batches, strict=True)
    )


def served_as(leaf: Any, mode: str = "alternate") -> list[Any]:
    """What is served of a loader that gives `leaf` and its companions sixty times."""
    return list(LoaderEvaluator([leaf] * 60, mode, num_cached_batches=3))


WEIGHT = torch.ones(2, requires_grad=True)


@pytest.mark.parametrize(
    "leaf",
    [WEIGHT, torch.nn.Parameter(torch.ones(2), requires_grad=False), torch.nn.Linear(2, 2)],
    ids=["requires gradients", "frozen parameter", "module"],
)
def test_what_is_trained_keeps_its_identity(leaf: Any) -> None:
    """An optimizer may hold it, and gradients flow into what it was made of."""
    assert all(batch is leaf for batch in served_as(leaf))
    assert all(batch[0] is leaf for batch in served_as([leaf, torch.ones(2)]))


def tagged(tensor: torch.Tensor) -> torch.Tensor:
    tensor.source = "a.jpg"  # type: ignore[attr-defined]  # as people do
    return tensor


@pytest.mark.parametrize(
    ("make", "look"),
    [
        (lambda: tagged(torch.ones(3)), lambda tensor: tensor.source == "a.jpg"),
        (lambda: torch.ones(2, 3).T, lambda tensor: not tensor.is_contiguous()),
        (
            lambda: torch.ones(3, dtype=torch.bfloat16),
            lambda tensor: tensor.dtype is torch.bfloat16,
        ),
    ],
    ids=["attribute", "transposed", "type"],
)
@pytest.mark.parametrize("mode", ["alternate", "replay"])
@pytest.mark.filterwarnings("ignore:The use of `x.T`")
def test_a_tensor_stays_what_it_is(make: Any, look: Any, mode: str) -> None:
    for tensor in served_as(make(), mode):
        assert look(tensor)
        assert torch.equal(tensor, make())
