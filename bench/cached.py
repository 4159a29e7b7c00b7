"""A cache of samples where the table says: what later epochs gain, predicted and then measured.

The demo's photographs, as they are and with a random crop after they are decoded. Arrays of the
whole set are made before the workers are forked, which then share them. Exit status 1 where fewer
than nine of ten lie in their range, or the median error is 10% or more.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader

from loadeval import LoaderEvaluator
from loadeval.analysis.report import Report
from loadeval.demo.photographs import make_photographs
from loadeval.demo.run import (
    BATCH_SIZE,
    DemoTraining,
    Photographs,
    decode,
    one_thread,
    quiet,
    shrink,
)
from loadeval.runlog.stages import WHOLE_SAMPLE

if TYPE_CHECKING:
    from collections.abc import Sequence

PHOTOGRAPHS, RECORDED, ROUNDS, SIDE = 256, 12, 5, 400
MEDIAN_ERROR, IN_RANGE = 0.1, 0.9
WORKERS = (1, 2)


def crop(photograph: Image.Image) -> Image.Image:
    """A part of a photograph, at random."""
    left, top = (
        int(torch.randint(0, edge - SIDE + 1, ())) for edge in (photograph.width, photograph.height)
    )
    return photograph.crop((left, top, left + SIDE, top + SIDE))


class Cropped(Photographs):
    """Photographs with a random crop, kept in `cache` as they are after `behind`."""

    def __init__(self, paths: list[Path], *, crops: bool, behind: str = "") -> None:
        super().__init__(paths)
        self.transforms = [crop, shrink] if crops else [shrink]
        self.behind = behind
        cached: dict[str, Any] = {
            "": lambda _: None,
            "decode": lambda path: np.asarray(decode(path)),
            WHOLE_SAMPLE: lambda path: shrink(decode(path)).numpy(),
        }
        self.cache = [cached[behind](path) for path in paths]

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path = self.paths[index]
        label = self.classes.index(path.parent.name)
        if self.behind == WHOLE_SAMPLE:
            return torch.from_numpy(self.cache[index].copy()), label
        sample: Any = Image.fromarray(self.cache[index]) if self.behind else self.loader(path)
        for transform in self.transforms:
            sample = transform(sample)
        return sample, label


def training_on(dataset: Cropped, workers: int) -> DemoTraining:
    """The demo's training, with another dataset and number of workers."""
    training = DemoTraining(dataset.paths)
    training.dataloader = DataLoader(
        dataset, BATCH_SIZE, shuffle=True, num_workers=workers, persistent_workers=True
    )
    return training


def epoch_s(training: DemoTraining) -> float:
    """How long an epoch takes."""
    start = time.perf_counter()
    training.train_one_epoch(training.dataloader, lambda: None)
    return time.perf_counter() - start


def measured(paths: list[Path], workers: int, *, crops: bool, behind: str) -> float:
    """How many times as fast epochs with a cache are: the median of epochs in turn."""
    trainings = [
        training_on(Cropped(paths, crops=crops, behind=cached), workers) for cached in ("", behind)
    ]
    for training in trainings:  # starts the workers
        epoch_s(training)
    rounds = [[epoch_s(training) for training in trainings] for _ in range(ROUNDS)]
    return statistics.median(plain / cached for plain, cached in rounds)


def main(workers: Sequence[int] = WORKERS) -> int:
    errors, in_range = [], []
    with tempfile.TemporaryDirectory() as folder, one_thread(), quiet():
        paths = make_photographs(Path(folder), PHOTOGRAPHS)
        for count in workers:
            for crops in (False, True):
                training = training_on(Cropped(paths, crops=crops), count)
                with LoaderEvaluator(
                    training.dataloader, mode="alternate", unit="images", probe_transforms=True
                ) as evaluator:
                    for _ in range(RECORDED):
                        training.train_one_epoch(evaluator, lambda: None)
                (report,) = Report.of([evaluator.recorded()]).runs
                for place in report.cache_places:
                    if place.is_random or place.name not in {"decode", WHOLE_SAMPLE}:
                        continue
                    real = measured(paths, count, crops=crops, behind=place.name)
                    speedup = place.speedup
                    errors.append(abs(speedup.value / real - 1))
                    in_range.append(speedup.low <= real <= speedup.high)
                    sys.stdout.write(
                        f"| {'random crop' if crops else 'as it is'} | {count} | {place.name} | "
                        f"{speedup.value:.2f}x [{speedup.low:.2f}x, {speedup.high:.2f}x] | "
                        f"{real:.2f}x | {'yes' if in_range[-1] else 'no'} |\n"
                    )
                    sys.stdout.flush()
    median, share = statistics.median(errors), sum(in_range) / len(in_range)
    sys.stdout.write(f"median error {median:.1%}; {sum(in_range)} of {len(in_range)} in range\n")
    return 0 if median < MEDIAN_ERROR and share >= IN_RANGE else 1


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    raise SystemExit(main())
