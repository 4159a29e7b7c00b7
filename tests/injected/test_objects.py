"""Objects in batches that raise, lie or cannot be copied, and tensors that a copy would change."""

from __future__ import annotations

import copy
import pickle
import threading
import time
import weakref
from collections import deque
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock, Mock

import numpy as np
import pytest
import torch

from loadeval import IterableAdapter, LoaderEvaluator
from loadeval.core.batch import attributes_of, clone, copied
from loadeval.errors import in_words
from tests.injected.reading import IN_EACH_MODE, MODES, read

if TYPE_CHECKING:
    from collections.abc import Callable

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


def exits(*_: Any, **__: Any) -> Any:
    raise SystemExit(3)


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

    def __new__(cls) -> Any:
        made = object.__new__(cls)
        object.__getattribute__(made, "__dict__") if "__dict__" not in vars(cls) else None
        return made


ONE_BY_ONE = [(name,) for name in (*METHODS, *PROPERTIES)]


@pytest.mark.parametrize("answer", [fails, lies])
@pytest.mark.parametrize("names", [*ONE_BY_ONE, METHODS, PROPERTIES], ids=lambda names: names[0])
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


@pytest.mark.parametrize("base", [Plain, dict, list, tuple])
def test_in_log_mode_they_are_the_loaders_own(base: type, tmp_path: Path) -> None:
    batches = [hostile(base, METHODS, fails) for _ in range(9)]
    served = read(batches, "log", tmp_path).epochs[0]
    assert all(got is batch for got, batch in zip(served, batches, strict=True))


def made_up(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return made_up


class Endless:
    """Has every attribute, each of which has every attribute."""

    def __getattr__(self, name: str) -> Any:
        return Endless() if not name.startswith("__") else object.__getattribute__(self, name)


class Slow:
    """Takes a while for each attribute that a class does not have."""

    asked = 0

    def __getattr__(self, name: str) -> Any:
        Slow.asked += 1
        raise AttributeError(name)


def locked() -> Any:
    return SimpleNamespace(lock=threading.Lock(), x=torch.ones(2))


def a_generator() -> Any:
    return [(number for number in range(3)), torch.ones(2)]


class Kept:
    """What a proxy stands for."""


KEPT = Kept()
ODD: dict[str, Callable[[], Any]] = {
    "every attribute": Endless,
    "slow attributes": Slow,
    "mock": Mock,
    "magic mock": MagicMock,
    "mock of a tensor": lambda: MagicMock(spec=torch.Tensor),
    "lock": locked,
    "generator": a_generator,
    "weak proxy": lambda: [weakref.proxy(KEPT)],
    "read-only mapping": lambda: MappingProxyType({"x": torch.ones(2)}),
    "thread-local": threading.local,
    "open file": lambda: Path(__file__).open(encoding="utf-8"),  # noqa: SIM115 - it is closed with the batch
    "module": lambda: {"np": np, "x": torch.ones(2)},
    "class": lambda: [Kept, torch.ones(2)],
    "exception": lambda: RuntimeError("a batch"),
    "nothing": lambda: None,
    "sentinel": lambda: NotImplemented,
    "ellipsis": lambda: ...,
    "range": lambda: range(10**9),
    "set": lambda: {1, 2},
    "deque": lambda: deque([torch.ones(2)]),
    "sizes": lambda: (torch.Size([3, 4]), time.localtime()),
    "memory": lambda: [memoryview(b"abc"), memoryview(bytearray(3)), np.zeros((2, 3)).data],
    "random generator": lambda: [np.random.default_rng(0), torch.Generator()],
    "coroutine function": lambda: made_up,
}


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("make", ODD.values(), ids=ODD)
@IN_EACH_MODE
def test_odd_objects_are_served(make: Callable[[], Any], mode: str, tmp_path: Path) -> None:
    """Each with its class, in its place."""
    batches = [make() for _ in range(6)]
    outcome = read(batches, mode, tmp_path, num_cached_batches=6, change=type)
    assert outcome.epochs == [[type(batch) for batch in batches]]
    assert outcome.run.batches == 6
    assert len(outcome.said) <= 1


def test_an_object_is_not_asked_for_attributes_that_it_makes_up() -> None:
    """A lazy object has such attributes, which would load what it stands for."""
    Slow.asked = 0
    for _ in LoaderEvaluator([[Slow(), torch.ones(2)] for _ in range(40)]):
        pass
    assert Slow.asked == 0


def test_a_proxy_is_served_as_it_is() -> None:
    """It has not become what it stands for, and says that it is that."""
    wrapt = pytest.importorskip("wrapt")
    proxies = [wrapt.ObjectProxy({"x": torch.ones(2)}) for _ in range(6)]
    for mode in ("log", "alternate"):
        served = list(LoaderEvaluator(proxies, mode))
        assert [type(batch) for batch in served] == [wrapt.ObjectProxy] * 6


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
    [
        WEIGHT,
        WEIGHT * 2,
        torch.nn.Parameter(torch.ones(2)),
        torch.nn.Parameter(torch.ones(2), requires_grad=False),
        torch.nn.Linear(2, 2),
        torch.nn.Sequential(torch.nn.Linear(2, 2)),
    ],
    ids=["requires gradients", "graph", "parameter", "frozen parameter", "module", "modules"],
)
def test_what_is_trained_keeps_its_identity(leaf: Any) -> None:
    """An optimizer may hold it, and gradients flow into what it was made of."""
    assert all(batch is leaf for batch in served_as(leaf))
    assert all(batch[0] is leaf for batch in served_as([leaf, torch.ones(2)]))


def test_gradients_flow_through_alternating_batches() -> None:
    weight = torch.ones(2, requires_grad=True)
    for batch in LoaderEvaluator(lambda: (weight * n for n in range(40)), "alternate"):
        batch.sum().backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [sum(range(40))] * 2


class Tagged(torch.Tensor):
    """A tensor that remembers where it is from."""


def tagged(tensor: torch.Tensor) -> torch.Tensor:
    tensor.source = "a.jpg"  # type: ignore[attr-defined]  # as people do
    return tensor


COMPLEX = torch.complex(torch.ones(3), torch.arange(3.0))


@pytest.mark.parametrize(
    ("make", "look"),
    [
        (COMPLEX.conj, torch.Tensor.is_conj),
        (lambda: COMPLEX.conj().imag, torch.Tensor.is_neg),
        (lambda: tagged(torch.ones(3)), lambda tensor: tensor.source == "a.jpg"),
        (
            lambda: tagged(torch.ones(3).as_subclass(Tagged)),
            lambda tensor: tensor.source == "a.jpg",
        ),
        (lambda: torch.ones(3).as_subclass(Tagged), lambda tensor: type(tensor) is Tagged),
        (lambda: torch.ones(2, 3).T, lambda tensor: not tensor.is_contiguous()),
        (
            lambda: torch.ones(3, dtype=torch.bfloat16),
            lambda tensor: tensor.dtype is torch.bfloat16,
        ),
    ],
    ids=["conjugated", "negated", "attribute", "of a subclass", "subclass", "transposed", "type"],
)
@pytest.mark.parametrize("mode", ["alternate", "replay"])
@pytest.mark.filterwarnings("ignore:The use of `x.T`")
def test_a_tensor_stays_what_it_is(make: Any, look: Any, mode: str) -> None:
    for tensor in served_as(make(), mode):
        assert look(tensor)
        assert torch.equal(tensor, make())


@pytest.mark.parametrize("mode", ["alternate", "replay"])
def test_a_tensor_held_twice_is_one_tensor(mode: str) -> None:
    """A change in one place is one in the other."""
    x = torch.zeros(2)
    for batch in served_as({"x": x, "again": [x, {"deep": x}]}, mode):
        assert batch["x"] is batch["again"][0] is batch["again"][1]["deep"]


class Lies:
    """Copies of it are something else."""

    def __init__(self, copy_of: Any) -> None:
        self.copy_of = copy_of

    def __copy__(self) -> Any:
        return self.copy_of

    def __deepcopy__(self, _memo: Any) -> Any:
        return self.copy_of


class Shared:
    """All of its copies have one dictionary, which writing to one would change."""

    def __copy__(self) -> Shared:
        made = object.__new__(Shared)
        made.__dict__ = self.__dict__
        return made


@pytest.mark.parametrize("copy_of", [None, "text", 3, [1]])
def test_a_copy_of_another_class_is_none(copy_of: Any) -> None:
    batch = Lies(copy_of)
    assert copied(batch) == (batch, ["Lies"])
    assert clone(batch) is batch


def test_a_batch_is_not_changed_by_being_copied() -> None:
    batch = Shared()
    batch.x = torch.ones(2)  # type: ignore[attr-defined]
    held = batch.x  # type: ignore[attr-defined]
    made, kept = copied(batch)
    assert made is batch
    assert kept == ["Shared"]
    assert batch.x is held


class Point(tuple[Any, ...]):  # noqa: SLOT001 - it has attributes
    """A tuple with an attribute."""


def test_attributes_of_a_tuple_are_copied_with_it() -> None:
    batch = Point([torch.ones(2)])
    batch.label = "a"  # type: ignore[attr-defined]
    made = IterableAdapter().keep(batch)
    assert (type(made), made.label) == (Point, "a")
    assert made[0] is not batch[0]


def test_a_tuple_that_cannot_be_made_anew_stays_as_it_is() -> None:
    now = time.localtime()
    made, kept = copied([now, torch.Size([3])])
    assert made == [now, torch.Size([3])]
    assert kept == []
    odd = time.struct_time([[1], *list(now)[1:]])
    assert copied([odd])[1] == ["struct_time"]


def test_a_set_that_refers_to_too_much_stays_as_it_is() -> None:
    chain_of: Any = None
    for _ in range(200_000):
        chain_of = (chain_of,)
    batch = {frozenset({SimpleHash(chain_of)}), 3}
    made, kept = copied(batch)
    assert made is batch
    assert kept == ["set"]
    while chain_of is not None:  # freed from its outer end, without a recursion
        (chain_of,) = chain_of


class SimpleHash:
    """Can be in a set."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner


def test_slots_that_were_never_set_are_no_attributes() -> None:
    from dataclasses import dataclass, field

    @dataclass(slots=True)
    class Late:
        x: Any
        y: Any = field(init=False)

    assert attributes_of(Late(1)) == {"x": 1}


def test_an_object_that_ends_the_program_does(tmp_path: Path) -> None:
    """`SystemExit` and Ctrl-C are never ours to catch."""
    batch = hostile(Plain, ("__copy__",), exits)
    batch.__dict__["x"] = 1
    with pytest.raises(SystemExit):
        list(LoaderEvaluator([batch] * 60, "alternate", log_file=tmp_path / "run.jsonl"))


def test_an_error_that_cannot_say_what_it_is_has_a_name() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    assert in_words(MuteError()) == "MuteError"


def test_copies_of_the_copying_module_are_untouched() -> None:
    """What Python itself copies is copied as before."""
    tree = {"x": [1, {2: (3,)}]}
    assert copied(tree) == (copy.deepcopy(tree), [])
    assert pickle.loads(pickle.dumps(copied(tree)[0])) == tree
