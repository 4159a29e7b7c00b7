"""What sending a dataset to workers that are not forked takes."""

from __future__ import annotations

import io
import pickle
from multiprocessing import reduction
from time import perf_counter_ns
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from torch.utils.data import DataLoader, Dataset

from loadeval import LoaderEvaluator
from loadeval_adapters import pytorch_pickles
from loadeval_adapters.pytorch_pickles import BEGIN_UNPICKLING, Pickles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval import WorkerStart

DUMP = reduction.dump
MARK = "mark"
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


def dumped(sent: Any, file: Any, *protocol: int) -> Pickles:
    pickles = Pickles()
    pickles.timed(DUMP, MARK)(sent, file, *protocol)
    return pickles


def test_a_worker_is_sent_the_same() -> None:
    """It also notes when it begins to unpickle, and the size is that of what it is sent."""
    process, file = SimpleNamespace(_args=(1, MARK)), io.BytesIO(b"before")
    file.seek(0, io.SEEK_END)
    before_ns = perf_counter_ns()
    pickled = dumped(process, file, 4).of(process)
    assert pickled is not None
    assert pickled.sent_bytes == len(pickle.dumps(process, 4))
    assert before_ns <= pickled.pickling_start_ns <= perf_counter_ns() - pickled.pickling_ns
    assert pickle.loads(file.getvalue()[len(b"before") :]) == process
    assert before_ns < pytorch_pickles.unpickling_began_ns < perf_counter_ns()


@pytest.mark.parametrize("sent", [SimpleNamespace(_args=(1,)), {"sys_path": []}])
def test_what_is_no_worker_is_left_alone(sent: Any) -> None:
    """Other processes, and what each is sent besides itself."""
    file = io.BytesIO()
    assert dumped(sent, file).of(sent) is None
    assert BEGIN_UNPICKLING not in file.getvalue()


def test_a_pickle_that_goes_into_a_pipe_is_left_alone() -> None:
    """It cannot be timed: writing waits for the worker."""

    class Pipe(io.BytesIO):
        pass

    process, pipe = SimpleNamespace(_args=(1, MARK)), Pipe()
    assert dumped(process, pipe).of(process) is None
    assert BEGIN_UNPICKLING not in pipe.getvalue()


def test_an_exception_in_pickling_is_the_users() -> None:
    """And nothing of ours is left."""
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
