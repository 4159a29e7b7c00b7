"""Order and ratio of backends, by `loadeval backends` and by loops that were written by hand.

Makes photographs of 500 x 375 at quality 96, as ImageNet's are, and of 4000 x 3000, as phones take
them, and prints a table: images/s on one CPU, and how fast each is against Pillow, both ways. The
loops know nothing of loadeval's templates: a dataset, a DataLoader with one worker, and a clock.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from loadeval.demo.photographs import make_photographs

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    Pixels = npt.NDArray[np.uint8]

SIZES = {"500x375, quality 96": (500, 375, 96, 96), "4000x3000": (4000, 3000, 90, 24)}
"""Width, height and quality, and how many."""
SIDE = 224
BATCH_SIZE = 8
ROUNDS = 3
SECONDS, REPEATED = 3.0, 100
KEEPING = {
    **os.environ,
    "MALLOC_TRIM_THRESHOLD_": "268435456",
    "MALLOC_MMAP_THRESHOLD_": "268435456",
}
"""glibc keeps the memory of an image, on both sides: else it depends on what else was allocated."""
CLOSE = 0.1


def by_pillow(path: str) -> Pixels:
    """As ImageFolder's loader has it: an image is opened, and what is done with it follows."""
    with Image.open(path) as file:
        image = file.convert("RGB")
    return np.array(image.resize((SIDE, SIDE), Image.Resampling.BILINEAR))


def by_draft(path: str) -> Pixels:
    with Image.open(path) as file:
        file.draft("RGB", (SIDE, SIDE))
        image = file.convert("RGB")
    return np.array(image.resize((SIDE, SIDE), Image.Resampling.BILINEAR))


def by_opencv(path: str) -> Pixels:
    import cv2

    stored = cv2.imread(path)
    assert stored is not None
    image = cv2.cvtColor(stored, cv2.COLOR_BGR2RGB)
    return np.asarray(cv2.resize(image, (SIDE, SIDE), interpolation=cv2.INTER_AREA))


def by_simplejpeg(path: str) -> Pixels:
    import simplejpeg

    data = Path(path).read_bytes()
    image = simplejpeg.decode_jpeg(data, min_height=SIDE, min_width=SIDE)
    return np.array(Image.fromarray(image).resize((SIDE, SIDE), Image.Resampling.BILINEAR))


LOOPS: dict[str, Callable[[str], Pixels]] = {
    "pillow": by_pillow,
    "pillow-draft": by_draft,
    "opencv": by_opencv,
    "simplejpeg": by_simplejpeg,
}


class Files(Dataset[Any]):
    def __init__(self, paths: list[str], decode: Callable[[str], Pixels]) -> None:
        self.paths, self.decode = paths, decode

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        pixels = np.ascontiguousarray(self.decode(self.paths[index]).transpose(2, 0, 1))
        return torch.from_numpy(pixels)


def images_per_s(paths: list[str], decode: Callable[[str], Pixels]) -> float:
    """For SECONDS after the first two batches, with one worker on the CPU of this process."""
    batches = iter(DataLoader(Files(paths * REPEATED, decode), BATCH_SIZE, num_workers=1))
    next(batches)
    next(batches)
    began_s, count, seconds = time.perf_counter(), 0, 0.0
    while seconds < SECONDS:
        count += len(next(batches))
        seconds = time.perf_counter() - began_s
    return count / seconds


def add_rounds(rates: dict[str, list[float]], folder: Path) -> None:
    """Rates by hand, in turns, each in a process of its own on one CPU."""
    for _ in range(ROUNDS):
        for name in LOOPS:
            command = [sys.executable, __file__, "--loop", name, str(folder)]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=KEEPING)
            rates[name].append(float(done.stdout))


def measured(folder: Path) -> tuple[dict[str, list[float]], dict[str, float]]:
    """By hand, in rounds before and after loadeval's; and by loadeval."""
    rates: dict[str, list[float]] = {name: [] for name in LOOPS}
    add_rounds(rates, folder)
    ours = by_loadeval(folder)
    add_rounds(rates, folder)
    return rates, ours


def of_pillow(rates: list[float], pillow: list[float]) -> float:
    """The median of the ratios of each round: from round to round the machine's speed drifts."""
    return statistics.median(rate / base for rate, base in zip(rates, pillow, strict=True))


def by_loadeval(folder: Path) -> dict[str, float]:
    """What `loadeval backends` says of the loader by itself, on one CPU."""
    names = [word for name in LOOPS for word in ("--only", name)]
    work = ["--transform", f"resize {SIDE}x{SIDE}", "--batch-size", str(BATCH_SIZE), "--json"]
    command = [sys.executable, "-m", "loadeval", "backends", str(folder), *work, *names]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=KEEPING)
    return {
        each["name"]: each["alone"][0]["value"] for each in json.loads(done.stdout)["candidates"]
    }


def make(folder: Path, width: int, height: int, quality: int, count: int) -> None:
    """Photographs of that size, from the one that matplotlib ships."""
    for path in make_photographs(folder, count):
        with Image.open(path) as file:
            larger = file.convert("RGB").resize((width, height), Image.Resampling.LANCZOS)
        larger.save(path, quality=quality)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loop", nargs=2, metavar=("BACKEND", "FOLDER"), help="one loop by hand")
    options = parser.parse_args()
    if options.loop is not None:
        name, folder = options.loop
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        print(
            images_per_s([str(path) for path in sorted(Path(folder).rglob("*.jpg"))], LOOPS[name])
        )
        return
    print(
        "| photographs | backend | by hand | loadeval | by hand, of Pillow | loadeval, of Pillow |"
    )
    print("|---|---|---|---|---|---|")
    for label, (width, height, quality, count) in SIZES.items():
        with tempfile.TemporaryDirectory() as folder:
            make(Path(folder), width, height, quality, count)
            hand, ours = measured(Path(folder))
        by_hand = {name: of_pillow(rates, hand["pillow"]) for name, rates in hand.items()}
        for name in sorted(by_hand, key=lambda each: -by_hand[each]):
            ratios = by_hand[name], ours[name] / ours["pillow"]
            far = "" if abs(ratios[1] / ratios[0] - 1) <= CLOSE else " *"
            rates = f"{statistics.median(hand[name]):.0f} | {ours[name]:.0f}"
            print(f"| {label} | {name} | {rates} | {ratios[0]:.2f}x | {ratios[1]:.2f}x{far} |")


if __name__ == "__main__":
    main()
