"""Workers are spawned, and import a module that never gets done."""

from __future__ import annotations

import os

from torch.utils.data import DataLoader

from bench.hangs.programs.training import Numbers, train

if __name__ == "__mp_main__":
    os.read(os.pipe()[0], 1)

if __name__ == "__main__":
    train(DataLoader(Numbers(), batch_size=2, num_workers=2, multiprocessing_context="spawn"))
