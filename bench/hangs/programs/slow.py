"""A healthy loader whose batches take some seconds: asleep, computing, or receiving bytes."""

from __future__ import annotations

import socket
import sys
import threading
import time
from typing import TYPE_CHECKING

from torch.utils.data import DataLoader

from bench.hangs.programs.training import Numbers, train

if TYPE_CHECKING:
    import torch

SECONDS = 2.5
PAUSE_S = 0.05
SAMPLES = 8


def receive() -> None:
    """Receive one byte after the other, as of a large file over a slow line."""
    ours, theirs = socket.socketpair()

    def send() -> None:
        for _ in range(round(SECONDS / PAUSE_S)):
            time.sleep(PAUSE_S)
            theirs.sendall(b".")
        theirs.close()

    threading.Thread(target=send).start()
    with ours:
        while ours.recv(1):
            pass


class Slow(Numbers):
    def __init__(self, how: str) -> None:
        self.how = how

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.how == "sleeping":
            time.sleep(SECONDS)
        if self.how == "receiving":
            receive()
        end_s = time.monotonic() + SECONDS
        while self.how == "computing" and time.monotonic() < end_s:
            sum(range(1000))
        return super().__getitem__(index)


if __name__ == "__main__":
    train(DataLoader(Slow(sys.argv[1]), batch_size=2, num_workers=int(sys.argv[2])))
