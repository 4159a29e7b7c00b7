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


def batches(count: int, make: Callable[[int], Any], ms: float = 0.0) -> Samples:
    """So many batches of `make(number)`, each of which takes a worker `ms` of sleep."""

    def read(number: int) -> Any:
        if ms:
            time.sleep(ms * MS)
        return make(number)

    return Samples(read, count)


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


def parts(ms: float, number: int) -> Parts:
    return Parts(of_size(0.25, number), ms)


def unpinned(mb: float, *, pinned: bool) -> Training:
    """Batches are sent from memory that the device cannot read by itself, or can."""
    work = Products(6.0)

    def step(batch: torch.Tensor) -> None:
        batch.to("cuda", non_blocking=pinned)
        work()

    made = batches(100, partial(of_size, mb))
    return Training(DataLoader(made, batch_size=None, num_workers=4, pin_memory=pinned), step)


def slow_pinning(ms: float) -> Training:
    """The thread that pins takes so long for a batch of a step of 5 ms."""
    work = Products(5.0)

    def step(batch: Parts) -> None:
        batch.x.to("cuda", non_blocking=True)
        work()

    loader = DataLoader(
        batches(150, partial(parts, ms)), batch_size=None, num_workers=2, pin_memory=True
    )
    return Training(loader, step)


def hidden_waits(work_ms: float) -> Training:
    """Training waits 5 ms for each batch, and the device has work meanwhile, or has none."""
    work = Products(work_ms)

    def step(batch: torch.Tensor) -> None:
        batch.to("cuda", non_blocking=True)
        work()

    loader = DataLoader(batches(80, partial(of_size, 0.25), 5.0), batch_size=None, pin_memory=True)
    return Training(loader, step)


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
