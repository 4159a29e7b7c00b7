"""Named ranges around waits and steps, where Nsight Systems and torch's profiler show them."""

from __future__ import annotations

import sys
from contextlib import closing, nullcontext
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from weakref import WeakSet

from loadeval.errors import UsageError, of_the_loader

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from loadeval.data.lines import Arm
    from loadeval.settings import Tool

    Range: TypeAlias = "_NvtxRange | _TorchRange"

Span = TypeVar("Span")


class _NvtxRange:
    """A range that NVTX knows by its number.

    Not one on the stack that `push` and `pop` keep for each thread: a step often ends inside
    another range than it began in, such as a framework's around `next()`, and a pop would end
    that one.
    """

    def __init__(self, start: Callable[[Any], int], end: Callable[[int], None], what: Any) -> None:
        self._start = start
        self._end = end
        self._what = what
        self._number = 0

    def begin(self) -> None:
        self._number = self._start(self._what)

    def end(self) -> None:
        self._end(self._number)

    def retire(self) -> None:
        """Do nothing: nothing of NVTX was changed for it."""


class _TorchRange:
    """A range of torch's profiler, recorded if the profiler was on when it began.

    A guard of torch's ends its range when it is freed. Its `__exit__` is not used: that fails
    when the profiler was switched on since.
    """

    def __init__(self, new_guard: Callable[[str], Any], name: str) -> None:
        self._new_guard = new_guard
        self._name = name

    def begin(self) -> None:
        guard = _guards[self] = self._new_guard(self._name)
        guard.__enter__()

    def end(self) -> None:
        _guards.pop(self, None)

    def retire(self) -> None:
        """End, and never begin again."""
        self.end()
        self._new_guard = nullcontext


_guards: dict[_TorchRange, Any] = {}
"""An open range has its guard here."""


class EndingRanges:
    """Replaces the function that stops torch's profiler, and ends open ranges before it.

    A range that outlives its profiler writes to freed memory if it ends while another profiler
    is on: training would crash when a profiler is stopped and started within one step. The
    original function is restored when the last user leaves.
    """

    @classmethod
    def joined(cls, profiler: Any) -> EndingRanges:
        """The installed one, or a new one, with one more user."""
        there = profiler._disable_profiler  # noqa: SLF001 - there is no public hook
        ending = there if isinstance(there, cls) else cls(profiler)
        ending._users += 1  # noqa: SLF001 - its own class
        return ending

    def __init__(self, profiler: Any) -> None:
        self._users = 0
        self._profiler = profiler
        self._stop = profiler._disable_profiler  # noqa: SLF001 - there is no public hook
        profiler._disable_profiler = self  # noqa: SLF001 - there is no public hook

    def __call__(self, *args: Any) -> Any:
        """End the ranges, and stop the profiler."""
        _guards.clear()
        return self._stop(*args)

    def leave(self) -> None:
        """One user less; the last one restores torch's function."""
        self._users -= 1
        if not self._users and self._profiler._disable_profiler is self:  # noqa: SLF001 - there is no public hook
            self._profiler._disable_profiler = self._stop  # noqa: SLF001 - there is no public hook


class Annotation:
    """Puts ranges, made by `new(name)`, around what is served.

    They are `loadeval.wait ARM` and `loadeval.step ARM`, and in an alternating run
    `loadeval.switch` between blocks: synchronising the device, prefetching batches, waiting
    until the loader is idle.
    """

    def __init__(
        self, new: Callable[[str], Range], hook: Callable[[], EndingRanges | None] = lambda: None
    ) -> None:
        self.switches = False
        self._make = new
        self._hook = hook
        self._hooked: EndingRanges | None = None
        self._made: WeakSet[Range] = WeakSet()

    def close(self) -> None:
        """End all ranges, begin no more, and leave the profiler as it was."""
        for made in self._made:
            made.retire()
        hooked, self._hooked = self._hooked, None
        if hooked is not None:
            hooked.leave()

    def _new(self, name: str) -> Range:
        self._hooked = self._hooked or self._hook()
        made = self._make(name)
        self._made.add(made)
        return made

    def around(self, source: Iterator[Any], arm: Arm) -> Iterator[Any]:
        """The batches of `source`, up to an exception.

        A step ends when the next batch is asked for, or when the generator is dropped. The
        request that finds `source` at its end has a wait, too.
        """
        wait, step = self._new(f"loadeval.wait {arm}"), self._new(f"loadeval.step {arm}")
        while True:
            wait.begin()
            try:
                batch = next(source)
            except StopIteration:
                return
            except Exception as error:
                of_the_loader(error)
                raise
            finally:
                wait.end()
            step.begin()
            try:
                yield batch
            finally:
                step.end()

    def between(self, spans: Generator[Span, None, None]) -> Generator[Span, None, None]:
        """The spans of an epoch, with a range around what is between them if it `switches`."""
        if not self.switches:
            yield from spans
            return
        switch = self._new("loadeval.switch")
        with closing(spans):
            while True:
                switch.begin()
                try:
                    span = next(spans, None)
                finally:
                    switch.end()
                if span is None:
                    return
                yield span


def annotation_for(tool: Tool | None) -> Annotation | None:
    """The Annotation for `tool`; None for None. Raises UsageError if its package is missing."""
    if tool == "torch":
        return _torch_annotation()
    return None if tool is None else Annotation(_nvtx_ranges())


def _torch_annotation() -> Annotation:
    # Frameworks are imported by name, and only when they are asked for.
    try:
        new_guard = import_module("torch")._C._profiler._RecordFunctionFast  # noqa: SLF001 - 40 times as fast as record_function
        profiler: Any = import_module("torch.autograd.profiler")
        profiler._disable_profiler  # noqa: B018, SLF001 - see EndingRanges
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"annotate='torch' needs torch 2.1 or later with its profiler ({error}); install it, "
            "or omit annotate="
        ) from error
    return Annotation(partial(_TorchRange, new_guard), partial(EndingRanges.joined, profiler))


def _nvtx_ranges() -> Callable[[str], Range]:
    torch = sys.modules.get("torch")
    if torch is not None and (torch.version.cuda or torch.version.hip):
        return partial(_NvtxRange, torch.cuda.nvtx.range_start, torch.cuda.nvtx.range_end)
    try:
        domain = import_module("nvtx").get_domain()
    except ImportError as error:
        raise UsageError(
            "annotate='nvtx' needs the package nvtx, or a torch that is built for CUDA and already "
            "imported; install it with: pip install nvtx"
        ) from error
    start, end = domain.start_range, domain.end_range
    return lambda name: _NvtxRange(start, end, domain.get_event_attributes(message=name))
