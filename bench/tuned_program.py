"""A program as people write them, with too few workers: `tuned_program.py KIND FOLDER EPOCHS`.

Prints the mean time of a batch over all epochs but the first, as JSON; `FOLDER` has photographs.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, Dataset

if TYPE_CHECKING:
    from bench.prediction_loaders import Photographs
    from bench.truth_loaders import Items, Sleep, numbered
else:  # a script finds its siblings by their plain names
    from prediction_loaders import Photographs
    from truth_loaders import Items, Sleep, numbered

BATCH_SIZE = 6
BATCHES = {"jpeg": 120, "storage": 120, "starts": 30}
"""In an epoch of each kind."""
STEP_S = 0.008
OPEN_S = {"starts": 0.25}
"""What each worker takes to open what it reads."""


def dataset_of(kind: str, folder: Path) -> Dataset[Any]:
    """JPEGs, or samples of which one in five waits for storage."""
    size = BATCHES[kind] * BATCH_SIZE
    if kind == "storage":
        return Items(size, numbered, Sleep(1, more_ms=20, every=5))
    return Photographs(sorted(folder.rglob("*.jpg")), size)


def main() -> None:
    """Train."""
    kind, folder, epochs = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    loader = DataLoader(
        dataset_of(kind, folder),
        batch_size=BATCH_SIZE,
        shuffle=True,
        num_workers=1,
        worker_init_fn=lambda _: time.sleep(OPEN_S.get(kind, 0.0)),
    )
    began_s = time.perf_counter()
    for epoch in range(epochs):
        if epoch == 1:
            began_s = time.perf_counter()
        for _ in loader:
            model(torch.ones(1)).backward()
            optimizer.step()
            time.sleep(STEP_S)
    batches = max(epochs - 1, 1) * BATCHES[kind]
    json.dump({"batch_s": (time.perf_counter() - began_s) / batches}, sys.stdout)


if __name__ == "__main__":
    main()
