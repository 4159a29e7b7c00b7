"""What the rows train from: batches that come late, photographs, and batches made on the device."""

import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from bench.zoo.device import Products
from bench.zoo.programs import Samples
from bench.zoo.workloads import make_photographs, photograph

PHOTOGRAPHS = 64


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


class OnDevice:
    """Fills the same memory for each batch, on a stream of its own or on the consumer's.

    What it computes before keeps the device busy for `ms` in each wait. The consumer's stream waits
    for it, and so does the host, as for a decoder whose output has a size that is not known before.
    """

    def __init__(self, batches: int, ms: float, *, beside: bool) -> None:
        self.batches, self.work, self.beside = batches, Products(ms), beside
        self.buffer = torch.empty(2**20, device="cuda")

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


def labelled(paths: Sequence[Path], index: int) -> tuple[torch.Tensor, int]:
    return photograph(paths, index), index % 1000


def of_photographs(folder: Path, batches: int, size: int, workers: int) -> DataLoader[Any]:
    """A DataLoader of batches of so many photographs, in pinned memory."""
    paths = make_photographs(folder, PHOTOGRAPHS)
    samples = Samples(partial(labelled, paths), batches * size)
    return DataLoader(
        samples, size, num_workers=workers, pin_memory=True, persistent_workers=workers > 0
    )
