"""What sending a dataset to workers that are not forked takes."""

from __future__ import annotations

from collections.abc import Sequence
from multiprocessing import reduction
from typing import Any

import pytest
from torch.utils.data import DataLoader, Dataset

from loadeval import LoaderEvaluator, WorkerStart

DUMP = reduction.dump
MB = 1 << 20


class Held(Dataset[int]):
    """Holds `megabytes` of data, which a worker is sent unless it is forked."""

    def __init__(self, megabytes: int) -> None:
        self.data = [bytes([number]) * MB for number in range(megabytes)]

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> int:
        return self.data[index][0]


class Unpicklable(Held):
    """One that a worker cannot be sent."""

    def __reduce__(self) -> Any:
        raise ValueError("cannot be sent")


def test_an_exception_in_pickling_is_the_users() -> None:
    loader = DataLoader(Unpicklable(1), num_workers=1, multiprocessing_context="spawn")
    with LoaderEvaluator(loader, stages=True) as evaluator:
        with pytest.raises(ValueError, match="cannot be sent"):
            next(iter(evaluator))
        assert reduction.dump is DUMP


def starts_of(method: str, megabytes: int) -> Sequence[WorkerStart]:
    loader = DataLoader(
        Held(megabytes), batch_size=1, num_workers=2, multiprocessing_context=method
    )
    with LoaderEvaluator(loader, stages=True) as evaluator:
        assert [int(batch) for batch in evaluator] == list(range(megabytes))
        assert reduction.dump is DUMP
    return evaluator.recorded().worker_starts


@pytest.mark.check
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_that_are_sent_a_dataset(method: str) -> None:
    """They are sent it one after the other, and each is ready once it has unpickled it."""
    first, second = starts_of(method, 8)
    for start in (first, second):
        assert start.sent_bytes is not None
        assert 8 * MB < start.sent_bytes < 9 * MB
        assert start.pickling_start_ns is not None
        assert start.pickling_ns is not None
        assert start.unpickling_ns is not None
        pickled_ns = start.pickling_start_ns + start.pickling_ns
        assert start.start_ns < pickled_ns < start.ready_ns - start.unpickling_ns < start.ready_ns
        assert pickled_ns < start.start_ns + start.starting_ns
    # The pipe holds 64 KB: the second is not begun before the first reads what it is sent.
    assert first.unpickling_ns is not None
    assert second.pickling_start_ns is not None
    assert first.ready_ns - first.unpickling_ns < second.pickling_start_ns


def test_forked_workers_are_sent_nothing() -> None:
    """What they were not sent is not measured, nor 0."""
    for start in starts_of("fork", 2):
        assert start.pickling_start_ns is start.pickling_ns is None
        assert start.sent_bytes is start.unpickling_ns is None
