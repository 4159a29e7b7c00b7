"""Replay: what is kept, and that it is never spoiled."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections import UserDict, namedtuple
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from loadeval import CacheError, LoaderEvaluator, LoadevalWarning
from loadeval.runtime.replay import same_arrays

if TYPE_CHECKING:
    from collections.abc import Iterator

Pair = namedtuple("Pair", ["x", "y"])  # noqa: PYI024 - the untyped kind is the commoner one


@dataclasses.dataclass
class Sample:
    x: torch.Tensor
    tags: list[str]


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


class Reusing:
    """A loader that writes every batch into the same buffer."""

    def __len__(self) -> int:
        return 4

    def __iter__(self) -> Iterator[np.ndarray[Any, Any]]:
        buffer = np.zeros(3)
        for number in range(4):
            buffer[:] = number
            yield buffer


def test_filling_reads_exactly_the_batches_it_keeps() -> None:
    """Of an endless loader, as many batches are read as are kept, and no more."""
    loader = Counting()
    replay(loader, num_cached_batches=5, epoch_batches=5)
    assert loader.asked == 5


def test_the_first_batches_are_kept() -> None:
    """The batches kept are the loader's first, not its last."""
    evaluator = replay(batches(10), num_cached_batches=3)
    assert [float(batch["x"][0, 0]) for batch in evaluator.cached_batches] == [0, 1, 2]


def test_an_epoch_has_as_many_batches_as_the_loaders() -> None:
    """A replayed epoch is as long as a real one, whatever the number of kept batches."""
    evaluator = replay(batches(10), num_cached_batches=3)
    served = [float(batch["x"][0, 0]) for batch in evaluator]
    assert served == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]
    assert len(list(evaluator)) == 10


def test_a_loader_without_length_replays_what_is_kept_and_says_so() -> None:
    """Without a length an epoch is finite: the kept batches once."""
    with pytest.warns(LoadevalWarning, match="epoch_batches"):
        evaluator = replay(Counting(), num_cached_batches=4)
    assert len(list(evaluator)) == 4


def test_a_length_of_zero_is_no_length() -> None:
    """A loader that gives batches and says its length is 0 is not replayed as an empty one."""

    class Endless(Counting):
        def __len__(self) -> int:
            return 0

    with pytest.warns(LoadevalWarning, match="no length"):
        evaluator = replay(Endless(), num_cached_batches=4)
    assert len(list(evaluator)) == 4


def test_replay_is_endless_when_told_to_be() -> None:
    """epoch_batches=math.inf replays without end, and a number that many."""
    endless = replay(Counting(), num_cached_batches=2, epoch_batches=float("inf"))
    assert len(list(itertools.islice(endless, 5000))) == 5000
    assert len(list(replay(Counting(), num_cached_batches=2, epoch_batches=5))) == 5


def test_a_loader_shorter_than_the_cache_is_replayed_whole() -> None:
    """A one-shot loader that ends while the cache fills has told its length."""
    evaluator = replay(iter(batches(3)))
    assert len(list(evaluator)) == len(list(evaluator)) == 3


def test_a_loader_without_batches_is_an_error() -> None:
    """Nothing to keep is one clear error, and not an empty replay."""
    with pytest.raises(CacheError, match="gave no batch"):
        replay([])


def test_too_many_bytes_are_an_error_that_names_both_figures() -> None:
    """The error says what the batches take, and what was allowed."""
    with pytest.raises(CacheError, match=r"take 80 bytes, over max_cache_bytes=70; keep 1 or"):
        replay(batches(4), max_cache_bytes=70)


def test_a_reused_buffer_is_copied() -> None:
    """A loader that reuses its buffer is replayed with the values that each batch had."""
    evaluator = replay(Reusing(), num_cached_batches=3)
    assert [float(batch[0]) for batch in evaluator] == [0, 1, 2, 0]


def test_the_loaders_exception_while_filling_passes_through() -> None:
    """What the loader raises while the cache fills is what the user sees."""

    def broken() -> Iterator[int]:
        yield 1
        raise OSError("disk gone")

    with pytest.raises(OSError, match="disk gone"):
        replay(broken())


@pytest.mark.parametrize(
    "batch",
    [
        {"x": torch.ones(2), "nested": {"y": [torch.ones(2)]}},
        [torch.ones(2), {"y": torch.ones(2)}],
        ([torch.ones(2)], torch.ones(2)),
        Pair([torch.ones(2)], torch.ones(2)),
        Sample(torch.ones(2), ["a"]),
        UserDict({"x": torch.ones(2)}),
    ],
    ids=lambda batch: type(batch).__name__,
)
def test_containers_are_fresh_each_time(batch: Any) -> None:
    """Each replay hands out new containers, of the same kinds, around the same values."""
    first, second, third = replay([batch] * 3, num_cached_batches=1)
    for one, other in ((first, second), (second, third)):
        assert type(one) is type(batch)
        assert one is not other
    assert str(first) == str(second) == str(third) == str(batch)


def test_moving_a_dict_batch_to_another_type_does_not_reach_the_cache() -> None:
    """`for k in b: b[k] = b[k].float()` and `b.pop(k)` work on every replay."""
    for batch in replay(batches(6), num_cached_batches=2):
        assert batch.pop("y").dtype == torch.int64
        assert batch["x"].dtype == torch.float32
        batch["x"] = batch["x"].double()


def test_attributes_of_a_batch_object_are_fresh() -> None:
    """Setting an attribute of a batch, or changing a list in it, does not reach the cache."""
    for batch in replay([Sample(torch.ones(2), ["a"])] * 4, num_cached_batches=2):
        assert batch.tags == ["a"]
        batch.tags.append("b")
        batch.x = torch.zeros(1)


def test_a_tensor_changed_in_place_is_found_and_said_once() -> None:
    """A step that divides in place gets the loader's values on every replay."""
    evaluator = replay(
        [{"x": torch.full((2,), 8.0)} for _ in range(9)], num_cached_batches=3, name="run"
    )
    with pytest.warns(LoadevalWarning, match="in place") as said:
        for _ in range(2):
            for batch in evaluator:
                assert batch["x"].tolist() == [8.0, 8.0]
                batch["x"].div_(2)
    assert len(said) == 1
    assert [event.message for event in evaluator.recorded().events] == [str(said[0].message)]


def test_one_kept_batch_survives_a_change_in_place() -> None:
    """With a single kept batch the first replay is already a copy."""
    evaluator = replay([torch.full((2,), 8.0)] * 4, num_cached_batches=1)
    with pytest.warns(LoadevalWarning, match="in place"):
        for batch in evaluator:
            assert batch.tolist() == [8.0, 8.0]
            batch.mul_(0)


def test_an_array_changed_in_one_element_is_found_by_the_first_comparison() -> None:
    """The first batch is compared whole, so that even one changed element is found."""
    evaluator = replay([np.zeros(100_000) for _ in range(6)], num_cached_batches=3)
    with pytest.warns(LoadevalWarning, match="in place"):
        for batch in evaluator:
            assert not batch.any()
            batch[12_345] = 1


def test_an_array_changed_later_is_found_by_its_sample() -> None:
    """An array that a step begins to change in a later epoch is found, and left out."""
    evaluator = replay([np.full(1000, float(i)) for i in range(4)], num_cached_batches=2)
    assert len(list(evaluator)) == 4
    with pytest.warns(LoadevalWarning, match="in place"):
        for batch in evaluator:
            assert (batch == batch[0]).all()
            assert batch[0] in {0.0, 1.0}
            batch += 0.5


def test_a_tensor_changed_later_is_found_by_its_version() -> None:
    """A tensor that a step begins to change in a later epoch is found, and left out."""
    evaluator = replay([torch.full((3,), float(i)) for i in range(4)], num_cached_batches=2)
    assert len(list(evaluator)) == 4
    with pytest.warns(LoadevalWarning, match="in place"):
        for batch in evaluator:
            assert float(batch[0]) in {0.0, 1.0}
            batch += 0.5


def test_a_step_that_changes_only_later_batches_is_found_at_once() -> None:
    """A change in the third batch spoils that one, which is left out, and no other."""
    evaluator = replay([torch.full((2,), float(i)) for i in range(12)], num_cached_batches=4)
    served = []
    with pytest.warns(LoadevalWarning, match="in place"):
        for number, batch in enumerate(evaluator):
            served.append(float(batch[0]))
            if number >= 2:
                batch += 0.5
    assert served[:3] == [0, 1, 2]
    assert set(served[3:]) == {0, 1, 3}


def test_a_third_tensor_is_watched_too() -> None:
    """Batches of more than two tensors are watched in all of them."""
    evaluator = replay([[torch.ones(2) for _ in range(4)] for _ in range(6)])
    with pytest.warns(LoadevalWarning, match="in place"):
        for batch in evaluator:
            assert batch[3].tolist() == [1.0, 1.0]
            batch[3].zero_()


@pytest.mark.parametrize("place", range(5))
def test_a_change_to_any_tensor_is_found_within_some_passes(place: int) -> None:
    """Two tensors of a batch are looked at in each pass, so all five are in three."""
    evaluator = replay([[torch.ones(2) for _ in range(5)] for _ in range(4)], epoch_batches=200)
    spoiled = 0
    with pytest.warns(LoadevalWarning, match="in place"):
        for number, batch in enumerate(evaluator):
            spoiled += not all(bool((tensor == 1).all()) for tensor in batch)
            if number == 41:
                batch[place].zero_()
    assert spoiled <= 3


@pytest.mark.parametrize("place", range(3))
def test_a_change_to_any_array_is_found_within_some_passes(place: int) -> None:
    """One array is looked at in 16 batches, so all three of each batch are in 48 passes."""
    evaluator = replay([[np.ones(2) for _ in range(3)] for _ in range(4)], epoch_batches=400)
    spoiled = 0
    with pytest.warns(LoadevalWarning, match="in place"):
        for number, batch in enumerate(evaluator):
            spoiled += not all(bool((array == 1).all()) for array in batch)
            if number == 41:
                batch[place][:] = 0
    assert spoiled <= 3 * 16


def test_a_consumer_that_reads_ahead_does_not_spoil_the_cache() -> None:
    """Batches read ahead of a step that works in place are found before they come again."""
    evaluator = replay([torch.full((2,), float(i)) for i in range(12)], num_cached_batches=4)
    epoch = iter(evaluator)
    with pytest.warns(LoadevalWarning, match="in place"):
        for _ in range(4):
            group = [next(epoch) for _ in range(3)]
            for batch in group:
                assert float(batch[0]) == int(batch[0]) < 4
                batch += 0.5


def test_when_every_kept_batch_is_spoiled_one_goes_on() -> None:
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
    """A consumer that keeps batches, and changes one between epochs, does not spoil the next."""
    evaluator = replay([torch.full((2,), float(i)) for i in range(3)])
    held = list(evaluator)
    held[1] += 7
    with pytest.warns(LoadevalWarning, match="in place"):
        assert [float(batch[0]) for batch in evaluator] == [0, 2, 0]


def test_arrays_of_any_kind_are_compared() -> None:
    """NaNs, objects, strings, no dimensions and no elements are no change in place."""
    batch = [np.array(np.nan), np.array(["a", None], dtype=object), np.array("text"), np.empty(0)]
    assert len(list(replay([batch] * 6, num_cached_batches=2))) == 6


def test_kept_tensors_are_cut_from_their_graph() -> None:
    """A batch that requires grad is kept without the graph that made it."""
    weight = torch.ones(2, requires_grad=True)
    evaluator = replay([weight * 2], num_cached_batches=1)
    assert not next(iter(evaluator)).requires_grad


def test_tensors_of_inference_mode_are_replayed() -> None:
    """Tensors that count no versions are replayed, unwatched."""
    with torch.inference_mode():
        evaluator = replay([torch.ones(2) for _ in range(4)], num_cached_batches=2)
        assert len(list(evaluator)) == 4


def test_batches_without_arrays_are_replayed() -> None:
    """Plain values, strings and objects that cannot be copied are replayed as they are."""
    lock = threading.Lock()
    for batch in replay([["a", 1, None, lock]] * 4, num_cached_batches=2):
        assert batch[:3] == ["a", 1, None]


def test_what_cannot_be_copied_is_handed_on() -> None:
    """A generator inside a batch is kept as it is: it is no array, and nobody can copy it."""
    inside = (number for number in range(3))
    assert [batch[0] for batch in replay([[inside, 1]] * 2)] == [inside, inside]


def test_samples_and_bytes_of_replayed_batches_are_recorded() -> None:
    """A replayed batch counts what it held when it was kept."""
    loader = [{"x": torch.zeros(n, 2), "y": torch.zeros(n)} for n in (4, 4, 3)]
    evaluator = replay(loader)
    list(evaluator)
    steps = evaluator.recorded().steps
    assert steps.samples.tolist() == [4, 4, 3]
    assert steps.nbytes.tolist() == [48, 48, 36]


def test_an_object_that_fills_itself_in_is_not_compared() -> None:
    """Where one copy of a batch has been used and the other has not, their leaves may differ."""
    array = np.arange(3)
    assert same_arrays([array, 1], [array.copy(), 1])
    assert not same_arrays([array], [array + 1])
    assert same_arrays([array], [array + 1, "filled in"])
