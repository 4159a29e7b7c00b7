"""Trains a learner of fastai's, from fastai's own DataLoader: `train_fastai.py WORKERS`.

Prints losses, and what tells whether the parameters are the same, to the bit.
"""

import hashlib
import sys
import time
from typing import Any

import torch
from fastai.callback.schedule import Learner
from fastai.data.core import DataLoaders
from fastai.metrics import accuracy
from fastai.torch_core import set_seed
from torch import nn
from torch.utils.data import TensorDataset

TRAINING, VALIDATION = 1280, 96


class Slow(TensorDataset):
    """Loading takes so long for each sample that the verdict is clear beside other work."""

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.002)
        return super().__getitem__(index)


torch.manual_seed(0)
torch.set_num_threads(1)
set_seed(0)  # it shuffles by Python's generator
random = torch.Generator().manual_seed(0)
inputs = torch.randn(TRAINING + VALIDATION, 20, generator=random)
labels = (inputs.sum(dim=1) > 0).long()
dls: Any = DataLoaders.from_dsets(
    Slow(inputs[:TRAINING], labels[:TRAINING]),
    Slow(inputs[TRAINING:], labels[TRAINING:]),
    bs=8,
    num_workers=int(sys.argv[1]),
)
model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.BatchNorm1d(32), nn.Linear(32, 2))
learn = Learner(dls, model, loss_func=nn.CrossEntropyLoss(), metrics=accuracy)
with learn.no_bar(), learn.no_logging():
    learn.fit_one_cycle(2, 1e-2)
print(*(repr(float(loss)) for loss in learn.recorder.losses))
for values in learn.recorder.values:
    print(*(repr(float(value)) for value in values))
digest = hashlib.sha256()
for value in learn.model.state_dict().values():
    digest.update(value.detach().contiguous().numpy().tobytes())
print("parameters", digest.hexdigest())
