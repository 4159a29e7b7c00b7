"""A program whose CUDA fails in its sixth step; with a file's name, its run is logged to it."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import Any

import torch

from bench.gpu.device import is_stand_in, missing
from loadeval import LoaderEvaluator


def step(number: int, batch: torch.Tensor) -> None:
    """Fails on the device, some time after it was launched."""
    values = batch.to("cuda")
    if number == 5:
        if is_stand_in():
            from bench.gpu.stand_in import ACCOUNT

            ACCOUNT.failed = True
        else:
            values[torch.tensor([values.numel()], device="cuda")]
    torch.cuda.synchronize()


def main() -> None:
    """Train."""
    missing()
    loader: Any = [torch.zeros(8)] * 20
    logs = sys.argv[1:]
    with LoaderEvaluator(loader, log_file=logs[0]) if logs else nullcontext(loader) as batches:
        for number, batch in enumerate(batches):
            step(number, batch)


if __name__ == "__main__":
    main()
