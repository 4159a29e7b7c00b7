"""Trains a classifier of sounds with SpeechBrain's Brain: `train_speechbrain.py WORKERS`."""

from __future__ import annotations

import sys
import time
from typing import Any

import speechbrain
import torch
from speechbrain.dataio.dataset import DynamicItemDataset
from torch import nn

from bench.programs.shared import SAMPLE_S, begin, show, show_parameters

CLASSES = 4


@speechbrain.utils.data_pipeline.takes("number")
@speechbrain.utils.data_pipeline.provides("sig", "label")
def sound(number: int) -> Any:
    """A tone, of some length, in noise."""
    time.sleep(SAMPLE_S)
    random = torch.Generator().manual_seed(number)
    length = 400 + int(torch.randint(400, (1,), generator=random))
    tone = torch.sin(torch.arange(length) * 0.05 * (1 + number % CLASSES))
    yield tone + 0.1 * torch.randn(length, generator=random)
    yield number % CLASSES


class Classifier(speechbrain.Brain):
    """Mean energies of a convolution's outputs, classified."""

    def compute_forward(self, batch: Any, stage: Any) -> torch.Tensor:  # noqa: ARG002 - Brain passes it
        batch = batch.to(self.device)
        sounds, _ = batch.sig
        predictions: torch.Tensor = self.modules.model(sounds.unsqueeze(1))
        return predictions

    def compute_objectives(self, predictions: torch.Tensor, batch: Any, stage: Any) -> torch.Tensor:
        loss = nn.functional.cross_entropy(predictions, torch.as_tensor(batch.label))
        if stage == speechbrain.Stage.TRAIN:
            show("loss", loss.detach())
        return loss

    def on_stage_end(self, stage: Any, stage_loss: float, epoch: Any = None) -> None:  # noqa: ARG002 - speechbrain passes it
        show(stage.name, stage_loss)


begin()
training, validation = (
    DynamicItemDataset(
        {str(number): {"number": number} for number in numbers},
        dynamic_items=[sound],
        output_keys=["id", "sig", "label"],
    )
    for numbers in (range(1280), range(1280, 1376))
)
model = nn.Sequential(
    nn.Conv1d(1, 8, 65, 4), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(8, CLASSES)
)
brain = Classifier(
    {"model": model},
    opt_class=lambda parameters: torch.optim.SGD(parameters, 0.1),
    run_opts={"device": "cpu"},
)
brain.fit(
    range(2),
    training,
    validation,
    progressbar=False,
    train_loader_kwargs={"batch_size": 8, "shuffle": True, "num_workers": int(sys.argv[1])},
    valid_loader_kwargs={"batch_size": 16},
)
show_parameters(model)
