"""Replay: what is kept, that it is never mutated, and fresh containers for every batch."""

from __future__ import annotations

import itertools
from collections import UserDict, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from loadeval import CacheError, LoaderEvaluator, LoadevalWarning


def batches(count: int) -> list[dict[str, torch.Tensor]]:
    return [{"x": torch.full((2, 3), float(i)), "y": torch.tensor([i, i])} for i in range(count)]


def replay(loader: Any, **options: Any) -> LoaderEvaluator:
    return LoaderEvaluator(loader, mode="replay", **options)


class Counting:
    """An endless loader that counts the batches it was asked for."""

    def __init__(self) -> None:
        self.asked = 0

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        for number in itertools.count():
            self.asked += 1
            yield {"x": torch.full((2,), float(number))}


def test_filling_reads_exactly_the_batches_it_keeps() -> None:
    loader = Counting()
    replay(loader, num_cached_batches=5, epoch_batches=5)
    assert loader.asked == 5


def test_replay_is_endless_when_told_to_be() -> None:
    endless = replay(Counting(), num_cached_batches=2, epoch_batches=float("inf"))
    assert len(list(itertools.islice(endless, 5000))) == 5000


def test_a_loader_shorter_than_the_cache_is_replayed_whole() -> None:
    """A one-shot loader that ends while the cache fills has told its length."""
    evaluator = replay(iter(batches(3)))
    assert len(list(evaluator)) == len(list(evaluator)) == 3


def test_a_loader_without_batches_is_an_error() -> None:
    with pytest.raises(CacheError, match="gave no batch"):
        replay([])


def test_too_many_bytes_are_an_error_that_names_both_figures() -> None:
    with pytest.raises(CacheError, match=r"take 80 bytes, over max_cache_bytes=70; keep 1 or"):
        replay(batches(4), max_cache_bytes=70)
    with pytest.raises(CacheError, match=r"take 40 bytes, over max_cache_bytes=30; raise max_"):
        replay(batches(4), max_cache_bytes=30)  # of which none can be kept


def test_a_batch_that_cannot_be_copied_is_an_error() -> None:
    """The memory of a device may be short."""

    class Large:
        def __deepcopy__(self, memo: Any) -> Large:
            raise MemoryError("out of memory")

    with pytest.raises(CacheError, match=r"batch 2 of 20 could not be copied .* out of memory"):
        replay([{"x": 1}, Large()])


def test_a_buffer_that_the_loader_writes_again_is_no_change_by_the_step() -> None:
    """It cannot be copied, which is said; nothing else is."""

    class Buffer:
        __slots__ = ("_version",)

        def __init__(self) -> None:
            self._version = 0  # as a tensor counts its changes

        def __deepcopy__(self, memo: Any) -> Buffer:
            raise TypeError("it is in use")

    def reused() -> Iterator[list[Buffer]]:
        for _ in range(3):
            buffer._version += 1
            yield [buffer]

    buffer = Buffer()
    with pytest.warns(LoadevalWarning) as said:
        assert list(replay(reused())) == [[buffer]] * 3
    assert ["cannot be copied" in str(each.message) for each in said] == [True]


def test_the_loaders_exception_while_filling_passes_through() -> None:

    def broken() -> Iterator[int]:
        yield 1
        raise OSError("disk gone")

    with pytest.raises(OSError, match="disk gone"):
        replay(broken())


def test_a_consumer_that_reads_ahead_does_not_change_the_cache() -> None:
    evaluator = replay([torch.full((2,), float(i)) for i in range(12)], num_cached_batches=4)
    epoch = iter(evaluator)
    with pytest.warns(LoadevalWarning, match="in place"):
        for _ in range(4):
            group = [next(epoch) for _ in range(3)]
            for batch in group:
                assert float(batch[0]) == int(batch[0]) < 4
                batch += 0.5


def test_when_every_kept_batch_is_mutated_one_goes_on() -> None:
    """A consumer that reads the whole cache ahead, and changes it, still gets batches."""
    evaluator = replay([torch.full((2,), float(i)) for i in range(6)], num_cached_batches=2)
    epoch = iter(evaluator)
    ahead = [next(epoch), next(epoch), next(epoch)]
    for batch in ahead:
        batch += 0.5
    with pytest.warns(LoadevalWarning, match="in place"):
        assert len(list(epoch)) == 3
    assert len(list(evaluator)) == 6


def test_a_batch_changed_after_its_epoch_is_found_before_the_next() -> None:
    evaluator = replay([torch.full((2,), float(i)) for i in range(3)])
    held = list(evaluator)
    held[1] += 7
    with pytest.warns(LoadevalWarning, match="in place"):
        assert [float(batch[0]) for batch in evaluator] == [0, 2, 0]


@pytest.mark.parametrize(
    "batch",
    [
        torch.ones(2, requires_grad=True),
        {"x": [torch.ones(2, requires_grad=True) * 2]},
        torch.nn.Parameter(torch.ones(2)),
        torch.nn.Linear(2, 2),
    ],
    ids=["leaf", "graph", "parameter", "module"],
)
def test_what_gradients_flow_through_cannot_be_replayed(batch: Any) -> None:
    with pytest.raises(CacheError, match=r"a second time. Use mode='alternate'"):
        replay([batch], num_cached_batches=1)


def test_a_batch_of_too_many_objects_cannot_be_replayed() -> None:
    with pytest.raises(CacheError, match="more than 100,000 nodes, so replay cannot keep it"):
        replay([list(range(200_000))], num_cached_batches=1)


@pytest.mark.parametrize("has_length", [False, True])
def test_a_loader_without_length_replays_what_is_kept(has_length: bool) -> None:

    class Sized(Counting):
        def __len__(self) -> int:
            return 0

    evaluator = replay(Sized() if has_length else Counting(), num_cached_batches=4)
    assert len(list(evaluator)) == 4


@pytest.mark.parametrize("kept", [1, 3])
@pytest.mark.parametrize("place", [0, 3])
def test_a_tensor_changed_in_place_is_found_and_said_once(kept: int, place: int) -> None:
    loader = [[torch.full((2,), 8.0) for _ in range(4)] for _ in range(9)]
    evaluator = replay(loader, num_cached_batches=kept, name="run")
    with pytest.warns(LoadevalWarning, match="in place") as said:
        for _ in range(2):
            for batch in evaluator:
                assert batch[place].tolist() == [8.0, 8.0]
                batch[place].div_(2)
    assert len(said) == 1
    assert [event.message for event in evaluator.recorded().events] == [str(said[0].message)]


@pytest.mark.parametrize("place", [0, 4])
def test_a_change_of_any_tensor_is_found_within_some_batches(place: int) -> None:
    evaluator = replay([[torch.ones(2) for _ in range(5)] for _ in range(4)], epoch_batches=600)
    mutated = 0
    with pytest.warns(LoadevalWarning, match="in place"):
        for number, batch in enumerate(evaluator):
            mutated += not all(bool((tensor == 1).all()) for tensor in batch)
            if number == 41:
                batch[place][:] = 0
    assert mutated <= 3


@pytest.mark.parametrize("inference", [False, True])
def test_what_cannot_be_watched_is_replayed(inference: bool) -> None:
    """Arrays of any kind and value, tensors that count no versions, and what nobody can copy."""
    inside = (number for number in range(3))
    arrays = [np.array(np.nan), np.array(["a", None], dtype=object), np.array("text")]
    with torch.inference_mode(inference):
        batch = ["a", 1, None, inside, torch.ones(2), *arrays]
        served = list(replay([batch] * 6, num_cached_batches=2))
    assert len(served) == 6
    assert all(replayed[:4] == ["a", 1, None, inside] for replayed in served)


class Pair(NamedTuple):
    x: Any
    y: Any


@dataclass(slots=True)
class Slotted:
    x: Any


X = torch.zeros(2)


def fresh(tree: Any) -> tuple[Any, list[Any]]:
    """What is kept of a batch, and what is served of it when it is replayed twice."""
    evaluator = replay([tree], epoch_batches=2)
    served = list(evaluator)
    return evaluator.cached_batches[0], served


@pytest.mark.parametrize(
    ("tree", "dig"),
    [
        ({"x": {"y": [X]}}, lambda tree: [tree, tree["x"], tree["x"]["y"]]),
        ((X, [X]), lambda tree: [tree[1]]),
        (Pair(X, {"x": X}), lambda tree: [tree.y]),
        (defaultdict(list, x=[X]), lambda tree: [tree, tree["x"]]),
        (UserDict({"y": [X]}), lambda tree: [tree, tree.data, tree["y"]]),
        (Slotted([X]), lambda tree: [tree, tree.x]),
        (SimpleNamespace(x=[X]), lambda tree: [tree, tree.x]),
    ],
    ids=["dict", "tuple", "named tuple", "default dict", "user dict", "slots", "object"],
)
def test_fresh_batches_share_no_container(tree: Any, dig: Callable[[Any], list[Any]]) -> None:
    """They are of the same classes, in which the leaves are in the same places."""
    kept, (first, second) = fresh(tree)
    assert repr(first) == repr(second) == repr(kept)
    assert type(first) is type(tree)
    containers = [*dig(kept), *dig(first), *dig(second)]
    assert len({id(container) for container in containers}) == len(containers)
