"""Lightning Fabric on one device; several are in test_ranks.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from lightning.fabric import Fabric

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.frameworks.conftest import ReadAhead, SameTraining, Task

MODES = ["log", "replay", "alternate"]


def loop(fabric: Fabric, task: Task, loader: Any) -> None:
    model, optimiser = fabric.setup(task.model, task.optimiser)
    for _ in range(2):
        for number, batch in enumerate(loader, start=1):
            is_accumulating = number % 4 != 0 and number != len(loader)
            with fabric.no_backward_sync(model, enabled=is_accumulating):
                fabric.backward(task.loss(batch, model))
            if not is_accumulating:
                optimiser.step()
                optimiser.zero_grad()


def measured_after_setup(task: Task, measured: Callable[[Any], Any]) -> None:
    fabric = Fabric(accelerator="cpu", devices=1)
    loop(fabric, task, measured(fabric.setup_dataloaders(task.loader)))


def measured_before_setup(task: Task, measured: Callable[[Any], Any]) -> None:
    fabric = Fabric(accelerator="cpu", devices=1)
    loop(fabric, task, fabric.setup_dataloaders(measured(task.loader)))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("way", ["wrapped", "in place"])
def test_what_was_set_up_trains_the_same(way: str, mode: str, same_training: SameTraining) -> None:
    """What `setup_dataloaders` returned is measured, either way."""
    evaluator = same_training(measured_after_setup, way, mode)
    assert evaluator.recorded().header.loader.batch_size == 4


@pytest.mark.parametrize("mode", MODES)
def test_what_will_be_set_up_trains_the_same(mode: str, same_training: SameTraining) -> None:
    """A DataLoader that is measured in place can be set up."""
    same_training(measured_before_setup, "in place", mode)


@pytest.mark.parametrize("way", ["wrapped", "in place"])
def test_workers_train_the_same(way: str, same_training: SameTraining) -> None:
    """Two, which stay alive between epochs; they are known through Fabric's own loader."""
    evaluator = same_training(measured_after_setup, way, num_workers=2, persistent_workers=True)
    info = evaluator.recorded().header.loader
    assert (info.workers, info.prefetch_depth, info.device) == (2, 4, "cpu")


def test_an_evaluator_cannot_be_set_up(same_training: SameTraining) -> None:
    """Fabric itself refuses what is no DataLoader."""
    with pytest.raises(TypeError, match="Only PyTorch DataLoader are currently supported"):
        same_training(measured_before_setup, "wrapped")


@pytest.mark.parametrize("way", ["wrapped", "in place"])
def test_fabric_reads_nothing_ahead(way: str, read_ahead: ReadAhead) -> None:
    """Each batch is trained on when it is read."""
    assert set(read_ahead(measured_after_setup, way)) == {0}
