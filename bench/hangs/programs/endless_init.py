"""The `worker_init_fn` of one worker waits for something that never happens."""

from __future__ import annotations

import threading

from torch.utils.data import DataLoader

from bench.hangs.programs.training import Numbers, train


def prepare(worker: int) -> None:
    if worker == 1:
        threading.Event().wait()


if __name__ == "__main__":
    train(DataLoader(Numbers(), batch_size=2, num_workers=2, worker_init_fn=prepare))
