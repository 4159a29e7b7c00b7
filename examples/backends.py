"""Which backend loads these photographs fastest, by itself and under this training step?

Calls `loadeval backends`, which writes a loader for each backend that is installed:
`pip install "loadeval[backends]"` installs most of them. Writes the photographs, a figure, and the
code of the fastest to the given folder.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import torch
from torch import nn

from loadeval.demo.photographs import make_photographs
from loadeval.demo.run import small_network

BATCH_SIZE = 16
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


torch.set_num_threads(1)  # more would compete with the loaders for CPUs
torch.manual_seed(0)
model = small_network(classes=4).to(DEVICE)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)


def step(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    """One training step with a batch of images, 16 x 3 x 224 x 224 bytes, and their classes."""
    images, classes = (tensor.to(DEVICE, non_blocking=True) for tensor in batch)
    loss = criterion(model(images / 255), classes)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def main() -> None:
    """Make the photographs, and call `loadeval backends`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="folder for photographs and results")
    parser.add_argument("--photographs", type=int, default=256, help="number of photographs")
    parser.add_argument("--only", action="append", default=[], help="a backend to measure")
    options = parser.parse_args()

    folder = options.folder.absolute()
    make_photographs(folder / "photographs", options.photographs)
    command = [sys.executable, "-m", "loadeval", "backends", str(folder / "photographs")]
    command += ["--transform", "resize 224x224", "--batch-size", str(BATCH_SIZE)]
    command += ["--step", "backends:step"]  # this file, found in the folder that it lies in
    command += [word for name in options.only for word in ("--only", name)]
    command += ["-o", str(folder / "backends.png"), "-o", str(folder / "loader.py")]
    done = subprocess.run(command, cwd=Path(__file__).parent, check=False)  # noqa: S603 - the command above
    raise SystemExit(done.returncode)


if __name__ == "__main__":
    main()
