"""Trains with three mistakes: one worker, which starts anew in each epoch, and a slow transform.

`three_mistakes.py '{"num_workers": 2, "faster": 2}'` trains with other arguments of the loader,
and with a transform so many times as fast. The step sleeps, as one on a device does. Prints the
mean time of a batch over all epochs but the first, as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

SAMPLES, BATCH_SIZE, EPOCHS = 96, 4, 8
STEP_S, INDEX_S, SMOOTH_S = 0.030, 0.250, 0.0135
CHANGES: dict[str, Any] = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
CPU_S = SMOOTH_S / CHANGES.pop("faster", 1)


def smooth(number: int) -> torch.Tensor:
    """The slow transform, which takes so much CPU time on any machine."""
    began_s = time.thread_time()
    while time.thread_time() - began_s < CPU_S:
        number += 1
    return torch.full((4,), float(number % 10))


class Photographs(Dataset[torch.Tensor]):
    """Samples that a transform makes."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        return smooth(index)


def open_index(_: int) -> None:
    """What each worker does once."""
    time.sleep(INDEX_S)


def main() -> None:
    """Train."""
    arguments: dict[str, Any] = {"num_workers": 1, **CHANGES}
    loader = DataLoader(Photographs(), BATCH_SIZE, worker_init_fn=open_index, **arguments)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    began_s = 0.0
    for epoch in range(EPOCHS):
        if epoch == 1:
            began_s = time.perf_counter()
        for batch in loader:
            model(batch).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(STEP_S)
    batches = (EPOCHS - 1) * SAMPLES / BATCH_SIZE
    json.dump({"batch_s": (time.perf_counter() - began_s) / batches}, sys.stdout)


if __name__ == "__main__":
    main()
