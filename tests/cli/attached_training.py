"""A training that runs until it is killed, and writes how long it has waited and stepped so far.

A worker sleeps 40 ms for a batch, a step 20 ms: with one worker training waits half of the time.
Without workers it waits two thirds. Arguments: the file to write to, and the number of workers.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

LOAD_S, STEP_S = 0.04, 0.02
ANY_PROCESS = ctypes.c_ulong(-1)
PR_SET_PTRACER = 0x59616D61


class Slow(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 10_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(LOAD_S)
        return torch.zeros(1)


def let_any_process_read_this_one(_: int = 0) -> None:
    """Where a system lets only a parent read its children."""
    ctypes.CDLL(None).prctl(PR_SET_PTRACER, ANY_PROCESS, 0, 0, 0)


def main() -> None:
    let_any_process_read_this_one()
    path, workers = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    waited_s = stepped_s = 0.0
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    asked_s = time.perf_counter()
    allow = let_any_process_read_this_one if workers else None
    loader = DataLoader(Slow(), batch_size=None, num_workers=workers, worker_init_fn=allow)
    for _ in loader:
        got_s = time.perf_counter()
        waited_s += got_s - asked_s
        time.sleep(STEP_S)
        asked_s = time.perf_counter()
        stepped_s += asked_s - got_s
        os.pwrite(file, f"{waited_s:20.6f} {stepped_s:20.6f}\n".encode(), 0)


if __name__ == "__main__":
    main()
