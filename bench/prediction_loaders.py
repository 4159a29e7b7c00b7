"""Loaders with workers, and steps, whose throughput is predicted and then measured."""

from __future__ import annotations

import inspect
import os
import zlib
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from loadeval.demo.photographs import make_photographs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from bench.truth_loaders import (
        Alone,
        Burn,
        Cost,
        Items,
        Matmul,
        Sleep,
        least_ms,
        numbered,
        rounds_per_ms,
    )
else:  # a script finds its siblings by their plain names
    from truth_loaders import (
        Alone,
        Burn,
        Items,
        Matmul,
        Sleep,
        least_ms,
        numbered,
        rounds_per_ms,
    )

EPOCH = 300
"""Batches in an epoch, and in a recorded run."""
ROUNDS = 3
FILES = 64
SIDE = 224
"""Pixels of an augmented image."""
ANY_ORDER = "in_order" in inspect.signature(DataLoader).parameters
"""Whether this torch can serve batches as they come."""


@dataclass(frozen=True)
class Setting:
    """How a DataLoader loads."""

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


SETTINGS = (
    *map(Setting, (2, 3, 4, 6)),
    Setting(3, 1),
    Setting(3, 4),
    *([Setting(3, in_order=False)] if ANY_ORDER else []),
)
QUICK_SETTINGS = (Setting(2), Setting(4))


@dataclass(frozen=True)
class Workload:
    """A loader and a training step; the run from which is predicted has `workers`.

    An epoch, and so that run, has `epoch` batches. Each of `settings` is measured in `rounds`, over
    `counted` batches.
    """

    name: str
    what: str
    dataset: Callable[[int], Dataset[Any]]
    batch_size: int
    step: Cost
    workers: int = 1
    collate: Callable[[list[Any]], Any] | None = None
    context: str | None = None
    epoch: int = EPOCH
    counted: int = 140
    rounds: int = ROUNDS
    settings: tuple[Setting, ...] = SETTINGS

    def loader(self, **options: Any) -> DataLoader[Any]:
        """A new loader; all draw their samples in the same random order, epoch by epoch."""
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


@dataclass(frozen=True)
class Photographs(Dataset[torch.Tensor]):
    """JPEGs: decoded, cropped at random, resized, mirrored, normalised."""

    paths: Sequence[Path]
    size: int

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> torch.Tensor:
        random = np.random.default_rng(index)
        with Image.open(self.paths[index % len(self.paths)]) as photograph:
            image = photograph.convert("RGB")
        side = int(random.integers(256, 480))
        left, top = random.integers(0, 480 - side, size=2).tolist()
        image = image.resize((SIDE, SIDE), box=(left, top, left + side, top + side))
        if index % 2:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)
        return pixels.float().div_(255).sub_(0.5)


@dataclass(frozen=True)
class PurePython(Dataset[torch.Tensor]):
    """Images that are lists of rows, mirrored and made brighter."""

    size: int
    side: int

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> torch.Tensor:
        places = range(self.side)
        image = [[(index + 31 * x + 17 * y) % 256 for x in places] for y in places]
        mirrored = [row[::-1] for row in image]
        return torch.tensor([[min(255, value * 5 // 4) for value in row] for row in mirrored])


@dataclass(frozen=True)
class Dropped(Dataset[torch.Tensor]):
    """Files that the page cache has forgotten, as in a data set larger than memory."""

    paths: Sequence[Path]
    size: int

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> torch.Tensor:
        with self.paths[index % len(self.paths)].open("rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            return torch.tensor([file.read()[0], index])


@dataclass(frozen=True)
class Arrays(Dataset[Any]):
    """Random images, which are NumPy's."""

    size: int

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> npt.NDArray[np.float32]:
        image = np.random.default_rng(index).random((3, 256, 256), dtype=np.float32)
        return np.subtract(image, 0.5, out=image)


def stacked(samples: list[npt.NDArray[np.float32]]) -> npt.NDArray[np.float32]:
    return np.stack(samples)


@dataclass(frozen=True)
class Sentences(Dataset[Any]):
    """Tokens, which cost nothing before they are collated."""

    size: int

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> list[int]:
        return list(range(500 + index * 7919 % 3500))


def padded(samples: list[list[int]]) -> dict[str, torch.Tensor]:
    """Tokens, and which of them are some, as long as the longest."""
    longest = max(map(len, samples))
    tokens = [sample + [0] * (longest - len(sample)) for sample in samples]
    known = [[True] * len(sample) + [False] * (longest - len(sample)) for sample in samples]
    return {"tokens": torch.tensor(tokens), "known": torch.tensor(known)}


@dataclass(frozen=True)
class Archive(Dataset[torch.Tensor]):
    """Compressed samples, read a batch at a time."""

    size: int
    sample: bytes = field(
        default_factory=lambda: zlib.compress(
            np.random.default_rng(7).integers(64, size=200_000, dtype=np.uint8).tobytes(), 1
        )
    )

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        read = [bytearray(zlib.decompress(self.sample)) for _ in indices]
        return [torch.frombuffer(data, dtype=torch.uint8) for data in read]


@dataclass(frozen=True)
class Sometimes:
    """One cost, and at every `one_in`-th index another."""

    usual: Cost
    rare: Cost
    one_in: int

    def __call__(self, index: int) -> None:
        self.usual(index)
        if index % self.one_in == 0:
            self.rare(index)


@dataclass(frozen=True)
class Both:
    """Two costs, one after the other."""

    first: Cost
    second: Cost

    def __call__(self, index: int) -> None:
        self.first(index)
        self.second(index)


@dataclass(frozen=True)
class Uneven:
    """Work that was drawn beforehand, each sample's always the same."""

    rounds: tuple[int, ...]

    @classmethod
    def drawn(cls, mean: float, shape: float) -> Uneven:
        """Draw from a gamma distribution with a standard deviation of `mean` / sqrt(`shape`)."""
        rounds = np.random.default_rng(7).gamma(shape, mean / shape, size=1000)
        return cls(tuple(rounds.astype(int).tolist()))

    def __call__(self, index: int) -> None:
        Burn(self.rounds[index % len(self.rounds)])(index)


def write_files(folder: Path, size: int) -> list[Path]:
    """Files of that many bytes, which are on the disk when this returns."""
    folder.mkdir()
    paths = [folder / str(number) for number in range(FILES)]
    for number, path in enumerate(paths):
        with path.open("wb") as file:
            file.write(np.random.default_rng(number).bytes(size))
            file.flush()
            os.fsync(file.fileno())
    return paths


def workloads(folder: Path) -> list[Workload]:
    """All of them; those that read files have them in `folder`."""
    speed = rounds_per_ms()

    def burn(ms: float) -> Burn:
        return Burn(round(ms * speed))

    def costing(cost: Cost) -> Callable[[int], Dataset[Any]]:
        return lambda size: Items(size, numbered, cost)

    jpegs = make_photographs(folder / "photographs", FILES)
    files = write_files(folder / "files", 1 << 20)
    matmul = Matmul(256, round(25 / least_ms(Matmul(256, 1))))
    alone = Alone(get_context("fork").Lock(), burn(1))
    return [
        Workload("jpeg", "JPEGs, augmented", lambda n: Photographs(jpegs, n), 6, burn(4)),
        Workload("python", "augmented in Python", lambda n: PurePython(n, 64), 12, Sleep(3)),
        Workload("disk", "files, not cached", lambda n: Dropped(files, n), 8, Sleep(3), workers=2),
        Workload(
            "latency",
            "1 sample in 5 waits 20 ms",
            costing(Sometimes(burn(0.5), Sleep(20), one_in=5)),
            4,
            Sleep(4),
        ),
        Workload(
            "step",
            "25 ms of matrices",
            lambda n: Photographs(jpegs, n),
            20,
            matmul,
            epoch=160,
            counted=80,
            settings=tuple(map(Setting, (2, 3, 4, 6))),
        ),
        Workload(
            "head of line",
            "1 sample in 50 takes 15x",
            costing(Sometimes(burn(2), burn(28), one_in=50)),
            4,
            Sleep(3),
            workers=2,
        ),
        Workload(
            "small",
            "batches of 2 ms",
            lambda n: PurePython(n, 8),
            80,
            burn(0.3),
            epoch=1000,
            counted=800,
        ),
        Workload("numpy", "6 MB through a pipe", Arrays, 8, Sleep(3), workers=2, collate=stacked),
        Workload("collate", "padded in Python", Sentences, 16, burn(3), collate=padded),
        Workload(
            "uneven",
            "samples differ by 140%",
            costing(Uneven.drawn(4 * speed, shape=0.5)),
            2,
            Sleep(2),
            epoch=600,
            counted=500,
        ),
        Workload("getitems", "unpacked by the batch", Archive, 12, burn(3), workers=2),
        Workload(
            "lock",
            "a third of the time alone",
            costing(Both(burn(2), alone)),
            4,
            Sleep(2),
            workers=2,
        ),
        Workload(
            "spawn",
            "spawned workers",
            lambda n: PurePython(n, 64),
            12,
            Sleep(3),
            context="spawn",
            settings=QUICK_SETTINGS,
        ),
    ]
