"""Scalars reach a tracker beside the training, which a tracker's fault does not touch."""

from __future__ import annotations

import copy
import pickle
import threading
from typing import TYPE_CHECKING, Any

import pytest

from loadeval import LoaderEvaluator, LoadevalWarning, UsageError
from loadeval.runlog.model import Header, LoaderInfo
from loadeval.runtime.background import tracking
from loadeval.runtime.background.threads import BackgroundThreads
from loadeval.runtime.background.tracking import INTERVAL_S, Tracking
from tests.runs.measured import recorded

if TYPE_CHECKING:
    from loadeval import Run
    from loadeval.runlog.log_file.codec import Line

HEADER = Header("id", "run", "log", "", "images", 1, LoaderInfo("loader"))


class Kept:
    """Keeps what it is given, in order; what is in `failing` fails."""

    name = "a tracker"

    def __init__(self, *failing: str) -> None:
        self.given: list[Any] = []
        self.failing = failing

    def keep(self, what: str, *values: Any) -> None:
        self.given.append((what, *values))
        if what in self.failing:
            raise OSError(f"no {what}")

    def take(self, line: Line) -> None:
        self.keep("take", line)

    def join(self) -> None:
        self.keep("join")

    def scalars(self) -> tuple[int, dict[str, float]]:
        self.keep("scalars")
        return 7, {"loadeval/epoch": 1.0}

    def log(self, step: int, scalars: dict[str, float]) -> None:
        self.keep("log", step, scalars)

    def finish(self, run: Run) -> None:
        self.keep("finish", run)

    @property
    def names(self) -> list[str]:
        return [what for what, *_ in self.given]


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class NoThreads(BackgroundThreads):
    """Starts none: a test ticks itself."""

    def start(self, *_: Any, **__: Any) -> bool:
        return False


def begin(tracked: Tracking) -> None:
    tracked.begin(NoThreads(), nothing)


def nothing() -> Any:
    return None


def test_it_joins_once_and_logs_at_an_interval() -> None:
    """The first time an interval after the first batch."""
    tracker, clock = Kept(), Clock()
    tracked = Tracking(tracker, clock)
    tracked.tick(nothing)
    begin(tracked)
    begin(tracked)
    tracked.tick(nothing)
    clock.now_s += INTERVAL_S
    for _ in range(2):
        tracked.tick(nothing)
    tracked.take(HEADER)
    assert tracker.names.count("take") == 0  # by the thread that trains
    tracked.tick(nothing)
    tracked.take(HEADER)
    tracked.finish(nothing)
    assert tracker.given == [
        ("join",),
        ("scalars",),
        ("log", 7, {"loadeval/epoch": 1.0}),
        ("take", HEADER),
        ("take", HEADER),
        ("finish", None),
    ]


def test_it_ends_once() -> None:
    """What comes later goes nowhere."""
    tracker, clock = Kept(), Clock()
    tracked = Tracking(tracker, clock)
    begin(tracked)
    for _ in range(2):
        tracked.finish(nothing)
    tracked.take(HEADER)
    clock.now_s += INTERVAL_S
    tracked.tick(nothing)
    assert tracker.names == ["join", "finish"]


def test_a_run_without_a_batch_is_not_tracked() -> None:
    tracker = Kept()
    Tracking(tracker).finish(nothing)
    assert tracker.given == []


@pytest.mark.parametrize("what", ["join", "take", "scalars", "log", "finish"])
def test_a_failing_tracker_is_told_once_and_gets_nothing_more(what: str) -> None:
    """Wherever it fails; nothing is raised."""
    tracker, clock = Kept(what), Clock()
    tracked = Tracking(tracker, clock)
    with pytest.warns(LoadevalWarning, match=f"a tracker gets nothing more .*OSError: no {what}"):
        for _ in range(2):
            begin(tracked)
            tracked.take(HEADER)
            clock.now_s += INTERVAL_S
            tracked.tick(nothing)
        tracked.finish(nothing)
    assert tracker.names[-1] == what
    assert tracker.names.count(what) == 1


def test_a_tracker_that_hangs_at_the_end_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server may be gone for good."""
    monkeypatch.setattr(tracking, "LONGEST_FINISH_S", 0.01)
    answered = threading.Event()

    def no_answer() -> Any:
        answered.wait()

    tracked = Tracking(Kept())
    begin(tracked)
    with pytest.warns(LoadevalWarning, match="it takes too long"):
        tracked.finish(no_answer)
    answered.set()


def test_lines_do_not_pile_up_where_a_tracker_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is given up, and they are dropped."""
    monkeypatch.setattr(tracking, "MOST_LINES", 3)
    tracker = Kept()
    tracked = Tracking(tracker)
    begin(tracked)
    with pytest.warns(LoadevalWarning, match="it takes too long"):
        for _ in range(5):
            tracked.take(HEADER)
    assert not tracked._lines
    tracked.finish(nothing)
    assert tracker.names == ["join"]


def test_an_evaluator_tracks_while_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a thread that no batch waits for; at the end once more, on the whole run."""
    monkeypatch.setattr(tracking, "INTERVAL_S", 0.0)
    logged: list[tuple[str, int, dict[str, float]]] = []
    has_logged = threading.Event()

    def log(step: int, scalars: dict[str, float]) -> None:
        logged.append((threading.current_thread().name, step, scalars))
        has_logged.set()

    with LoaderEvaluator([bytes(4)] * 6, track=log, samples=len, probes=()) as evaluator:
        for number, _ in enumerate(evaluator):
            if number == 3:
                has_logged.clear()
                assert has_logged.wait(20)
    assert {name for name, *_ in logged} == {tracking.THREAD}
    assert 0 <= logged[0][1] <= 4
    _, last, scalars = logged[-1]
    assert last == 6
    assert scalars["loadeval/epoch"] == 0
    assert scalars["loadeval/wait_s"] > 0
    assert not [thread for thread in threading.enumerate() if thread.name == tracking.THREAD]


def test_a_failing_function_changes_nothing() -> None:
    """The batches and the run are what they are without."""

    def log(*_: Any) -> None:
        raise RuntimeError("no")

    with pytest.warns(LoadevalWarning, match="the function that track= names gets nothing more"):
        run = recorded(track=log, epochs=2)
    assert (run.batches, run.events) == (60, ())


def test_a_copy_is_not_tracked() -> None:
    """The tracker's run is of the original, and its function need not be pickled."""
    steps: list[int] = []
    evaluator = LoaderEvaluator([1, 2], track=lambda step, _: steps.append(step))
    for copied in (copy.copy(evaluator), pickle.loads(pickle.dumps(evaluator))):
        with copied:
            assert list(copied) == [1, 2]
    assert steps == []
    with evaluator:
        assert list(evaluator) == [1, 2]
    assert steps == [2]


def test_only_the_first_rank_is_tracked(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        with LoaderEvaluator([1, 2], track=lambda step, _: steps.append(step)) as evaluator:
            assert list(evaluator) == [1, 2]
    assert steps == [2]


def test_an_unknown_tracker_is_refused() -> None:
    with pytest.raises(UsageError, match="track is 'comet'; expected 'mlflow' or 'wandb' or"):
        LoaderEvaluator([1], track="comet")
