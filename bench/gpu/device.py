"""A device that a test computes on: work of a known length, and what it is waited for with."""

from __future__ import annotations

import time
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import pynvml  # type: ignore[import-untyped]  # it ships no type information
import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FEWEST = 6
"""Products in a piece of work: few, since a device takes some thousand launches ahead."""


def missing() -> str:
    """Why there is no device to test on; empty where there is one."""
    if torch.cuda.is_available():
        return ""
    built = "is not built for CUDA" if torch.version.cuda is None else "finds no CUDA device"
    return f"torch {torch.__version__} {built}"


def driver_version() -> str:
    """The version of NVIDIA's driver; empty where there is none."""
    try:
        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError:
        return ""


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
        """Queue them."""
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


@contextmanager
def memory_left(nbytes: int) -> Iterator[None]:
    """The device has no more free memory than that."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    ballast = torch.empty(torch.cuda.mem_get_info()[0] - nbytes, dtype=torch.uint8, device="cuda")
    yield
    del ballast
    torch.cuda.empty_cache()
