"""Work of a known length on a GPU, and faults that only one feels.

They are of memory, of waits behind queued work, and of a step that idles.
"""

import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch.utils.data import DataLoader

from bench.zoo.costs import MS
from bench.zoo.programs import Samples, Training

MB = 2**18
"""Elements of float32."""
FEWEST = 6
"""Products in a piece of work: few, since a device takes some thousand launches ahead."""


class Products:
    """Products of square matrices that keep the device busy for about `ms`."""

    def __init__(self, ms: float) -> None:
        rows = 128
        while product_ms(2 * rows) * FEWEST <= ms:
            rows *= 2
        self.count = max(1, round(ms / product_ms(rows)))
        self.matrix = torch.full((rows, rows), 1e-3, dtype=torch.float16, device="cuda")
        self.product = torch.empty_like(self.matrix)

    def __call__(self) -> None:
        for _ in range(self.count):
            torch.mm(self.matrix, self.matrix, out=self.product)


@cache
def product_ms(rows: int) -> float:
    """Milliseconds of one product of matrices of so many rows."""
    matrix = torch.full((rows, rows), 1e-3, dtype=torch.float16, device="cuda")
    product = torch.empty_like(matrix)

    def several() -> None:
        for _ in range(20):
            torch.mm(matrix, matrix, out=product)

    several()  # the clock of the device rises
    return min(device_ms(several) for _ in range(3)) / 20


def device_ms(queue: Callable[[], object]) -> float:
    """Milliseconds that the device takes for what `queue` queues, by its own clock."""
    torch.cuda.synchronize()
    event: Callable[..., Any] = torch.cuda.Event
    begin, end = event(enable_timing=True), event(enable_timing=True)
    begin.record()
    queue()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end))


def host_s(do: Callable[[], object]) -> float:
    """Seconds of `do`, from a device that is done to a device that is done."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    do()
    torch.cuda.synchronize()
    return time.perf_counter() - began


def of_size(mb: float, number: int) -> torch.Tensor:
    return torch.full((int(mb * MB),), float(number))


class Parts:
    """A batch that pins itself, which takes `ms`."""

    def __init__(self, x: torch.Tensor, ms: float) -> None:
        self.x, self.ms = x, ms

    def pin_memory(self) -> "Parts":
        """Pin a part of it again and again, and then all of it."""
        until = time.perf_counter() + self.ms * MS
        while time.perf_counter() < until:
            self.x[:1024].clone().pin_memory()
        return Parts(self.x.pin_memory(), 0.0)

    def to(self, *device: Any, **options: Any) -> torch.Tensor:
        return self.x.to(*device, **options)


def sending(made: Samples, ms: float, workers: int, *, pinned: bool = True) -> Training:
    """Sends batches to the device, where each is work of `ms`."""
    work = Products(ms)

    def step(batch: Any) -> None:
        batch.to("cuda", non_blocking=pinned)
        work()

    loader = DataLoader(made, batch_size=None, num_workers=workers, pin_memory=pinned)
    return Training(loader, step)


def unpinned(mb: float, *, pinned: bool) -> Training:
    """From memory that the device cannot read by itself, or can."""
    return sending(Samples(partial(of_size, mb), 100), 6.0, 4, pinned=pinned)


def slow_pinning(ms: float) -> Training:
    """The thread that pins takes so long for a batch."""
    return sending(Samples(lambda number: Parts(of_size(0.25, number), ms), 150), 5.0, 2)


def hidden_waits(work_ms: float) -> Training:
    """Training waits 5 ms for each batch, and the device has work meanwhile, or has none."""
    late = Samples(lambda number: time.sleep(5 * MS) or of_size(0.25, number), 80)
    return sending(late, work_ms, 0)


def idle_device(*, is_idle: bool) -> Training:
    """Loading is free, and steps are tiny kernels before work of the host, or large kernels."""
    tiny = torch.zeros(16, device="cuda")
    work = Products(12.0)

    def step(_batch: Any) -> None:
        if is_idle:
            for _ in range(4):
                tiny.add_(1.0)
            time.sleep(0.012)
        else:
            work()
            tiny[0].item()

    return Training([torch.zeros(16)] * 500, step)
