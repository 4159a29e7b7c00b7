"""One epoch that several threads read, as they may read a plain DataLoader's."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest

from loadeval import LoaderEvaluator, read_run
from tests.injected.reading import IN_EACH_MODE

IN_TIME_S = 30
LENGTH = 60


class Numbers:
    """A loader whose iterator any number of threads may read at once.

    Where `meet` is a barrier, threads load only together: one by one they would wait forever.
    """

    def __init__(self, length: int = LENGTH, meet: threading.Barrier | None = None) -> None:
        self.length = length
        self.meet = meet

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[int]:
        return NumbersRead(self)


class NumbersRead:
    def __init__(self, loader: Numbers) -> None:
        self.loader = loader
        self.numbers = iter(range(loader.length))

    def __iter__(self) -> NumbersRead:
        return self

    def __next__(self) -> int:
        number = next(self.numbers)
        if self.loader.meet is not None:
            self.loader.meet.wait(IN_TIME_S)
        return number


@pytest.fixture(autouse=True)
def _often_another_thread() -> Iterator[None]:
    """Threads take turns after a few instructions."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def read_by(threads: int, epoch: Iterator[Any]) -> list[Any]:
    """What all threads got; raises what one of them did."""
    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(list, map(next, repeat(epoch))) for _ in range(threads)]
    return [batch for future in futures for batch in future.result(IN_TIME_S)]


def expected(mode: str, length: int = LENGTH) -> list[int]:
    return [number % 3 if mode == "replay" else number for number in range(length)]


@pytest.mark.parametrize("annotate", [None, "torch"])
@pytest.mark.parametrize("threads", [2, 8])
@IN_EACH_MODE
def test_each_batch_is_served_once(mode: str, threads: int, annotate: Any, tmp_path: Path) -> None:
    for number in range(15):
        path = tmp_path / f"{number}.jsonl"
        length = (1, 3, LENGTH)[number % 3]
        options: dict[str, Any] = {"log_file": path, "annotate": annotate, "probes": ()}
        evaluator = LoaderEvaluator(Numbers(length), mode, 3, **options)
        for _ in range(2):
            assert sorted(read_by(threads, iter(evaluator))) == sorted(expected(mode, length))
        evaluator.close()
        assert len(read_run(path).ends) == 2


@pytest.mark.parametrize("mode", ["log", "alternate"])
def test_threads_load_at_once(mode: str, tmp_path: Path) -> None:
    """They do not wait for each other: with this loader they would do so forever."""
    loader = Numbers(40, threading.Barrier(2))
    evaluator = LoaderEvaluator(loader, mode, log_file=tmp_path / "run.jsonl")
    if mode == "alternate":  # which loads by itself too, so that nobody is left to meet
        loader.meet = None
    assert sorted(read_by(2, iter(evaluator))) == list(range(40))
    evaluator.close()
    run = read_run(tmp_path / "run.jsonl")
    if mode == "log":
        assert any("several threads read it at once" in event.message for event in run.events)


@IN_EACH_MODE
def test_one_thread_after_another_is_measured(mode: str) -> None:
    evaluator = LoaderEvaluator(Numbers(), mode, 3)
    epoch = iter(evaluator)
    served = []
    for _ in range(LENGTH):
        with ThreadPoolExecutor(1) as pool:
            served.append(pool.submit(next, epoch).result(IN_TIME_S))
    assert served == expected(mode)
    assert next(epoch, None) is None
    run = evaluator.recorded()
    assert run.batches == LENGTH
    assert [end.cause for end in run.ends] == ["exhausted"]


def test_a_generator_of_the_loaders_own_refuses_a_second_thread() -> None:
    """The first one gets its batch, as without loadeval."""
    loads, may_go = threading.Event(), threading.Event()

    def batches() -> Iterator[int]:
        yield 0
        loads.set()
        may_go.wait(IN_TIME_S)
        yield from (1, 2)

    epoch = iter(LoaderEvaluator(batches))
    assert next(epoch) == 0
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(next, epoch)
        loads.wait(IN_TIME_S)
        for _ in range(2):
            with pytest.raises(ValueError, match="generator already executing"):
                next(epoch)
        may_go.set()
        assert first.result(IN_TIME_S) == 1
    assert list(epoch) == [2]
