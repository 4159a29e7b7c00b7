"""What is said of Python's lock: threads that keep it are waited for, and no others."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from torch.utils.data import DataLoader

from bench.judge import compared
from loadeval import LoaderEvaluator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Work = Callable[[], object]

NO_WAIT_NS = 2_000_000
BATCHES, STEP_S = 120, 0.01
MATRIX = np.ones((400, 400))


@contextmanager
def at_work(work: Work, count: int) -> Iterator[None]:
    """Threads that do `work` over and over."""
    stopping = threading.Event()

    def run() -> None:
        while not stopping.is_set():
            work()

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopping.set()
        for thread in threads:
            thread.join()


def lock_wait_ns(work: Work, count: int, log: Path) -> float:
    """The mean wait for the lock beside threads that do `work`."""
    dataset: Any = range(BATCHES)
    loader: DataLoader[int] = DataLoader(dataset, batch_size=None)
    options: dict[str, Any] = {"probe_interval_s": 0.02, "stages": True}
    with at_work(work, count), LoaderEvaluator(loader, log_file=log, **options) as evaluator:
        for _ in evaluator:
            time.sleep(STEP_S)
    waited_ns = compared(log).lock_wait_ns
    assert waited_ns is not None
    return waited_ns


def test_a_thread_that_runs_python_code_is_waited_for(tmp_path: Path) -> None:
    """About as long as it may run before it must give up the lock."""
    waited_ns = lock_wait_ns(lambda: sum(map(abs, range(200_000))), 1, tmp_path / "run.jsonl")
    assert waited_ns > sys.getswitchinterval() * 1e9 / 5


@pytest.mark.parametrize("work", [lambda: time.sleep(0.01), lambda: np.dot(MATRIX, MATRIX)])
def test_code_that_gives_up_the_lock_is_not_waited_for(work: Work, tmp_path: Path) -> None:
    assert lock_wait_ns(work, 2, tmp_path / "run.jsonl") < NO_WAIT_NS
