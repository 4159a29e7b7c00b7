"""How long the CUDA device was idle, and busy, by its own clock."""

from __future__ import annotations

import ctypes
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from typing import Any

from loadeval.adapter import cuda_in_use, devices_in_use, devices_of
from loadeval.data.lines import GpuIdle
from loadeval.errors import AskingTheLoader, of_the_loader

MS_NS = 1_000_000
RELAXED = 2
"""CUDA calls it CU_STREAM_CAPTURE_MODE_RELAXED."""


def spare_bytes(leaves: Iterable[Any]) -> float:
    """What copies of a batch may take of its device's memory; infinite for one of the host's.

    Half of what nobody has taken: what torch has taken, the training's steps may need again.
    """
    free = (cuda_in_use().mem_get_info(device)[0] for device in devices_of(leaves))
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


class GpuIdleTimer:
    """How long the device is idle in each wait of one epoch, and busy in each step, by its clock.

    An event is queued behind all work of the current stream when the consumer asks for a batch,
    and another one at its delivery. The device passes the first when its work is done, and the
    second then or at the delivery, whichever is later: in between it was idle. Up to the next
    request's event it does what the step has queued. Events are read later, after the device has
    passed them, so that nothing waits for it.
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
        with self._asking():
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
        with self._asking():
            if self._passing:
                asked, delivered = self._passing[-1]
                (asked if delivered is None else delivered).synchronize()

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Ask CUDA from any thread, unnoticed by the training.

        A query would end the capture of a CUDA graph that has begun meanwhile; and where the
        training uses another device than the first, it would make a context there, of some 500 MB.
        """
        if not self._passing:
            yield
            return
        cuda, exchange, mode = cuda_in_use(), exchange_capture_mode(), ctypes.c_int(RELAXED)
        exchange(ctypes.byref(mode))
        try:
            with nullcontext() if cuda is None else cuda.device(devices_in_use(cuda)[0]):
                yield
        finally:
            exchange(ctypes.byref(mode))


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
