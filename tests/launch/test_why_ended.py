"""The line that a program gets which an error of its loader ends."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest

from loadeval.data.columns import Columns
from loadeval.data.run import Run
from loadeval.launch.why_ended import (
    SHARED_MEMORY,
    note,
    open_files,
    unpicklable,
    why_ended,
)
from tests.builder import logged
from tests.runs.tables import replace

WORKER = "DataLoader worker (pid 123) is killed by signal: "


def run() -> Run:
    """Of batches of 1 MB, of which four are loaded ahead, and workers that were read."""
    read = Columns({"time_ns": [1, 2], "pss_bytes": [1e9, np.nan]})
    machine = Columns({"time_ns": [1, 2], "memory_available_bytes": [5e9, 2e8]})
    readings = {("host", "workers"): read, ("host", "machine"): machine}
    base = logged([0] * 8, readings=readings)
    return replace(base, steps=base.steps.replace(nbytes=np.full(8, 1_000_000)))


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (
            RuntimeError(f"{WORKER}Bus error. It is possible that dataloader's workers are out of"),
            "a batch takes 1.00 MB, and 4 batches loaded ahead 4.00 MB.",
        ),
        (
            RuntimeError("unable to write to file </torch_7_1_0>: No space left on device (28)"),
            "shm is full: what workers send lies there",
        ),
        (RuntimeError(f"{WORKER}Killed. "), "200 MB were left when it was last read, the workers"),
        (RuntimeError(f"{WORKER}Segmentation fault. "), "123 died in compiled code (Segmentation"),
        (OSError(24, "Too many open files"), "too many files are open: ulimit -n is "),
        (MemoryError("[enforce fail] can't allocate memory"), "memory ran out, "),
        (RuntimeError("_ArrayMemoryError: Unable to allocate 9 GiB"), "memory ran out, "),
    ],
)
def test_why_the_loader_ended_a_program(error: Exception, why: str, tmp_path: Path) -> None:
    note(tmp_path, error)
    assert why in why_ended(tmp_path, [run()])


class Trainer:
    """It calls its number of workers as torch calls its workers."""

    _workers = 4

    def train(self, error: Exception) -> None:
        raise error


def test_an_attribute_of_the_program_hides_no_cause(tmp_path: Path) -> None:
    with pytest.raises(MemoryError) as raised:
        Trainer().train(MemoryError("can't allocate memory"))
    note(tmp_path, raised.value)
    assert "memory ran out" in why_ended(tmp_path, [])


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        KeyboardInterrupt(),
        ValueError("cannot pickle what is too ripe"),
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    ],
)
def test_of_other_errors_nothing_is_said(error: BaseException, tmp_path: Path) -> None:
    note(tmp_path, error)
    assert not why_ended(tmp_path, [run()])
    assert not why_ended(tmp_path / "none", [])


def test_the_first_error_of_several_ranks_is_kept(tmp_path: Path) -> None:
    """And what it was raised from is a part of it."""
    outer = RuntimeError("DataLoader worker (pid(s) 123) exited unexpectedly")
    outer.__cause__ = RuntimeError(f"{WORKER}Aborted. ")
    for error in (outer, ValueError("later")):
        note(tmp_path, error)
    assert "(Aborted)" in why_ended(tmp_path, [])


class Photos:
    def __init__(self, part: object) -> None:
        self.parts = {"a": [1, part]}


@pytest.mark.parametrize(
    ("part", "name"),
    [
        (threading.Lock(), "Photos.parts['a'][1] (lock)"),
        (lambda: 1, "Photos.parts['a'][1] (<lambda>)"),
        (2, None),
    ],
)
def test_the_part_that_cannot_be_pickled_is_named(part: object, name: str | None) -> None:
    assert unpicklable(Photos(part), "Photos") == name


def test_open_files_are_counted_by_kind() -> None:
    before = open_files(1000)
    opened = [*os.pipe(), os.memfd_create("torch")]
    try:
        more = open_files(1000) - before
    finally:
        for each in opened:
            os.close(each)
    assert more == {"pipes": 2, SHARED_MEMORY: 1}
