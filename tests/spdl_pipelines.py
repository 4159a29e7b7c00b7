"""Pipelines of SPDL's that decode the photographs, for the tests of its adapters."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from spdl.pipeline import PipelineBuilder

from tests.images import FILES, collate, decode

# SPDL's own, of a pipeline that is made and never run, as for asking what it consists of.
NEVER_RUN = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")


def source(items: Any, **options: Any) -> Any:
    # Untyped: its methods are typed for what add_source is yet to take.
    builder: Any = PipelineBuilder()
    return builder.add_source(items, **options)


def builder(files: list[bytes] = FILES, **options: Any) -> Any:
    made = source(files, **options).pipe(decode, concurrency=2, output_order="input")
    return made.aggregate(8).pipe(collate).add_sink(2)


def pipeline(files: list[bytes] = FILES, **options: Any) -> Any:
    return builder(files, **options).build(num_threads=3)


def spdl_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if "spdl" in thread.name]


def made_while_nobody_takes(adapter: Any, loader_of: Callable[[Any], Any], wanted: int) -> int:
    """How many arrays a loader makes after one batch was taken, once there are `wanted` of them.

    `loader_of` returns a loader that makes them with the function that it is given.
    """
    made, are_there, lock = list[int](), threading.Event(), threading.Lock()

    def make(number: int) -> Any:
        with lock:
            made.append(number)
            if len(made) == wanted:
                are_there.set()
        return np.full((2, 3), number)

    loader = loader_of(make)
    epoch = adapter.epoch(loader)
    next(epoch)
    assert are_there.wait(10)
    adapter.release(loader, epoch)
    return len(made)
