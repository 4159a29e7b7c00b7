"""How long the training's stream had no work, by its device's clock; what copies to it take."""

from __future__ import annotations

import ctypes
import math
import mmap
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from functools import cache, partial
from typing import Any

import numpy as np

from loadeval.adapter import cuda_in_use, devices_in_use, devices_of
from loadeval.core.batch import leaves
from loadeval.data.lines import GpuIdle
from loadeval.errors import AskingTheLoader, of_the_loader

MS_NS = 1_000_000
RELAXED = 2
"""CUDA calls it CU_STREAM_CAPTURE_MODE_RELAXED."""
COPIED_BYTES = 8 * 2**20
"""A copy of so many takes 0.2 to 1 ms from pinned memory, and some ms from other memory."""
MOST_COPIES, ENOUGH_S = 3, 0.015
"""The quickest of so many copies of each counts, and none begins after that time."""
FREE_BYTES = 2**28
"""On a device with less free memory no copies are tried: torch would free its caches for them."""
IMAGES = 4
"""Dimensions of a batch of images, or more."""


def spare_bytes(arrays: Iterable[Any]) -> float:
    """What copies of a batch may take of its device's memory; infinite for one of the host's.

    Half of what nobody has taken: what torch has taken, the training's steps may need again.
    """
    free = (cuda_in_use().mem_get_info(device)[0] for device in devices_of(arrays))
    return min(free, default=math.inf) / 2


def timing_events() -> Callable[[], Any] | None:
    """A function that makes a CUDA timing event; None if torch uses no device."""
    cuda = cuda_in_use()
    devices = devices_in_use(cuda)
    if not devices:
        return None
    if cuda.current_device() in devices:
        return partial(cuda.Event, enable_timing=True)

    class OnDevice(cuda.Event):  # type: ignore[misc,name-defined]  # torch is not imported
        """It serves a training on a device that is not the current one."""

        def record(self) -> None:
            super().record(cuda.current_stream(devices[0]))

    return partial(OnDevice, enable_timing=True)


@contextmanager
def unnoticed(device: int | None = None) -> Iterator[None]:
    """Ask CUDA from any thread, by default of the first device in use, unnoticed by the training.

    A query would end the capture of a CUDA graph that has begun meanwhile; and where the training
    uses another device than the first, it would make a context there, of some 500 MB.
    """
    cuda, exchange, mode = cuda_in_use(), exchange_capture_mode(), ctypes.c_int(RELAXED)
    exchange(ctypes.byref(mode))
    try:
        if cuda is not None and device is None:
            device = devices_in_use(cuda)[0]
        with nullcontext() if cuda is None else cuda.device(device):
            yield
    finally:
        exchange(ctypes.byref(mode))


class Copies:
    """Reads, once in a run, what tells how long copying a batch to the device takes at least.

    `pinned_bytes_per_s` and `pageable_bytes_per_s` are how fast it was copied to from memory that
    is pinned, and that is not. Of the first batch `host_bytes` were in the memory of the host,
    `pinned_bytes` of these in pinned memory, and `float32_bytes` of these in arrays of numbers of
    32 bits with four dimensions or more, as of images.
    """

    _speeds: Mapping[str, float] | None = None

    def measure(self) -> None:
        """Measure how fast the device is copied to, if torch uses one by now."""
        cuda = cuda_in_use()
        if self._speeds is None and (devices := devices_in_use(cuda)):
            current = cuda.current_device()
            self._speeds = copy_speeds(current if current in devices else devices[0])

    def read(self, batch: Any) -> Mapping[str, float]:
        """What the first batch since then tells; nothing of any other one."""
        if not self._speeds:
            return {}
        speeds, self._speeds, torch = self._speeds, {}, sys.modules["torch"]
        nbytes = dict.fromkeys(("host_bytes", "pinned_bytes", "float32_bytes"), 0)
        with suppress(Exception):  # each kind of array fails in its own way
            for leaf in leaves(batch):
                is_tensor = isinstance(leaf, torch.Tensor) and leaf.is_cpu
                if is_tensor or isinstance(leaf, np.ndarray):
                    is_float = leaf.ndim >= IMAGES and str(leaf.dtype).endswith("float32")
                    nbytes["host_bytes"] += leaf.nbytes
                    nbytes["pinned_bytes"] += leaf.nbytes * (is_tensor and leaf.is_pinned())
                    nbytes["float32_bytes"] += leaf.nbytes * is_float
            return {**speeds, **nbytes}
        return speeds


@cache
def copy_speeds(device: int) -> Mapping[str, float]:
    """How fast torch copies to a CUDA device, measured once; empty where no memory is left.

    The copies are on a stream of their own, which is all that is waited for, so that no work of the
    training is in their times. They take some 15 ms, and 8 MiB of pinned memory and 20 MiB of the
    device that torch keeps for later. What is not pinned is filled, for else all its pages are one,
    and without torch, whose threads no forked worker could use.
    """
    cuda, torch = cuda_in_use(), sys.modules["torch"]
    least_ms: dict[str, float] = {}
    with suppress(RuntimeError, OSError), unnoticed(device):  # no memory is left, here or there
        if cuda.mem_get_info(device)[0] < FREE_BYTES:
            return {}
        host = np.frombuffer(mmap.mmap(-1, COPIED_BYTES, mmap.MAP_PRIVATE), np.uint8)
        host.fill(1)
        with cuda.stream(cuda.Stream(device)):
            make = partial(torch.empty, COPIED_BYTES, dtype=torch.uint8)
            target = make(device=f"cuda:{device}")
            sources = {
                "pinned_bytes_per_s": make(device="cpu", pin_memory=True),
                "pageable_bytes_per_s": torch.from_numpy(host),
            }
            until_s = time.perf_counter() + ENOUGH_S
            for count in range(MOST_COPIES):
                for name, source in sources.items():
                    if count and time.perf_counter() > until_s:
                        break
                    begin, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
                    begin.record()
                    target.copy_(source, non_blocking=True)
                    end.record()
                    end.synchronize()
                    taken_ms = begin.elapsed_time(end)
                    least_ms[name] = min(least_ms.get(name, math.inf), taken_ms)
    return {name: COPIED_BYTES / ms * 1e3 for name, ms in least_ms.items()}


class GpuIdleTimer:
    """How long a stream has no work in each wait of one epoch, and has some in each step.

    An event is queued behind all work of the training's stream, the current one, when it asks for a
    batch, and another one at its delivery. The device passes the first when that work is done, and
    the second then or at the delivery, whichever is later: in between the stream had no work but
    the loader's own. Up to the next request's event it does what the step has queued. Events are
    read later, after the device has passed them, so that nothing waits for it.
    """

    def __init__(self, epoch: int, event: Callable[[], Any], spare: deque[Any]) -> None:
        self.ended = False
        self._epoch = epoch
        self._event = event
        self._spare = spare
        self._passing: deque[tuple[Any, Any]] = deque()
        self._read = 0

    def watched(self, source: Iterator[Any]) -> Iterator[Any]:
        """The batches of `source`, with an event before and after each wait.

        Once CUDA has failed there are no more events: the training is to hear of it by its own
        calls, and of batches none is lost.
        """
        passing = self._passing
        while (asked := self._recorded()) is not None:
            try:
                batch = next(source)
            except BaseException as error:
                passing.append((asked, None))
                if isinstance(error, StopIteration):
                    return
                of_the_loader(error)
                raise
            delivered = self._recorded()
            if delivered is not None:
                passing.append((asked, delivered))
            yield batch
            if delivered is None:
                break
        with AskingTheLoader():
            yield from source

    def end_step(self) -> None:
        """The step ends here: what comes next is no request for the next batch."""
        event = self._recorded()
        if event is not None:
            self._passing.append((event, None))

    def _recorded(self) -> Any:
        """An event that is queued behind all work; None where CUDA has failed."""
        try:
            event = self._spare.pop() if self._spare else self._event()
            event.record()
        except Exception:  # noqa: BLE001 - whatever it is, the batch that has come is served
            return None
        return event

    @property
    def done(self) -> bool:
        """Whether the epoch has ended and all its events were read."""
        return self.ended and not self._passing

    def take(self) -> list[GpuIdle]:
        """The times that the device has passed since the last call, if there are any.

        The last step of an epoch that was broken off is None.
        """
        idle_ns: list[int | None] = []
        step_ns: list[int | None] = []
        passing, first = self._passing, self._read
        with unnoticed() if passing else nullcontext():
            while passing:
                asked, delivered = passing[0]
                after = passing[1][0] if len(passing) > 1 else None
                if delivered is not None:
                    if after is None and not self.ended:
                        break
                    if not (delivered if after is None else after).query():
                        break
                    step = None if after is None else _elapsed_ns(delivered, after)
                    idle_ns.append(_elapsed_ns(asked, delivered))
                    step_ns.append(step)
                    self._spare.append(delivered)
                elif not asked.query():
                    break
                passing.popleft()
                self._spare.append(asked)
        self._read += len(idle_ns)
        return [GpuIdle(self._epoch, first, idle_ns, step_ns)] if idle_ns else []

    def wait(self) -> None:
        """Wait until the device has passed all events."""
        if self._passing:
            with unnoticed():
                asked, delivered = self._passing[-1]
                (asked if delivered is None else delivered).synchronize()


def _elapsed_ns(begin: Any, end: Any) -> int:
    elapsed_ms: float = begin.elapsed_time(end)
    return round(elapsed_ms * MS_NS)


@cache
def exchange_capture_mode() -> Callable[[Any], object]:
    """The driver's function; where there is none, as on other devices than NVIDIA's, another."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        function: Callable[[Any], object] = driver.cuThreadExchangeStreamCaptureMode
    except (OSError, AttributeError):
        return id
    return function
