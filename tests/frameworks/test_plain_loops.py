"""Loops that are written by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from torch.utils.data import DataLoader, DistributedSampler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.frameworks.conftest import ReadAhead, SameTraining, Task

WAYS = [(way, mode) for way in ("wrapped", "in place") for mode in ("log", "alternate")]


def loop(task: Task, measured: Callable[[Any], Any]) -> None:
    loader = measured(task.loader)
    for _ in range(2):
        for batch in loader:
            task.step(batch)


@pytest.mark.parametrize(("way", "mode"), WAYS)
def test_a_loop_trains_the_same(way: str, mode: str, same_training: SameTraining) -> None:
    """Batches, their order, updates and parameters are those of the loop without us."""
    evaluator = same_training(loop, way, mode)
    assert [end.cause for end in evaluator.recorded().ends] == ["exhausted"] * 2


@pytest.mark.parametrize("way", ["wrapped", "in place"])
def test_a_loop_with_workers_trains_the_same(way: str, same_training: SameTraining) -> None:
    """Workers that stay alive between epochs do not change that."""
    evaluator = same_training(loop, way, num_workers=2, persistent_workers=True)
    assert evaluator.recorded().header.loader.workers == 2


class Scaling:
    """What timm's PrefetchLoader is to its loop: no DataLoader, with settings of its own."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader
        self.mixup_enabled = True

    def __iter__(self) -> Iterator[Any]:
        for inputs, numbers in self.loader:
            yield inputs * 2 if self.mixup_enabled else inputs, numbers

    def __len__(self) -> int:
        return len(self.loader)

    @property
    def sampler(self) -> Any:
        return self.loader.sampler

    @property
    def dataset(self) -> Any:
        return self.loader.dataset


def loop_as_timm_has_it(task: Task, loader: Any) -> None:
    """Sets attributes through the loader, and counts on its length."""
    loader.dataset.transform = "the training's"
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)
        if epoch == 1 and loader.mixup_enabled:
            loader.mixup_enabled = False
        last = len(loader) - 1
        for number, batch in enumerate(loader):
            task.step(batch)
            assert (number == last) == (len(task.seen[-1]) == 3)


@pytest.mark.parametrize(("way", "mode"), WAYS)
def test_a_loop_that_sets_attributes_trains_the_same(
    way: str, mode: str, same_training: SameTraining
) -> None:
    """Settings reach the loader through the wrapper; in place the loader is the user's own."""

    def train(task: Task, measured: Callable[[Any], Any]) -> None:
        sampler: DistributedSampler[Any] = DistributedSampler(task.dataset, 1, 0)
        own: DataLoader[Any] = DataLoader(task.dataset, 4, sampler=sampler)
        loader = measured(Scaling(own)) if way == "wrapped" else Scaling(measured(own))
        loop_as_timm_has_it(task, loader)
        assert vars(task.dataset)["transform"] == "the training's"

    same_training(train, way, mode)


@pytest.mark.parametrize("way", ["wrapped", "in place"])
def test_a_loop_reads_nothing_ahead(way: str, read_ahead: ReadAhead) -> None:
    """Each batch is trained on when it is read."""
    assert set(read_ahead(loop, way)) == {0}
