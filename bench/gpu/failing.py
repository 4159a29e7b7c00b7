"""A program whose CUDA fails in its sixth step; with a file's name, its run is logged to it."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import Any

import torch

from loadeval import LoaderEvaluator


def step(number: int, batch: torch.Tensor) -> None:
    """Fails on the device, some time after it was launched."""
    values = batch.to("cuda")
    if number == 5:
        values[torch.tensor([values.numel()], device="cuda")]
    torch.cuda.synchronize()


def main() -> None:
    """Train."""
    loader: Any = [torch.zeros(8)] * 20
    logs = sys.argv[1:]
    with LoaderEvaluator(loader, log_file=logs[0]) if logs else nullcontext(loader) as batches:
        for number, batch in enumerate(batches):
            step(number, batch)


if __name__ == "__main__":
    main()
