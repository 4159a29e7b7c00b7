"""Trains a classifier with skorch, which validates after each epoch: `train_skorch.py WORKERS`."""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import skorch
import torch
from skorch import NeuralNetClassifier
from torch import nn

from bench.programs.shared import SAMPLE_S, begin, show, show_parameters

SAMPLES, FEATURES = 1600, 20


class Slow(skorch.dataset.Dataset):
    """Takes a while for each sample."""

    def __getitem__(self, index: int) -> Any:
        time.sleep(SAMPLE_S)
        return super().__getitem__(index)


class Module(nn.Module):
    """The one of skorch's quick start."""

    def __init__(self, units: int = 10) -> None:
        super().__init__()
        self.dense0 = nn.Linear(FEATURES, units)
        self.dropout = nn.Dropout(0.5)
        self.dense1 = nn.Linear(units, units)
        self.output = nn.Linear(units, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.dropout(torch.relu(self.dense0(inputs)))
        return torch.softmax(self.output(torch.relu(self.dense1(hidden))), dim=-1)


begin()
random = np.random.default_rng(0)
inputs = random.normal(size=(SAMPLES, FEATURES)).astype(np.float32)
labels = (inputs.sum(axis=1) > 0).astype(np.int64)
net = NeuralNetClassifier(
    Module,
    max_epochs=3,
    lr=0.1,
    batch_size=8,
    dataset=Slow,
    iterator_train__shuffle=True,
    iterator_train__num_workers=int(sys.argv[1]),
    verbose=0,
)
net.fit(inputs, labels)
for epoch in net.history:
    show("losses", *(batch["train_loss"] for batch in epoch["batches"] if "train_loss" in batch))
    show("epoch", epoch["train_loss"], epoch["valid_loss"], epoch["valid_acc"])
show_parameters(net.module_)
