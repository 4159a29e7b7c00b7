"""What a program reads an epoch from: an iterator for one thread, or for several."""

from __future__ import annotations

import sys
import time
from itertools import chain
from opcode import opmap
from threading import RLock
from typing import TYPE_CHECKING, Any, cast

from loadeval.runtime.guard import caller

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sized
    from types import FrameType

CACHE = opmap.get("CACHE")
IN_A_LOOP = {opmap["GET_ITER"], opmap["GET_YIELD_FROM_ITER"]}
"""The head of a `for`, and `yield from`, do this with what they are to iterate."""


class MeasuredEpoch(chain[Any]):
    """What a training loop iterates: an epoch that is measured while it is served.

    It goes on after an exception as the loader's own iterator does: a generator is over once it
    has raised, but a chain of generators takes the next one, at no cost for each batch. What is
    read of it besides is read of the loader's iterator.
    """

    _source: Iterator[Any]

    @classmethod
    def of(cls, parts: Iterable[Iterator[Any]], source: Iterator[Any]) -> MeasuredEpoch:
        """The batches of `parts`, as an iterator like `source`."""
        epoch = cast("MeasuredEpoch", cls.from_iterable(parts))
        epoch._source = source  # noqa: SLF001 - its own class
        return epoch

    def __getattr__(self, name: str) -> Any:
        if name == "_source":  # not there yet
            raise AttributeError(name)
        return getattr(self._source, name)

    def __len__(self) -> int:
        return len(cast("Sized", self._source))

    def __bool__(self) -> bool:
        return bool(self._source)


class SharedEpoch(MeasuredEpoch):
    """One that several threads may read at once, as they may read a DataLoader's iterator.

    A generator serves one thread at a time, and tells another one so by a ValueError. What is left
    is then served without it: see `share`. That takes a function call for each batch.
    """

    _parts: Iterator[Iterator[Any]]
    _part: Iterator[Any]
    _share: Callable[[], Iterator[Any] | None] | None
    _lock: Any

    @classmethod
    def shared(
        cls,
        parts: Iterable[Iterator[Any]],
        source: Iterator[Any],
        share: Callable[[], Iterator[Any] | None],
    ) -> SharedEpoch:
        """See MeasuredEpoch.of. `share` returns what is left, unmeasured; None is to wait."""
        epoch = cast("SharedEpoch", cls.of((), source))
        epoch._parts, epoch._part = iter(parts), iter(())  # noqa: SLF001 - its own class
        epoch._share, epoch._lock = share, RLock()  # noqa: SLF001 - its own class
        return epoch

    def __next__(self) -> Any:
        while True:
            part = self._part
            try:
                return next(part)
            except StopIteration:
                self._take_part_after(part)
            except ValueError as error:
                if not _is_of_a_busy_generator(error) or not self._has_left(part):
                    raise

    def _take_part_after(self, part: Iterator[Any]) -> None:
        with self._lock:
            if self._part is part:
                self._part = next(self._parts)

    def _has_left(self, part: Iterator[Any]) -> bool:
        """Leave `part`, in which another thread is; False where it is the loader's own.

        Or where this thread is in it, as where a signal's handler asks for a batch.
        """
        with self._lock:
            if self._part is part:
                left = None if self._share is None else self._share()
                if left is None and (self._share is None or _runs_here(part)):
                    return False
                if left is not None:
                    self._part, self._parts, self._share = left, iter(()), None
        time.sleep(0)
        return True


def _runs_here(generator: Any) -> bool:
    """Whether this thread is in `generator`, and so would wait for itself."""
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - nothing else tells
    while frame is not None and frame is not generator.gi_frame:
        frame = frame.f_back
    return frame is not None


def _is_of_a_busy_generator(error: ValueError) -> bool:
    """Whether the generator that was asked raised it, and nothing that runs in it."""
    is_innermost = getattr(error.__traceback__, "tb_next", None) is None
    return is_innermost and str(error) == "generator already executing"


def is_shared() -> bool:
    """Whether others than a `for` statement may read the epoch that is asked for.

    What GET_ITER has made is nobody else's: not what `iter(loader)` has made, but `loader` or
    `enumerate(loader)` in the head of a loop.
    """
    frame, _ = caller()
    if frame is None:
        return True
    now, *after = frame.f_code.co_code[frame.f_lasti :: 2]
    if now == opmap.get("PRECALL"):  # pragma: no cover - Python 3.11 does so where nobody traces
        del after[: after.index(opmap["CALL"]) + 1]
    while after and after[0] == CACHE:
        del after[0]
    return IN_A_LOOP.isdisjoint((now, *after[:1]))
