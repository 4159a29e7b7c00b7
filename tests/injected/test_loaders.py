"""Loaders that raise, hang, or give what nobody expects; consumers of all kinds; odd clocks."""

from __future__ import annotations

import gc
import itertools
import math
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from loadeval import LoaderEvaluator, read_run
from loadeval.core import counting
from tests.injected.reading import IN_EACH_MODE, read, read_on

TRAINS = pytest.mark.parametrize("mode", ["log", "alternate"])
LENGTH = 60


class Script:
    """Gives what is in its script, raises the exceptions in it, and calls its functions."""

    def __init__(self, *script: Any) -> None:
        self.script = script

    def __iter__(self) -> Iterator[Any]:
        return map(self._played, self.script)

    def _played(self, step: Any) -> Any:
        if isinstance(step, BaseException):
            raise step
        return step() if callable(step) else step


ERRORS = [ValueError("bad"), KeyboardInterrupt()]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("place", [0, 25, LENGTH])
@TRAINS
def test_a_loader_that_raises_and_goes_on(
    mode: str, place: int, error: BaseException, tmp_path: Path
) -> None:
    """Its error comes after the batches before it, and those behind it come too."""
    loader = Script(*range(place), error, *range(place, LENGTH))
    with LoaderEvaluator(loader, mode, log_file=tmp_path / "run.jsonl") as evaluator:
        served = read_on(iter(evaluator))
    assert served.count(type(error)) == 1
    assert [outcome for outcome in served if outcome is not type(error)] == list(range(LENGTH))
    if not isinstance(error, KeyboardInterrupt):
        assert served.index(type(error)) >= place
    assert read_run(tmp_path / "run.jsonl").batches >= (place if mode == "log" else 0)


class Deadly(torch.utils.data.Dataset[int]):
    """Its 60th sample kills who loads it."""

    def __len__(self) -> int:
        return 96

    def __getitem__(self, index: int) -> int:
        if index == LENGTH:
            os.kill(os.getpid(), signal.SIGKILL)
        return index


@pytest.mark.check
@TRAINS
def test_a_worker_that_is_killed_is_told_by_its_loader(mode: str) -> None:
    """Behind batches that it had loaded, all of which are in the run."""
    loader = torch.utils.data.DataLoader(Deadly(), num_workers=1, collate_fn=sum)
    evaluator, served = LoaderEvaluator(loader, mode), list[int]()
    with pytest.raises(RuntimeError, match=r"DataLoader worker \(pid"):
        served.extend(evaluator)
    assert served
    assert evaluator.recorded().batches == len(served)


class TimeIsUpError(Exception):
    """What a program's own alarm raises."""


@pytest.fixture
def alarm() -> Iterator[Callable[[], None]]:
    """Raises TimeIsUpError by the handler of a signal."""

    class Handler:
        def __call__(self, *_: Any) -> None:
            raise TimeIsUpError

    before = signal.signal(signal.SIGUSR1, Handler())
    yield lambda: signal.raise_signal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("place", [0, 30])
@TRAINS
def test_a_programs_own_alarm_reaches_it(
    mode: str, place: int, alarm: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may go off in the middle of what loadeval does; no batch is lost by it."""
    evaluator = LoaderEvaluator(range(LENGTH), mode)
    seen = list[int]()

    def going_off(*given: Any) -> Any:
        structure = counting.Structure(*given)
        mark_of = structure.mark_of

        def marked(batch: Any) -> Any:
            if batch == place and batch not in seen:
                seen.append(batch)
                alarm()
            return mark_of(batch)

        structure.mark_of = marked
        return structure

    monkeypatch.setattr("loadeval.evaluator.Structure", going_off)
    served = read_on(iter(evaluator))
    assert served.count(TimeIsUpError) <= 1
    assert [outcome for outcome in served if type(outcome) is int] == list(range(LENGTH))


@pytest.mark.parametrize(("counts", "place"), [("samples", 30), ("padding", 0)])
@TRAINS
def test_an_alarm_while_a_batch_is_counted_reaches_the_program(
    mode: str, counts: str, place: int, alarm: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the user's own count, or ours of its padding."""
    seen: list[int] = []

    def counted(batch: int) -> None:
        if batch == place and not seen:
            seen.append(batch)
            alarm()

    if counts == "padding":
        monkeypatch.setattr(counting, "padding_of", counted)
    samples: Any = counted if counts == "samples" else (lambda _: 1)
    served = read_on(iter(LoaderEvaluator(range(LENGTH), mode, samples=samples)))
    assert served.count(TimeIsUpError) == 1
    assert [outcome for outcome in served if type(outcome) is int] == list(range(LENGTH))


@pytest.mark.parametrize("marks", [7, 8])
def test_an_interrupt_while_a_batch_is_noted_leaves_its_times_right(marks: int) -> None:
    """Ctrl-C may come between any two steps: the batch that it caught is served, and noted once."""
    ticks = itertools.count(step=10)
    evaluator = LoaderEvaluator(range(LENGTH), clock=lambda: next(ticks))

    def interrupt(_: object, event: str, called: Any) -> None:
        noted = getattr(called, "__self__", None)
        if event == "c_return" and type(noted) is list and len(noted) == marks:
            sys.setprofile(None)
            raise KeyboardInterrupt

    epoch = iter(evaluator)
    served = [next(epoch)]
    sys.setprofile(interrupt)
    with pytest.raises(KeyboardInterrupt):
        served.extend(epoch)
    served += epoch
    assert served == list(range(LENGTH))
    steps = evaluator.recorded().steps
    assert (len(steps), int(steps.wait_ns.min())) == (LENGTH, 10)


GARBAGE: list[Any] = [
    None,
    b"bytes",
    (),
    {"x": torch.zeros(4)},
    torch.tensor(1.0),
    np.zeros((0, 3)),
    math.nan,
    ValueError,
    [None, {"y": [torch.zeros(2), "a"]}],
    StopIteration(),
]


@IN_EACH_MODE
def test_garbage_is_served(mode: str, tmp_path: Path) -> None:
    """Its type differs with each batch, and its order in each epoch."""
    outcome = read(GARBAGE, mode, tmp_path, 3, num_cached_batches=99, change=type)
    assert outcome.epochs == [[type(batch) for batch in GARBAGE]] * 3
    assert outcome.run.batches == 3 * len(GARBAGE)
    assert outcome.said == []


@TRAINS
def test_an_epoch_may_be_another_each_time(mode: str, tmp_path: Path) -> None:
    """Other batches, types and lengths come, empty ones included, which are said."""
    epochs: list[Any] = [
        [1, 2],
        [],
        [{"x": torch.zeros(2)}] * 40,
        [torch.zeros(9)],
        list("abc") * 9,
    ]
    order = iter(epochs)

    class Loader:
        def __iter__(self) -> Iterator[Any]:
            return iter(next(order))

    outcome = read(Loader(), mode, tmp_path, len(epochs), change=type)
    assert outcome.epochs == [[type(batch) for batch in epoch] for epoch in epochs]
    assert len(outcome.said) == 1
    assert "gave no batch" in outcome.said[0]


@IN_EACH_MODE
def test_consumers_may_break_raise_and_keep(mode: str, tmp_path: Path) -> None:
    """Iterators that are kept go on where they were, and what is dropped is over."""
    path = tmp_path / "run.jsonl"
    evaluator = LoaderEvaluator(range(LENGTH), mode, LENGTH, log_file=path)
    for number in evaluator:
        if number == 5:
            break

    def divide() -> None:
        for number in evaluator:
            _ = 1 / (number - 7)

    with pytest.raises(ZeroDivisionError):
        divide()
    kept = [iter(evaluator) for _ in range(3)]
    heads = [[next(iterator) for _ in range(4)] for iterator in kept]
    assert heads == [[0, 1, 2, 3]] * 3
    assert list(itertools.chain(*kept)) == list(range(4, LENGTH)) * 3
    unread = iter(evaluator)
    del unread
    gc.collect()
    evaluator.close()
    run = read_run(path)
    assert run.closed
    assert run.batches == 6 + 8 + 3 * LENGTH
