"""Named ranges around waits and steps, where Nsight Systems and torch's profiler show them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator
from functools import partial
from importlib import import_module
from typing import Any

from loadeval.data.lines import Arm
from loadeval.errors import UsageError, of_the_loader
from loadeval.settings import Tool

Annotation = Callable[[str], Callable[[], object]]
"""Begins a range of that name, and returns what ends it."""

_guards: dict[object, Any] = {}
"""Torch's objects whose ranges are open."""


def annotated(source: Iterator[Any], arm: Arm, begin: Annotation) -> Generator[Any, None, None]:
    """The batches of `source`, up to an exception, in ranges "loadeval.wait ARM" and "... step".

    A step ends when the next batch is asked for, or when the generator is dropped. The request that
    finds `source` at its end has a wait, too.
    """
    while True:
        end = begin(f"loadeval.wait {arm}")
        try:
            batch = next(source)
        except StopIteration:
            return
        except Exception as error:
            of_the_loader(error)
            raise
        finally:
            end()
        end = begin(f"loadeval.step {arm}")
        try:
            yield batch
        finally:
            end()


def annotation_for(tool: Tool | None) -> Annotation | None:
    """What begins ranges of `tool`. Raises UsageError if its package is missing."""
    if tool is None:
        return None
    if tool == "torch":
        return _torch_ranges()
    torch = sys.modules.get("torch")
    if torch is None or not (torch.version.cuda or torch.version.hip):
        raise UsageError(
            "annotate='nvtx' needs a torch that is built for CUDA, and that is imported already; "
            "omit annotate= without one"
        )
    # Ranges that NVTX knows by their number, not those on the stack that `push` and `pop` keep for
    # each thread: a step often ends inside another range than it began in, such as a framework's
    # around `next()`, and a pop would end that one.
    nvtx = torch.cuda.nvtx
    return lambda name: partial(nvtx.range_end, nvtx.range_start(name))


def _torch_ranges() -> Annotation:
    """Ranges of torch's profiler, recorded if the profiler was on when they began.

    A guard of torch's ends its range when it is freed. Its `__exit__` is not used: that fails when
    the profiler was switched on since.
    """
    # Frameworks are imported by name, and only when they are asked for.
    try:
        new_guard = import_module("torch")._C._profiler._RecordFunctionFast  # noqa: SLF001 - 40 times as fast as record_function
        profiler: Any = import_module("torch.autograd.profiler")
        stop = profiler._disable_profiler  # noqa: SLF001 - there is no public hook
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"annotate='torch' needs torch 2.1 or later with its profiler ({error}); install it, "
            "or omit annotate="
        ) from error

    def stop_after_ranges(*args: Any) -> Any:
        """A range that outlives its profiler writes to freed memory while another one is on.

        Training would crash where a profiler is stopped and started within one step.
        """
        _guards.clear()
        return stop(*args)

    if getattr(stop, "__name__", "") != stop_after_ranges.__name__:
        profiler._disable_profiler = stop_after_ranges  # noqa: SLF001 - there is no public hook

    def begin(name: str) -> Callable[[], object]:
        key = object()
        guard = _guards[key] = new_guard(name)
        guard.__enter__()
        return partial(_guards.pop, key, None)

    return begin
