"""The epochs of DALI's iterators: how they begin, end, are broken off, and are replayed."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest

from loadeval import LoaderEvaluator, LoadevalWarning
from loadeval_adapters.dali import DALIAdapter
from tests.adapters.dali_iterators import iterator, numbers, trained

if TYPE_CHECKING:
    from collections.abc import Callable

    Make = Callable[..., Any]

IMAGES = 30


@pytest.mark.parametrize("policy", ["FILL", "DROP", "PARTIAL"])
@pytest.mark.parametrize("auto_reset", [False, True])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("shards", [1, 3])
def test_epochs_are_dalis_own(
    dali_pipeline: Make, policy: str, auto_reset: bool, padded: bool, shards: int
) -> None:
    """Six epochs have the batches that DALI serves by itself; a length that is told is true."""

    def make() -> Any:
        pipelines = [
            dali_pipeline(4, shard_id=n, num_shards=shards, pad_last_batch=padded)
            for n in range(shards)
        ]
        return iterator(pipelines, policy, auto_reset=auto_reset)

    bare, loader, adapter = make(), make(), DALIAdapter()
    evaluator = LoaderEvaluator(loader)
    for _ in range(6):
        length = adapter.describe(loader).length
        served = [numbers(batch) for batch in evaluator]
        assert served == [numbers(batch) for batch in bare]
        assert length in {None, len(served)}


@pytest.mark.filterwarnings("ignore:Please set `reader_name`:Warning")  # DALI's own, of `size`
@pytest.mark.parametrize("policy", ["FILL", "DROP", "PARTIAL"])
@pytest.mark.parametrize("auto_reset", [False, True])
def test_epochs_of_a_given_size_are_dalis_own(
    dali_pipeline: Make, policy: str, auto_reset: bool
) -> None:
    """The same with `size` in place of the reader's name."""
    options = {"reader_name": None, "size": IMAGES, "auto_reset": auto_reset}
    bare, loader = (iterator(dali_pipeline(4), policy, **options) for _ in range(2))
    evaluator, adapter = LoaderEvaluator(loader), DALIAdapter()
    for _ in range(6):
        length = adapter.describe(loader).length
        served = [numbers(batch) for batch in evaluator]
        assert served == [numbers(batch) for batch in bare]
        assert length in {None, len(served)}


def test_the_length_of_a_filled_epoch_is_told_as_far_as_it_is_known(dali_pipeline: Make) -> None:
    """FILL reads on into the next epoch, which is then shorter: before DALI's reset, unknown."""
    loader, adapter = iterator(dali_pipeline(4), "FILL"), DALIAdapter()
    assert adapter.describe(loader).length == 8
    assert sum(1 for _ in adapter.epoch(loader)) == 8
    assert adapter.describe(loader).length is None
    assert len(loader) == 8
    assert sum(1 for _ in adapter.epoch(loader)) == 7


@pytest.mark.parametrize("mode", ["log", "alternate"])
def test_after_a_break_the_remainder_is_served(dali_pipeline: Make, mode: str) -> None:
    """As DALI does, with one warning that points to the training loop."""
    bare, loader = iterator(dali_pipeline()), iterator(dali_pipeline())
    evaluator = LoaderEvaluator(loader, mode=mode)
    assert trained(evaluator, 1, batches=1) == trained(bare, 1, batches=1) == [[*range(8)]]
    with pytest.warns(LoadevalWarning, match="broken off") as raised:
        rest = sorted(n for batch in evaluator for n in numbers(batch))
    assert [rest] == trained(bare, 1) == [[*range(8, 30)]]
    assert [warning.filename for warning in raised] == [__file__]
    assert sorted(*trained(evaluator, 1)) == sorted(*trained(bare, 1)) == [*range(30)]


@pytest.mark.parametrize("auto_reset", [False, True])
@pytest.mark.parametrize("policy", ["FILL", "DROP", "PARTIAL"])
def test_no_warning_follows_a_break_at_the_last_batch(
    dali_pipeline: Make, policy: str, auto_reset: bool
) -> None:
    """Whoever reads as many batches as there are has broken nothing off."""
    loader = iterator(dali_pipeline(batch_size=10), policy, auto_reset=auto_reset)
    evaluator = LoaderEvaluator(loader)
    assert trained(evaluator, 3, batches=3) == [[*range(30)]] * 3


def test_a_reset_of_the_users_own_is_no_break(dali_pipeline: Make) -> None:
    """The usual `loader.reset()` at the end of an epoch works through the wrapper."""
    evaluator = LoaderEvaluator(iterator(dali_pipeline(batch_size=10)))
    for _ in range(3):
        assert trained(evaluator, 1) == [[*range(30)]]
        evaluator.reset()


def test_a_loader_that_was_part_read_is_replayed_from_there(dali_pipeline: Make) -> None:
    """The kept batches are the next ones, and the warning points to where they are asked for."""
    loader = iterator(dali_pipeline())
    next(loader)
    with pytest.warns(LoadevalWarning, match="broken off") as raised:
        evaluator = LoaderEvaluator(loader, mode="replay", num_cached_batches=2)
    assert [warning.filename for warning in raised] == [__file__]
    assert trained(evaluator, 2) == [[*range(8, 24), *range(8, 24)]] * 2


def test_a_callable_measures_whole_epochs_after_a_break(dali_pipeline: Make) -> None:
    """What the warning advises: each epoch is a new iterator, which nobody broke off."""
    evaluator = LoaderEvaluator(lambda: iterator(dali_pipeline()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert trained(evaluator, 2, batches=1) == [[*range(8)]] * 2
        assert trained(evaluator, 1) == [[*range(30)]]


@pytest.mark.parametrize("exec_dynamic", [True, False])
@pytest.mark.parametrize("shards", [1, 2])
def test_an_alternating_run_serves_every_image_once(
    dali_pipeline: Make, exec_dynamic: bool, shards: int
) -> None:
    """Every epoch has all images, also where buffers are used again; none is counted twice."""
    pipelines = [
        dali_pipeline(1, exec_dynamic=exec_dynamic, shard_id=n, num_shards=shards)
        for n in range(shards)
    ]
    with LoaderEvaluator(iterator(pipelines), mode="alternate") as evaluator:
        epochs = trained(evaluator, 4)
    assert [sorted(epoch) for epoch in epochs] == [[*range(IMAGES)]] * 4
    assert evaluator.recorded().steps.samples.sum() == 4 * IMAGES


def test_replay_serves_whole_epochs_of_the_first_batches(dali_pipeline: Make) -> None:
    """Epochs of as many batches as DALI's, made of the kept ones."""
    evaluator = LoaderEvaluator(iterator(dali_pipeline()), mode="replay", num_cached_batches=2)
    assert trained(evaluator, 3) == [[*range(16)] * 2] * 3
    assert evaluator.recorded().steps.samples.sum() == 3 * 32
