"""What the rows train from: batches that come late, photographs, and batches made on the device."""

from __future__ import annotations

import time
from functools import partial
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader

from bench.zoo.device import Products
from bench.zoo.programs import Samples

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

SIDE = 224
"""Pixels of what is cut out of a photograph."""


class Waiting:
    """A loader that takes `ms` for each of its batches, and notes what it really took."""

    def __init__(self, ms: float, batches: int) -> None:
        self.ms, self.batches = ms, batches
        self.taken_ms: list[float] = []

    def __iter__(self) -> Iterator[torch.Tensor]:
        for number in range(self.batches):
            began = time.perf_counter()
            time.sleep(self.ms / 1e3)
            self.taken_ms.append((time.perf_counter() - began) * 1e3)
            yield torch.tensor([number])


class Again:
    """The same batches, over and over."""

    def __init__(self, batches: Sequence[Any], count: int) -> None:
        self.batches, self.count = batches, count

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Any]:
        return islice(cycle(self.batches), self.count)


class OnDevice:
    """Fills the same memory for each batch, on a stream of its own or on the consumer's.

    What it computes before keeps the device busy for `ms` in each wait. The consumer's stream waits
    for it, and so does the host, as for a decoder whose output has a size that is not known before.
    """

    def __init__(self, batches: int, ms: float, *, beside: bool, elements: int = 2**20) -> None:
        self.batches, self.work, self.beside = batches, Products(ms), beside
        self.buffer = torch.empty(elements, device="cuda")

    def __iter__(self) -> Iterator[torch.Tensor]:
        consumers = torch.cuda.current_stream()
        stream: Any = torch.cuda.Stream() if self.beside else consumers  # type: ignore[no-untyped-call]  # torch's
        for number in range(self.batches):
            stream.wait_stream(consumers)
            with torch.cuda.stream(stream):
                self.work()
                self.buffer.fill_(float(number))
            stream.synchronize()
            yield self.buffer


class Prefetcher:
    """Like Apex's: copies the next batch from pinned memory, on a stream of its own."""

    def __init__(self, batches: int, wait_ms: float, elements: int) -> None:
        self.batches, self.wait_ms = batches, wait_ms
        self.pinned = [torch.full((elements,), float(at)).pin_memory() for at in range(8)]

    def __iter__(self) -> Iterator[torch.Tensor]:
        beside: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch's
        ahead = self._copied(0, beside)
        for number in range(self.batches):
            time.sleep(self.wait_ms / 1e3)
            current = torch.cuda.current_stream()
            current.wait_stream(beside)
            batch = ahead
            batch.record_stream(current)
            ahead = self._copied(number + 1, beside)
            yield batch

    def _copied(self, number: int, beside: Any) -> torch.Tensor:
        with torch.cuda.stream(beside):
            return self.pinned[number % 8].to("cuda", non_blocking=True)


def photographs(folder: Path, count: int = 64) -> list[Path]:
    """JPEGs of 500 x 375 pixels, of smooth noise, which compresses as photographs do."""
    random = np.random.default_rng(0)
    paths = [folder / f"{number}.jpg" for number in range(count)]
    for path in paths:
        coarse = Image.fromarray(random.integers(0, 256, (75, 100, 3), np.uint8))
        coarse.resize((500, 375), Image.Resampling.BICUBIC).save(path, quality=90)
    return paths


def cut_out(paths: Sequence[Path], index: int) -> tuple[torch.Tensor, int]:
    """A random part of a photograph, resized and normalised, and its class."""
    random = np.random.default_rng(index)
    with Image.open(paths[index % len(paths)]) as file:
        image = file.convert("RGB")
    side = int(random.integers(SIDE // 2, 375))
    left, top = int(random.integers(500 - side)), int(random.integers(375 - side))
    image = image.resize((SIDE, SIDE), box=(left, top, left + side, top + side))
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)
    return pixels.float().div_(255).sub_(0.5), index % 1000


def of_photographs(folder: Path, batches: int, size: int, workers: int) -> DataLoader[Any]:
    """A DataLoader of batches of so many photographs, in pinned memory."""
    samples = Samples(partial(cut_out, photographs(folder)), batches * size)
    return DataLoader(
        samples, size, num_workers=workers, pin_memory=True, persistent_workers=workers > 0
    )
