"""The network and its data are the same on both sides."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from loadeval.demo.photographs import make_photographs
from loadeval.demo.run import BATCH_SIZE, DemoTraining, Photographs, one_thread, run_demo
from loadeval.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return make_photographs(tmp_path_factory.mktemp("photographs"), 2 * BATCH_SIZE)


def test_sample(paths: list[Path]) -> None:
    """A sample is an image of three colours, 224 x 224, and its class."""
    image, label = Photographs(paths)[2]
    assert image.shape == (3, 224, 224)
    assert label == 2


def test_learns(paths: list[Path]) -> None:
    """DemoTraining on a batch again and again, the network comes to classify it."""
    training = DemoTraining(paths)
    dataset = Photographs(paths)
    images, labels = zip(*(dataset[index] for index in range(8)), strict=True)
    batch = torch.stack(images), torch.tensor(labels)
    steps: list[None] = []
    with one_thread():
        accuracy = training.train_one_epoch([batch] * 40, lambda: steps.append(None))
    assert len(steps) == 40
    assert accuracy > 0.5


@pytest.mark.parametrize(("cuda", "reason"), [(None, "built without CUDA"), ("13.0", "finds no")])
def test_why_there_is_no_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cuda: str | None, reason: str
) -> None:
    """It is said before anything is made."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    with pytest.raises(UsageError, match=reason):
        run_demo(tmp_path / "demo", device="cuda")
    assert not (tmp_path / "demo").exists()
