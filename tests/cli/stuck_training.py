"""A training one of whose two workers is stuck in sample 777, until it is killed.

Its argument is a folder, in which a file `stuck` stands from then on.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

from tests.cli.attached_training import let_any_process_read_this_one

STUCK = 777


class Samples(Dataset[torch.Tensor]):
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __len__(self) -> int:
        return 4000

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == STUCK:
            (self.folder / "stuck").touch()
            time.sleep(600)
        return torch.zeros(4)


def main() -> None:
    let_any_process_read_this_one()
    torch.set_num_threads(1)
    samples, allow = Samples(Path(sys.argv[1])), let_any_process_read_this_one
    for _ in DataLoader(samples, batch_size=8, num_workers=2, worker_init_fn=allow):
        pass


if __name__ == "__main__":
    main()
