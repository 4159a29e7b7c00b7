"""What loadeval itself raises: it is said once, and training goes on with the same batches."""

from __future__ import annotations

import itertools
import sys
import threading
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import loadeval.runtime
from loadeval import LoaderEvaluator, read_run
from loadeval.runtime.adapter import Begun
from loadeval.runtime.guard import AskingTheLoader, Guard
from loadeval.runtime.loop import SharedEpoch, _Serving
from loadeval.runtime.measurement import Measurement
from loadeval.runtime.recorder import Recorder
from loadeval.runtime.replay import replayed
from loadeval.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

    from typing_extensions import Self

    from loadeval import Run
    from tests.scripted import SerialLoader

SOURCES = str(Path(loadeval.runtime.__file__).parent)
LENGTH, EPOCHS = 60, 3
CATCHING: set[CodeType] = {
    function.__code__
    for function in (
        *(Guard.__enter__, Guard.__exit__, Guard.ends),
        *(AskingTheLoader.__init__, AskingTheLoader.__enter__, AskingTheLoader.__exit__),
        *(Measurement.epoch, Recorder._give_up),
        *(_Serving.parts, _Serving._part, _Serving._ends, replayed),
        *(SharedEpoch.__next__, SharedEpoch._take_part_after),
        Begun.__iter__,  # which hands out what it was given, to the loader's caller
    )
}
"""What catches has nothing around it that would catch."""
OPTIONS: dict[str, dict[str, Any]] = {
    "log": {"mode": "log", "stages": True},
    "every": {"mode": "log", "every": 3},
    "alternate": {"mode": "alternate"},
    "replay": {"mode": "replay", "num_cached_batches": 7},
    "replay later": {"mode": "replay", "num_cached_batches": 7, "replay_after": 20},
}

MODES = ("log", "alternate", "replay")


class InjectedError(Exception):
    """Stands for any error of ours."""


OURS: dict[str, Any] = {"__name__": "loadeval.injected", "InjectedError": InjectedError}
exec("def fail():\n    raise InjectedError('injected')", OURS)  # noqa: S102 - a frame of ours


class Outcome(NamedTuple):
    """The batches of each epoch, what was said, and the run as its log tells it."""

    epochs: list[list[int]]
    said: list[str]
    run: Run


@pytest.fixture
def train(serial: type[SerialLoader], tmp_path: Path) -> Callable[[str], Outcome]:
    """Trains some epochs of a loader without workers, by a clock that nobody waits for."""
    numbers = itertools.count()

    def trained(name: str) -> Outcome:
        clock = FakeClock()
        loader = serial(range(LENGTH), [1_000_000] * LENGTH, clock)
        loader.prefetched = 2
        path = tmp_path / f"{next(numbers)}.jsonl"
        options: dict[str, Any] = {"log_file": path, "probes": (), "clock": clock}
        evaluator = LoaderEvaluator(loader, **options, **OPTIONS[name])
        epochs: list[list[int]] = []
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            tracing, before = Injecting.now, sys.gettrace()
            if tracing is not None:
                sys.settrace(tracing.see)
            try:
                for number in range(EPOCHS):
                    epochs.append([])
                    # By a loop, and by who may hand it to other threads.
                    for batch in evaluator if number % 2 else iter(evaluator):
                        clock.advance(2_000_000)
                        epochs[-1].append(batch)
                evaluator.close()
            finally:
                sys.settrace(before)
        for thread in threading.enumerate():  # where what stops them has failed
            if thread.name.startswith("loadeval"):
                thread.join(10)
        return Outcome(epochs, [str(one.message) for one in said], read_run(path))

    return trained


class Injecting:
    """Sees the calls of functions of loadeval.runtime, and lets one of them fail."""

    now: Injecting | None = None

    def __init__(self, code: CodeType | None = None, at_call: int = 0) -> None:
        self.calls: dict[CodeType, int] = {}
        self._code = code
        self._left = itertools.count(at_call - 1, -1)

    def see(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(SOURCES) or code in CATCHING:
            return
        self.calls[code] = self.calls.get(code, 0) + 1
        if code is self._code and next(self._left) == 0:
            OURS["fail"]()

    def __enter__(self) -> Self:
        Injecting.now = self
        return self

    def __exit__(self, *_: object) -> None:
        Injecting.now = None


def name_of(code: CodeType) -> str:
    return f"{Path(code.co_filename).stem}.{getattr(code, 'co_qualname', code.co_name)}"


def faults(train: Callable[[str], Outcome], name: str, at: str) -> list[str]:
    """What went wrong with whichever function failed at its first, second or last call."""
    plain = train(name)
    with Injecting() as seen:
        train(name)
    assert len(seen.calls) > 60
    wrong = []
    for code, calls in seen.calls.items():
        at_call = {"first": 1, "second": 2, "last": calls}[at]
        if at_call > calls:
            continue
        where = f"{name_of(code)} at call {at_call} of {calls}"
        try:
            with Injecting(code, at_call):
                outcome = train(name)
        except InjectedError:
            wrong.append(f"{where} ended training")
            continue
        is_in_order = not name.startswith("alternate")
        wrong += [
            f"{where}: batches {found}"
            for usual, found in zip(plain.epochs, outcome.epochs, strict=True)
            if (found if is_in_order else sorted(found)) not in (usual, list(range(LENGTH)))
        ]
        if len(outcome.said) > 1:
            wrong.append(f"{where}: said {outcome.said}")
        is_told = any("injected" in event.message for event in outcome.run.events)
        if not is_told and outcome.run.batches < plain.run.batches:
            wrong.append(
                f"{where}: the log has {outcome.run.batches} batches, and does not say why"
            )
    return wrong


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("name", "at"),
    [
        pytest.param(name, at, marks=[] if at == "first" and name in MODES else pytest.mark.slow)
        for name in OPTIONS
        for at in ("first", "second", "last")
    ],
)
def test_whichever_function_fails_training_goes_on(
    name: str, at: str, train: Callable[[str], Outcome]
) -> None:
    """Each epoch is whole and in order, the failure is said once, and the log reads."""
    assert "\n".join(faults(train, name, at)) == ""
