"""What loadeval itself raises: it is said once, and training goes on with the same batches."""

from __future__ import annotations

import gc
import itertools
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import pytest

import loadeval
from loadeval import LoaderEvaluator, LoadevalWarning, Run, read_run
from loadeval.core import recorder
from loadeval.core.loop import Serving
from loadeval.core.recorder import OpenEpoch, Recorder
from loadeval.errors import AskingTheLoader, Guard, is_of_a_signal
from loadeval.evaluator import Measurement
from loadeval.testing import FakeClock
from tests.injected.reading import MODES, read_on
from tests.scripted import SerialLoader

ROOT = Path(loadeval.__file__).parent
SOURCES = tuple(str(ROOT / part) for part in ("core", "adapter.py", "evaluator.py", "errors.py"))
LENGTH, EPOCHS = 60, 3
CATCHING: set[CodeType] = {
    function.__code__
    for function in (
        *(Guard.__enter__, Guard.__exit__, Guard.ends),
        *(AskingTheLoader.__init__, AskingTheLoader.__enter__, AskingTheLoader.__exit__),
        *(Measurement.epoch, Measurement._replayed, Recorder._give_up),
        *(Serving.__next__, Serving._next_unmeasured),
        *(Serving._ends, Serving.__del__),
        *(LoaderEvaluator.__iter__, LoaderEvaluator.close),
    )
}
"""What catches has nothing around it that would catch."""
OPTIONS: dict[str, dict[str, Any]] = {
    "log": {"mode": "log", "stages": True},
    "batches": {"mode": "log", "batches": 30},
    "alternate": {"mode": "alternate"},
    "replay": {"mode": "replay", "num_cached_batches": 7},
    "replay later": {"mode": "replay", "num_cached_batches": 7, "replay_after": 20},
}


class InjectedError(Exception):
    """Stands for any error of ours."""


OURS: dict[str, Any] = {"__name__": "loadeval.injected", "InjectedError": InjectedError}
exec("def fail():\n    raise InjectedError('injected')", OURS)


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
                    # By turns a loop calls it, or a consumer that may hand it to other threads.
                    for batch in evaluator if number % 2 else iter(evaluator):
                        clock.advance(2_000_000)
                        epochs[-1].append(batch)
                evaluator.close()
            finally:
                sys.settrace(before)
        for thread in threading.enumerate():  # where what stops them has failed
            if thread.name.startswith("loadeval"):
                thread.join(10)
        return Outcome(epochs, [str(warning.message) for warning in said], read_run(path))

    return trained


class Injecting:
    """Sees the calls of functions that run in a training, and lets one of them fail."""

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

    def __enter__(self) -> Any:
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
    assert len(seen.calls) > 50
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
            f"{where}: batches {served}"
            for usual, served in zip(plain.epochs, outcome.epochs, strict=True)
            if (served if is_in_order else sorted(served)) not in (usual, list(range(LENGTH)))
        ]
        if len(outcome.said) > 1:
            wrong.append(f"{where}: said {outcome.said}")
        is_logged = any("injected" in event.message for event in outcome.run.events)
        if not is_logged and outcome.run.batches < plain.run.batches:
            wrong.append(
                f"{where}: the log has {outcome.run.batches} batches, and does not say why"
            )
    return wrong


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("name", "at"),
    [
        pytest.param(name, at, marks=[] if at == "first" and name in MODES else pytest.mark.check)
        for name in OPTIONS
        for at in ("first", "second", "last")
    ],
)
def test_whichever_function_fails_training_goes_on(
    name: str, at: str, train: Callable[[str], Outcome]
) -> None:
    """Each epoch is whole and in order, the failure is said once, and the log reads."""
    gc.collect()  # what tests before this one have left open warns when it is collected
    assert "\n".join(faults(train, name, at)) == ""


def fail(*_: object, **__: object) -> Any:
    OURS["fail"]()


class Loader:
    """Gives lists, numbered."""

    def __len__(self) -> int:
        return LENGTH

    def __iter__(self) -> Iterator[list[int]]:
        return ([number] for number in range(LENGTH))


def numbers(epoch: Iterable[Any]) -> list[int]:
    return [batch[0] for batch in epoch]


def fails() -> Any:
    """A context in which loadeval says that it has failed."""
    return pytest.warns(LoadevalWarning, match="nothing more is measured .InjectedError")


def test_a_gap_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log ends before the batches that could not be taken."""
    path = tmp_path / "run.jsonl"
    monkeypatch.setattr(recorder, "FLUSH_INTERVAL_S", 1000)
    evaluator = LoaderEvaluator(Loader(), log_file=path)
    epoch = iter(evaluator)
    next(epoch)
    monkeypatch.setattr(OpenEpoch, "take", fail)
    with fails():
        evaluator._measurement.recorder.drain()
    assert len(list(epoch)) == LENGTH - 1
    evaluator.close()
    run = read_run(path)
    assert "InjectedError" in run.events[0].message
    assert run.batches == 0


def test_no_other_thread_writes_behind_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where taking batches fails, others may be served, and taken by a thread that waits."""
    evaluator, take = LoaderEvaluator(Loader()), OpenEpoch.take
    failed: list[Any] = []
    epoch = iter(evaluator)
    next(epoch)

    def fails_once(of: OpenEpoch) -> Any:
        taken = take(of)
        if not failed:
            failed.append(next(epoch))
            fail()
        return taken

    def meanwhile(error: Exception) -> bool:
        other = threading.Thread(target=evaluator.recorded)
        other.start()
        other.join(0.05)
        return is_of_a_signal(error)

    monkeypatch.setattr(OpenEpoch, "take", fails_once)
    monkeypatch.setattr("loadeval.errors.is_of_a_signal", meanwhile)
    with fails():
        evaluator.recorded()
    assert evaluator.recorded().batches == 0


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_ends_the_program_passes_through(error: type[BaseException]) -> None:
    with pytest.raises(error), Guard(fail):
        raise error


@pytest.mark.parametrize("at", [2, 30])
def test_a_signal_while_batches_are_prefetched_loses_none(
    at: int, serial: type[SerialLoader], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its handler raises comes at once."""

    def alarm(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGUSR2, alarm)
    left = itertools.count(at, -1)
    clock = FakeClock()
    loader = serial(range(LENGTH), [1_000_000] * LENGTH, clock)
    loader.prefetched = 2

    def alarmed(batches: Any) -> Iterator[Any]:
        def asked() -> Any:
            if next(left) == 0:
                signal.raise_signal(signal.SIGUSR2)
            return next(epoch)

        epoch = iter(batches)
        return iter(asked, None)

    evaluator = LoaderEvaluator(loader, "alternate", clock=clock)
    adapter: Any = evaluator._measurement.adapter
    monkeypatch.setattr(adapter, "epoch", alarmed)
    try:
        served = read_on(iter(evaluator))
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert served.count(TimeoutError) == 1
    assert sorted(outcome for outcome in served if type(outcome) is int) == list(range(LENGTH))
