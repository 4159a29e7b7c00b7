"""Trains on random stretches of a file of tokens, as nanoGPT does: `nanogpt.py DATA LOSSES`.

Draws its batches by itself, without a loader. A program as people write them; knows no loadeval.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

BLOCK, BATCH, TOKENS, STEPS = 16, 8, 64, 20


def get_batch(path: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Stretches of the file, and what follows each of their tokens."""
    tokens = np.memmap(path, np.uint16, "r")
    starts = torch.randint(len(tokens) - BLOCK, (BATCH,)).tolist()
    stretches = np.stack([tokens[start : start + BLOCK + 1] for start in starts])
    both = torch.from_numpy(stretches.astype(np.int64))
    return both[:, :-1], both[:, 1:]


def main() -> None:
    """Train, and write each loss."""
    data, folder = map(Path, sys.argv[1:])
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Embedding(TOKENS, 16), nn.Linear(16, TOKENS))
    optimizer = torch.optim.AdamW(model.parameters())
    losses = []
    for _ in range(STEPS):
        inputs, targets = get_batch(data / "tokens.bin")
        loss = nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it so
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
    (folder / "rank0.txt").write_text("\n".join(map(repr, losses)), encoding="utf-8")


if __name__ == "__main__":
    main()
