"""Trains a learner of fastai's, from fastai's own DataLoader: `train_fastai.py WORKERS`."""

from __future__ import annotations

import sys
from typing import Any

import torch
from fastai.callback.schedule import Learner
from fastai.data.core import DataLoaders
from fastai.metrics import accuracy
from fastai.torch_core import set_seed
from torch import nn
from torch.utils.data import TensorDataset

from bench.programs.shared import Slow, begin, show, show_parameters

TRAINING, VALIDATION = 1280, 96

begin()
set_seed(0)  # it shuffles by Python's generator
random = torch.Generator().manual_seed(0)
inputs = torch.randn(TRAINING + VALIDATION, 20, generator=random)
labels = (inputs.sum(dim=1) > 0).long()
dls: Any = DataLoaders.from_dsets(
    Slow(TensorDataset(inputs[:TRAINING], labels[:TRAINING])),
    Slow(TensorDataset(inputs[TRAINING:], labels[TRAINING:])),
    bs=8,
    num_workers=int(sys.argv[1]),
)
model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.BatchNorm1d(32), nn.Linear(32, 2))
learn = Learner(dls, model, loss_func=nn.CrossEntropyLoss(), metrics=accuracy)
with learn.no_bar(), learn.no_logging():
    learn.fit_one_cycle(2, 1e-2)
show("smooth losses", *learn.recorder.losses)
for values in learn.recorder.values:
    show("epoch", *values)
show_parameters(learn.model)
