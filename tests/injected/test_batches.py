"""Batches that are odd graphs of objects, and loaders that do not say how long they are."""

from __future__ import annotations

import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from loadeval import IterableAdapter, LoaderEvaluator, read_run
from loadeval.core.batch import copied
from loadeval.data.columns import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BATCHES = 30


class Node:
    """A tree whose nodes know their parents."""

    def __init__(self, depth: int, parent: Node | None = None) -> None:
        self.parent = parent
        self.value = torch.ones(2)
        self.children = [Node(depth - 1, self) for _ in range(2)] if depth else []


def in_itself() -> Any:
    batch: list[Any] = [torch.ones(4, 2)]
    batch.append(batch)
    return batch


def dict_in_itself() -> Any:
    batch: dict[str, Any] = {"x": torch.ones(4, 2)}
    batch["batch"] = batch
    return batch


def doubling() -> Any:
    """A list that stands twice in the next one, sixty times: each visit would double."""
    batch: Any = [torch.ones(4)]
    for _ in range(60):
        batch = [batch, batch]
    return batch


def deep() -> Any:
    batch: Any = torch.ones(4)
    for _ in range(10_000):
        batch = [batch]
    return batch


def shared() -> Any:
    """The same tensor twice."""
    tensor = torch.ones(4, 2)
    return {"x": tensor, "y": tensor}


class Refusing:
    """Cannot be copied, whatever one tries."""

    def __deepcopy__(self, memo: Any) -> Any:
        raise RuntimeError("do not copy me")

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise RuntimeError("do not pickle me")


ODD = {
    "a list in itself": in_itself,
    "a dict in itself": dict_in_itself,
    "a tree with parents": lambda: Node(6),
    "a list shared sixty times over": doubling,
    "nested deep": deep,
    "what cannot be copied": lambda: [torch.ones(4, 2), Refusing()],
}


def trained_on(loader: Any, tmp_path: Path, mode: str) -> list[Any]:
    """The batches that a training gets, whose log can be read."""
    log = tmp_path / "run.jsonl"
    with LoaderEvaluator(loader, mode=mode, log_file=log, probes=()) as evaluator:
        got = [batch for batch in evaluator]  # noqa: C416 - list() would ask for the length
    assert read_run(log).batches == len(got)
    return got


@pytest.mark.filterwarnings("ignore:batches hold what cannot be copied")
@pytest.mark.parametrize("mode", ["log", "alternate"])
@pytest.mark.parametrize("batch", ODD.values(), ids=ODD)
def test_any_graph_of_objects_is_served(batch: Any, mode: str, tmp_path: Path) -> None:
    """Bounded in depth, objects and time: the training goes on, with as many batches."""
    batches = [batch() for _ in range(BATCHES)]
    got = trained_on(batches, tmp_path, mode)
    assert len(got) == BATCHES
    assert all(type(served) is type(batches[0]) for served in got)
    if mode == "log":
        assert all(served is sent for served, sent in zip(got, batches, strict=True))


def test_a_tensor_that_stands_twice_stays_one(tmp_path: Path) -> None:
    for batch in trained_on([shared() for _ in range(BATCHES)], tmp_path, "alternate"):
        assert batch["x"] is batch["y"]


def test_what_requires_gradients_goes_on_to_do_so(tmp_path: Path) -> None:
    batches = [torch.ones(4, 2, requires_grad=True) for _ in range(BATCHES)]
    got = trained_on(batches, tmp_path, "alternate")
    assert all(batch.requires_grad for batch in got)


def test_views_are_conjugated_and_negated_as_before(tmp_path: Path) -> None:
    batches = [torch.ones(4, 2, dtype=torch.complex64).conj() for _ in range(BATCHES)]
    got = trained_on(batches, tmp_path, "alternate")
    assert all(torch.equal(batch, batches[0]) for batch in got)


class Numbers(Dataset[int]):
    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, index: int) -> int:
        return index


LENGTHS = {
    "not implemented": NotImplementedError(),
    "not yet": RuntimeError("call reset() first"),
    "no such attribute": AttributeError("_length"),
    "no key": KeyError("length"),
}


class Unmeasured(Sampler[int]):
    """A sampler whose length raises, or is odd."""

    def __init__(self, length: object) -> None:
        self.length = length

    def __len__(self) -> int:
        if isinstance(self.length, Exception):
            raise self.length
        return self.length  # type: ignore[return-value]  # that is the fault

    def __iter__(self) -> Iterator[int]:
        return iter(range(BATCHES))


class Plain(Unmeasured):
    """The same as a loader."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


@pytest.mark.parametrize("mode", ["log", "alternate"])
@pytest.mark.parametrize(
    "length",
    [*LENGTHS.values(), 2**70, -3, "many", 1.5],
    ids=[*LENGTHS, "more than an index holds", "negative", "text", "a float"],
)
def test_a_length_that_cannot_be_had_is_unknown(length: object, mode: str, tmp_path: Path) -> None:
    """It may be of a loader or a DataLoader's sampler: nobody asks for it without loadeval."""
    loaders: list[Any] = [
        Plain(length),
        DataLoader(Numbers(), sampler=Unmeasured(length), batch_size=None),
    ]
    for number, loader in enumerate(loaders):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert [int(batch) for batch in trained_on(loader, folder, mode)] == list(range(BATCHES))


class OnlyNext:
    """An iterator that a `for` takes: it has nothing but `__next__`."""

    def __init__(self) -> None:
        self.served = 0

    def __next__(self) -> int:
        if self.served == BATCHES:
            raise StopIteration
        self.served += 1
        return self.served


class GivesOnlyNext:
    def __iter__(self) -> Any:
        return OnlyNext()


@pytest.mark.parametrize("mode", ["log", "alternate"])
def test_an_iterator_needs_nothing_but_next(mode: str, tmp_path: Path) -> None:
    assert trained_on(GivesOnlyNext(), tmp_path, mode) == list(range(1, BATCHES + 1))


@pytest.mark.parametrize("samples", [2**80, -5, True, 2.5, float("nan"), None, "four"])
def test_an_odd_number_of_samples_is_unknown(samples: Any, tmp_path: Path) -> None:
    """Or it is what the batch says, if that is a count: training goes on, and the log is read."""
    log = tmp_path / "run.jsonl"
    with LoaderEvaluator([torch.ones(4)] * 5, samples=lambda _: samples, log_file=log) as evaluator:
        assert len(list(evaluator)) == 5
    assert read_run(log).batches == 5


class Linked:
    """Knows another part of its batch by a weak reference."""

    def __init__(self) -> None:
        self.node = Node(0)
        self.weak = weakref.ref(self.node)


class Counted:
    """Says itself how many samples it has."""

    def __init__(self, number: Any) -> None:
        self.num_graphs = number
        self.x = torch.ones(12, 3)


def tuple_in_itself() -> Any:
    inside: list[Any] = []
    batch = (inside, torch.ones(4))
    inside.append(batch)
    return batch


@pytest.mark.filterwarnings("ignore:batches hold what cannot be copied")
@pytest.mark.parametrize("mode", ["log", "alternate"])
@pytest.mark.parametrize(
    "batch",
    [
        lambda: list(range(101_000)),
        tuple_in_itself,
        Linked,
        lambda: deque([[] for _ in range(120_000)]),
        lambda: Counted(2**70),
    ],
    ids=["many numbers", "a tuple in itself", "weak references", "many objects", "a huge count"],
)
def test_what_is_large_or_odd_is_served(batch: Any, mode: str, tmp_path: Path) -> None:
    """A few of each: copying it takes a while."""
    assert len(trained_on([batch() for _ in range(4)], tmp_path, mode)) == 4


@pytest.mark.parametrize("nested", [False, True])
def test_a_batch_says_how_many_samples_it_has(nested: bool, tmp_path: Path) -> None:
    """It says so by itself, or within a dict."""
    batches = [{"graphs": Counted(4)} if nested else Counted(4) for _ in range(6)]
    trained_on(batches, tmp_path, "log")
    assert read_run(tmp_path / "run.jsonl").steps.samples.tolist() == [4] * 6


def test_a_first_dimension_beyond_all_bounds_is_no_count(tmp_path: Path) -> None:
    """That of an array which repeats one number in memory."""
    sizes = (4, 4, 2**41, 4)
    trained_on([np.broadcast_to(np.float32(0), (size, 2)) for size in sizes], tmp_path, "log")
    assert read_run(tmp_path / "run.jsonl").steps.samples.tolist() == [4, 4, UNKNOWN, 4]


class Flat:
    """Says that it is an array, whose shape is a number."""

    shape, dtype, nbytes = 5, "float32", 20


def test_a_shape_that_is_none_has_no_samples(tmp_path: Path) -> None:
    trained_on([Flat() for _ in range(3)], tmp_path, "log")
    assert read_run(tmp_path / "run.jsonl").steps.samples.tolist() == [UNKNOWN] * 3


def test_a_count_beyond_all_bounds_is_not_taken(tmp_path: Path) -> None:
    """It is not taken after others that were, either."""
    trained_on([Counted(4), Counted(4), Counted(2**70), Counted(4)], tmp_path, "log")
    assert read_run(tmp_path / "run.jsonl").steps.samples.tolist() == [4, 4, 12, 4]


def test_a_whole_float_is_a_count(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    with LoaderEvaluator([torch.ones(4)] * 3, samples=lambda _: 4.0, log_file=log) as evaluator:  # type: ignore[arg-type, return-value]  # that is the fault
        assert len(list(evaluator)) == 3
    assert read_run(log).steps.samples.tolist() == [4] * 3


@pytest.mark.parametrize(
    "batch",
    [
        tuple_in_itself,
        lambda: deque([[] for _ in range(120_000)]),
        lambda: memoryview(b"abc").cast("c"),
        lambda: torch.ones(3, 2).max(dim=0),
    ],
    ids=["a tuple in itself", "many objects", "an odd view of memory", "torch's own tuple"],
)
def test_what_cannot_be_copied_stays_as_it_is(batch: Any) -> None:
    """Its class is named."""
    sent = batch()
    made, kept = copied(sent)
    assert made is sent
    assert kept


def test_a_weak_reference_is_to_the_copy() -> None:
    sent = Linked()
    made, kept = copied(sent)
    assert made is not sent
    assert not kept
    assert made.weak() is made.node


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
def test_an_array_whose_shape_raises_has_no_known_samples() -> None:
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    assert IterableAdapter().samples(nested) in {None, 2}
