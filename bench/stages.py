"""CPU time added by looking inside a DataLoader, workers and training process together.

Each subject is iterated with its stages timed and without, in turns; the table shows medians of the
differences of neighbours. The last row is one epoch of photographs.
"""

from __future__ import annotations

import io
import random
import resource
import statistics
import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from rich.progress import track
from torch.utils.data import DataLoader, Dataset

from bench.tables import show
from loadeval import LoaderEvaluator
from tests.images import crops

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PAIRS = 15
BATCHES = 1500
LARGE = 256
PHOTOGRAPHS, SIDE = 512, 224
NS = 1e9


class Samples(Dataset[Any]):
    """The same sample each time, after some transforms."""

    def __init__(self, sample: Any, size: int, transforms: tuple[Any, ...] = ()) -> None:
        self.sample, self.size = sample, size
        self.transforms = list(transforms)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        x = self.sample
        for transform in self.transforms:
            x = transform(x)
        return x


class Photographs(Dataset[torch.Tensor]):
    """JPEGs that are decoded and shrunk."""

    def __init__(self) -> None:
        boxes = [
            (place % 12, place % 100, place % 12 + 500, place % 100 + 500) for place in range(16)
        ]
        self.files = list(crops(*boxes))
        self.transform = shrink

    def __len__(self) -> int:
        return PHOTOGRAPHS

    def __getitem__(self, index: int) -> torch.Tensor:
        with Image.open(io.BytesIO(self.files[index % len(self.files)])) as image:
            return self.transform(image)


def shrink(image: Image.Image) -> torch.Tensor:
    """Three channels of SIDE by SIDE pixels."""
    return torch.from_numpy(np.array(image.convert("RGB").resize((SIDE, SIDE)))).permute(2, 0, 1)


class Same:
    """A transform that does nothing."""

    def __call__(self, x: Any) -> Any:
        return x


def same(x: Any) -> Any:
    """A function that does nothing."""
    return x


def first(samples: list[Any]) -> Any:
    """A collate function as quick as any."""
    return samples[0]


@dataclass(frozen=True)
class Subject:
    """An epoch of `make()`; the limit is of nanoseconds for each of `units` of an epoch."""

    name: str
    make: Callable[[], DataLoader[Any]]
    units: int
    limit_ns: float


def of_samples(sample: Any, per_batch: int = 1, *transforms: Any, **how: Any) -> DataLoader[Any]:
    """A loader of as many batches as are timed of one kind."""
    batches = BATCHES if per_batch == 1 else BATCHES // 10
    dataset = Samples(sample, per_batch * batches, transforms)
    how = {"num_workers": 1, "collate_fn": first, **how}
    return DataLoader(dataset, batch_size=per_batch, **how)


def subjects() -> list[Subject]:
    """What is timed, and what we promise."""
    large = LARGE * (BATCHES // 10)
    record = {"x": torch.zeros(3, 8), "y": 1, "name": "a name"}
    listed = [
        Subject("sample: int", lambda: of_samples(1, LARGE), large, 150),
        Subject("sample: dict", lambda: of_samples(record, LARGE), large, 150),
        Subject("batch: int", lambda: of_samples(1), BATCHES, 6000),
        Subject("batch: dict", lambda: of_samples(record, collate_fn=None), BATCHES, 6000),
    ]
    # Eight of each, so that the sample's own part is small beside them.
    transforms = {"class": Same(), "function": same}
    for name, transform in transforms.items():
        make = partial(of_samples, 1, LARGE, *[transform] * 8, num_workers=0)
        listed.append(Subject(f"transform: {name}", make, 8 * large, 500))
    return listed


def cpu_s() -> float:
    """CPU time of this process and of its children that have ended."""
    return sum(
        used.ru_utime + used.ru_stime
        for used in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def epoch_cpu_s(subject: Subject, *, stages: bool) -> float:
    """CPU time of a subject's epoch, its workers' included."""
    loader = subject.make()
    evaluator = LoaderEvaluator(loader, stages=stages)
    before = cpu_s()
    for _ in evaluator:
        pass
    evaluator.close()
    kept: Any = loader._iterator
    if kept is not None:
        kept._shutdown_workers()
        loader._iterator = None
    return cpu_s() - before


def pairs(subject: Subject) -> Iterator[dict[bool, float]]:
    """CPU time of an epoch with stages and without, in turns."""
    for _ in range(PAIRS):
        arms = [False, True]
        random.shuffle(arms)
        yield {stages: epoch_cpu_s(subject, stages=stages) for stages in arms}


def interval(values: list[float]) -> tuple[float, float]:
    """The interval of the median: order statistics between which it lies in 95 of 100 samples."""
    ordered = sorted(values)
    rank = max(0, int(len(values) / 2 - 0.98 * len(values) ** 0.5))
    return ordered[rank], ordered[-rank - 1]


def of_photographs(photographs: Photographs) -> DataLoader[Any]:
    return DataLoader(photographs, batch_size=32, shuffle=True, num_workers=2)


def main() -> None:
    """Print the table, or the rows whose names begin with an argument."""
    torch.set_num_threads(1)
    wanted = tuple(sys.argv[1:]) or ("",)
    heads = ("CPU time added by looking inside", "ns", "95% of medians", "limit", "")
    rows = []
    chosen = [subject for subject in subjects() if subject.name.startswith(wanted)]
    for subject in track(chosen, description="subjects"):
        added = [(took[True] - took[False]) * NS / subject.units for took in pairs(subject)]
        low, high = interval(added)
        median = statistics.median(added)
        missed = "MISSED" if median > subject.limit_ns else ""
        figures = (f"{median:,.0f}", f"{low:,.0f} to {high:,.0f}", f"{subject.limit_ns:,.0f}")
        rows.append((subject.name, *figures, missed))
    if "photographs".startswith(wanted):
        ratios = [
            took[True] / took[False]
            for took in pairs(Subject("", partial(of_photographs, Photographs()), 1, 0))
        ]
        low, high = interval(ratios)
        figures = (f"{np.median(ratios):.4f}", f"{low:.4f} to {high:.4f}", "")
        rows.append(("photographs, ratio", *figures, ""))
    show(heads, rows)


if __name__ == "__main__":
    main()
