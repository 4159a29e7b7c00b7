"""Trains a GPT in the way of minGPT's trainer and its sort demo: `train_mingpt.py WORKERS`.

minGPT is not on PyPI: this is its loop, over a sampler that never ends.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler

from bench.programs.shared import SAMPLE_S, begin, show, show_parameters

LENGTH, DIGITS, WIDTH, ITERATIONS = 6, 3, 48, 320


class SortDataset(Dataset[Any]):
    """Numbers, and the same in order."""

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        time.sleep(SAMPLE_S)
        numbers = torch.randint(DIGITS, (LENGTH,), generator=torch.Generator().manual_seed(index))
        both = torch.cat((numbers, numbers.sort().values))
        targets = both[1:].clone()
        targets[: LENGTH - 1] = -1
        return both[:-1], targets


class GPT(nn.Module):
    """Two blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(DIGITS, WIDTH), nn.Embedding(2 * LENGTH, WIDTH)
        block = nn.TransformerEncoderLayer(WIDTH, 3, 4 * WIDTH, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, DIGITS, bias=False)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        length = x.size(1)
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        inside = self.wte(x) + self.wpe(torch.arange(length))
        logits = self.head(self.blocks(inside, mask=mask, is_causal=True))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten(), ignore_index=-1)
        return logits, loss


begin()
dataset, model = SortDataset(), GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, betas=(0.9, 0.95))
train_loader = DataLoader(
    dataset,
    sampler=RandomSampler(dataset, replacement=True, num_samples=int(1e10)),
    shuffle=False,
    pin_memory=False,
    batch_size=8,
    num_workers=int(sys.argv[1]),
)
model.train()
iteration = 0
data_iter = iter(train_loader)
while True:
    try:
        batch = next(data_iter)
    except StopIteration:
        data_iter = iter(train_loader)
        batch = next(data_iter)
    logits, loss = model(*batch)
    model.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    show("loss", loss)
    iteration += 1
    if iteration >= ITERATIONS:
        break
show_parameters(model)
