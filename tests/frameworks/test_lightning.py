"""Lightning's Trainer on one device; several are in test_ranks.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from lightning.pytorch import LightningModule, Trainer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import torch

    from tests.frameworks.conftest import ReadAhead, SameTraining, Task

    Train = Callable[[Task, Callable[[Any], Any]], None]

pytestmark = [
    # Lightning's advice on loaders without workers.
    pytest.mark.filterwarnings("ignore:The 'train_dataloader' does not have many workers"),
    # Of Lightning's own pytree helpers, which torch has renamed.
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated"),
]

WAYS = [(way, mode) for way in ("wrapped", "in place") for mode in ("log", "replay", "alternate")]


class Module(LightningModule):
    """The task's model and steps."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.task = task
        self.model = task.model

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        return self.task.loss(batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return self.task.optimiser


@pytest.fixture
def fit(tmp_path: Path) -> Callable[..., Train]:
    """Makes a training of two epochs, by a Trainer with the options given."""

    def make(**options: Any) -> Train:
        def train(task: Task, measured: Callable[[Any], Any]) -> None:
            trainer = Trainer(
                accelerator="cpu",
                devices=1,
                max_epochs=2,
                logger=False,
                enable_checkpointing=False,
                enable_progress_bar=False,
                enable_model_summary=False,
                default_root_dir=tmp_path,
                **options,
            )
            trainer.fit(Module(task), train_dataloaders=measured(task.loader))

        return train

    return make


@pytest.mark.parametrize(("way", "mode"), WAYS)
def test_fit_trains_the_same(
    way: str, mode: str, fit: Callable[..., Train], same_training: SameTraining
) -> None:
    """Batches, their order, updates and parameters are those of `fit` without us."""
    evaluator = same_training(fit(), way, mode)
    assert len(evaluator.recorded().ends) == 2


@pytest.mark.parametrize(("way", "mode"), WAYS)
def test_gradients_are_accumulated_the_same(
    way: str, mode: str, fit: Callable[..., Train], same_training: SameTraining
) -> None:
    """Over four batches, and over what is left at the end of an epoch."""
    same_training(fit(accumulate_grad_batches=4), way, mode)


@pytest.mark.parametrize("way", ["wrapped", "in place"])
def test_workers_train_the_same(
    way: str, fit: Callable[..., Train], same_training: SameTraining
) -> None:
    """Two, which stay alive between epochs."""
    same_training(fit(), way, num_workers=2, persistent_workers=True)


@pytest.mark.parametrize("way", ["wrapped", "in place"])
def test_an_epoch_can_be_cut_short(
    way: str, fit: Callable[..., Train], same_training: SameTraining
) -> None:
    """`limit_train_batches` is seen as an epoch that was broken off."""
    evaluator = same_training(fit(limit_train_batches=5), way)
    assert [end.cause for end in evaluator.recorded().ends] == ["broken off"] * 2


@pytest.mark.parametrize("way", ["wrapped", "in place"])
def test_fit_reads_nothing_ahead(
    way: str, fit: Callable[..., Train], read_ahead: ReadAhead
) -> None:
    """Each batch is trained on when it is read."""
    assert set(read_ahead(fit(), way)) == {0}


def test_without_a_length_one_batch_is_read_ahead(
    fit: Callable[..., Train], read_ahead: ReadAhead
) -> None:
    """Lightning has to know the last batch when it trains on it."""

    def train(task: Task, measured: Callable[[Any], Any]) -> None:
        batches = list(task.loader)
        task.loader = cast("Any", lambda: iter(batches))
        fit()(task, measured)

    assert read_ahead(train, "wrapped") == 2 * ([1] * 20 + [0])
