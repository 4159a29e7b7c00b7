"""Workers report each sample to a process that was stopped, through a pipe that fills up."""

from __future__ import annotations

import multiprocessing
import os
import signal
from typing import TYPE_CHECKING

from torch.utils.data import DataLoader

from bench.hangs.programs.training import Numbers, train

if TYPE_CHECKING:
    import torch

REPORT = b"." * 9000


class Reported(Numbers):
    def __init__(self, pipe: int) -> None:
        self.pipe = pipe

    def __getitem__(self, index: int) -> torch.Tensor:
        os.write(self.pipe, REPORT)
        return super().__getitem__(index)


def read(pipe: int) -> None:
    """Read the reports, until somebody stops this process."""
    os.kill(os.getpid(), signal.SIGSTOP)
    while os.read(pipe, 1000):
        pass


if __name__ == "__main__":
    receiving, sending = os.pipe()
    monitor = multiprocessing.get_context("fork").Process(target=read, args=(receiving,))
    monitor.daemon = True
    monitor.start()
    os.close(receiving)
    train(DataLoader(Reported(sending), batch_size=2, num_workers=2))
