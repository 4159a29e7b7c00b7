"""Loaders with workers, and steps, whose throughput is predicted and then measured."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from bench.zoo.costs import Alone, Both, Burn, Cost, Matmul, Sleep, least_ms, uneven
from bench.zoo.programs import Samples
from bench.zoo.storage import read_anew, write_random
from bench.zoo.truth import Transformed, numbered
from loadeval.demo.run import make_photographs

FILES = 64
ANY_ORDER = "in_order" in inspect.signature(DataLoader).parameters
"""Whether this torch can serve batches as they come."""


@dataclass(frozen=True)
class Setting:
    workers: int
    prefetch_factor: int = 2
    in_order: bool = True

    def __str__(self) -> str:
        text = f"{self.workers} worker{'s' if self.workers > 1 else ''}"
        if self.prefetch_factor != Setting.prefetch_factor:
            text += f", prefetch {self.prefetch_factor}"
        return text if self.in_order else f"{text}, any order"

    def options(self) -> dict[str, Any]:
        """The arguments of DataLoader; an older torch knows no order but one."""
        options = {"num_workers": self.workers, "prefetch_factor": self.prefetch_factor}
        return options if self.in_order else {**options, "in_order": False}


FEWER_SETTINGS = tuple(map(Setting, (2, 3, 4, 6)))
SETTINGS = (
    *FEWER_SETTINGS,
    Setting(3, 1),
    Setting(3, 4),
    *([Setting(3, in_order=False)] if ANY_ORDER else []),
)
QUICK_SETTINGS = (Setting(2), Setting(4))


@dataclass(frozen=True)
class Workload:
    """A loader and a training step; the run from which is predicted has `workers`.

    An epoch, and so that run, has `epoch` batches. Each of `settings` is measured in three rounds,
    over `counted` batches.
    """

    name: str
    what: str
    dataset: Callable[[int], Dataset[Any]]
    batch_size: int
    step: Cost
    workers: int = 1
    collate: Callable[[list[Any]], Any] | None = None
    context: str | None = None
    epoch: int = 300
    counted: int = 140
    settings: tuple[Setting, ...] = SETTINGS

    def loader(self, **options: Any) -> DataLoader[Any]:
        if options.get("num_workers"):
            options = {"multiprocessing_context": self.context, **options}
        return DataLoader(
            self.dataset(self.epoch * self.batch_size),
            batch_size=self.batch_size,
            shuffle=True,
            generator=torch.Generator().manual_seed(7),
            collate_fn=self.collate,
            **options,
        )

    def train(self, _batch: Any) -> None:
        self.step(0)


def costing(cost: Cost) -> Callable[[int], Samples]:
    return lambda size: Transformed(size, numbered, cost)


def photograph(paths: Sequence[Path], index: int) -> torch.Tensor:
    """A JPEG: decoded, cropped at random, resized, mirrored, normalised."""
    random = np.random.default_rng(index)
    with Image.open(paths[index % len(paths)]) as file:
        image = file.convert("RGB")
    side = int(random.integers(256, 480))
    left, top = random.integers(0, 480 - side, size=2).tolist()
    image = image.resize((224, 224), box=(left, top, left + side, top + side))
    if index % 2:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)
    return pixels.float().div_(255).sub_(0.5)


def in_python(side: int, index: int) -> torch.Tensor:
    """An image that is a list of rows, mirrored and made brighter."""
    places = range(side)
    image = [[(index + 31 * x + 17 * y) % 256 for x in places] for y in places]
    mirrored = [row[::-1] for row in image]
    return torch.tensor([[min(255, value * 5 // 4) for value in row] for row in mirrored])


def array(index: int) -> Any:
    image = np.random.default_rng(index).random((3, 256, 256), dtype=np.float32)
    return np.subtract(image, 0.5, out=image)


def workloads(folder: Path) -> list[Workload]:
    jpegs = make_photographs(folder / "photographs", FILES)
    files = write_random(folder / "files", FILES)
    photographs = partial(Samples, partial(photograph, jpegs))
    python = partial(Samples, partial(in_python, 64))
    one = Matmul(256, 1)
    matmul = Matmul(256, round(25 / least_ms(lambda: one(0))))
    alone = Alone(get_context("fork").Lock(), Burn(1))

    def dropped(index: int) -> torch.Tensor:
        return torch.tensor([read_anew(files[index % FILES])[0], index])

    fewer = {"epoch": 160, "counted": 80, "settings": FEWER_SETTINGS}
    slow_sample = costing(Both(Burn(2), Burn(28), every=50))
    latency = costing(Both(Burn(0.5), Sleep(20), every=5))
    small = partial(Samples, partial(in_python, 8))
    lock = costing(Both(Burn(2), alone))
    odd = costing(uneven(4, shape=0.5))
    spawn = {"context": "spawn", "settings": QUICK_SETTINGS}
    return [
        Workload("jpeg", "JPEGs, augmented", photographs, 6, Burn(4)),
        Workload("python", "augmented in Python", python, 12, Sleep(3)),
        Workload("disk", "files, not cached", partial(Samples, dropped), 8, Sleep(3), workers=2),
        Workload("latency", "1 sample in 5 waits 20 ms", latency, 4, Sleep(4)),
        Workload("step", "25 ms of matrices", photographs, 20, matmul, **fewer),
        Workload("head of line", "1 sample in 50 takes 15x", slow_sample, 4, Sleep(3), workers=2),
        Workload("small", "batches of 2 ms", small, 80, Burn(0.3), epoch=1000, counted=800),
        Workload("numpy", "6 MB through a pipe", partial(Samples, array), 8, Sleep(3), 2, np.stack),
        Workload("uneven", "samples differ by 140%", odd, 2, Sleep(2), epoch=600, counted=500),
        Workload("lock", "a third of the time alone", lock, 4, Sleep(2), workers=2),
        Workload("spawn", "spawned workers", python, 12, Sleep(3), **spawn),
    ]
