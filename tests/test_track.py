"""Scalars reach a tracker beside the training, which a tracker's fault does not touch."""

from __future__ import annotations

import copy
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray

from loadeval import LoaderEvaluator, LoadevalWarning, UsageError, track
from loadeval.core.threads import BackgroundThreads
from loadeval.data.run import Run
from loadeval.errors import UNGUARDED
from loadeval.track import INTERVAL_S, Log, Tracking
from tests.builder import alternating, make_header
from tests.runs.measured import recorded

HEADER = make_header(mode="log")


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class NoThreads(BackgroundThreads):
    """Starts none: a test ticks itself."""

    def start(self, *_: Any, **__: Any) -> None: ...


def nothing() -> None:
    pass


def begin(tracked: Tracking) -> None:
    tracked.begin(NoThreads(UNGUARDED), nothing)


def a_run() -> Run:
    return alternating(wait=10.0, step=10.0, ideal=10.0, spread=0.1)


def use(monkeypatch: pytest.MonkeyPatch, tracker: Callable[[str], Any]) -> None:
    """In the place of MLflow."""
    monkeypatch.setitem(track.TRACKERS, "mlflow", ("a tracker", tracker))
    monkeypatch.setattr(track, "import_module", lambda _: None)


@pytest.fixture(name="given")
def _given(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What the tracker is given from then on, in order."""
    given: list[object] = []

    @contextmanager
    def tracker(name: str) -> Iterator[Log]:
        given.append(name)
        yield lambda step, scalars: given.append((step, sorted(scalars)))
        given.append("end")

    use(monkeypatch, tracker)
    return given


def test_it_joins_once_and_logs_at_an_interval(given: list[object]) -> None:
    """The first time an interval after the first batch; at the end, and once, the lost share."""
    clock = Clock()
    tracked = Tracking("mlflow", clock)
    tracked.take(HEADER)
    tracked.tick(nothing)
    begin(tracked)
    begin(tracked)
    tracked.tick(nothing)
    assert given == ["loadeval a run"]
    clock.now_s += INTERVAL_S
    for _ in range(2):
        tracked.tick(nothing)
    assert given[1:] == [(0, [])]
    for _ in range(2):
        tracked.finish(a_run)
    lost = [f"loadeval/lost_share{end}" for end in ("", "_high", "_low")]
    assert given[2:] == [(0, lost), "end"]
    tracked.take(HEADER)
    clock.now_s += INTERVAL_S
    tracked.tick(nothing)
    assert given[-1] == "end"


def test_a_run_without_a_batch_is_not_tracked(given: list[object]) -> None:
    Tracking("mlflow").finish(a_run)
    assert given == []


def test_a_failing_tracker_is_told_once_and_gets_nothing_more() -> None:
    given, clock = list[int](), Clock()

    def fails(step: int, _: dict[str, float]) -> None:
        given.append(step)
        raise OSError("no server")

    tracked = Tracking(fails, clock)
    tracked.take(HEADER)
    with pytest.warns(LoadevalWarning) as warned:
        for _ in range(2):
            begin(tracked)
            clock.now_s += INTERVAL_S
            tracked.tick(nothing)
        tracked.finish(a_run)
    (warning,) = warned
    assert str(warning.message) == (
        "the function that track= names gets nothing more of this run (OSError: no server); "
        "training and measurement go on"
    )
    assert given == [0]


@pytest.mark.parametrize("hangs_at", ["a log while it trains", "the end"])
def test_a_tracker_that_never_answers_holds_the_end_of_a_training_for_five_seconds(
    hangs_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it does not; a server may be gone for good."""
    answer, asked = threading.Event(), threading.Event()
    waited_s: list[float | None] = []
    clock = Clock()

    def wait() -> None:
        asked.set()
        answer.wait()

    @contextmanager
    def tracker(_: str) -> Iterator[Log]:
        yield lambda *_: None if hangs_at == "the end" else wait()
        wait()

    def without_waiting(limit_s: float | None, _: str, work: Callable[[], None]) -> bool:
        waited_s.append(limit_s)
        threading.Thread(target=work, daemon=True).start()
        if hangs_at != "a log while it trains":
            asked.wait()
        return False

    use(monkeypatch, tracker)
    monkeypatch.setattr(track, "within", without_waiting)
    tracked = Tracking("mlflow", clock)
    tracked.take(HEADER)
    begin(tracked)
    if hangs_at == "a log while it trains":
        clock.now_s += INTERVAL_S
        threading.Thread(target=tracked.tick, args=(nothing,), daemon=True).start()
        asked.wait()
    with pytest.warns(LoadevalWarning, match="a tracker gets nothing more .*it takes too long"):
        tracked.finish(a_run)
    assert waited_s == [5.0]
    answer.set()


def test_a_tracker_that_is_too_slow_is_given_up(
    given: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines do not pile up where it hangs."""
    monkeypatch.setattr(track, "MOST_LINES", 3)
    tracked = Tracking("mlflow")
    begin(tracked)
    with pytest.warns(LoadevalWarning, match="it takes too long") as warned:
        for _ in range(5):
            tracked.take(HEADER)
    tracked.finish(a_run)
    assert (given, len(warned)) == (["loadeval"], 1)


def test_an_evaluator_tracks_while_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a thread that no batch waits for; at the end once more, on the whole run."""
    monkeypatch.setattr(track, "INTERVAL_S", 0.0)
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
    assert {name for name, *_ in logged} == {track.THREAD}
    assert 0 <= logged[0][1] <= 4
    _, last, scalars = logged[-1]
    assert (last, scalars["loadeval/epoch"]) == (6, 0)
    assert scalars["loadeval/wait_s"] > 0
    assert not [thread for thread in threading.enumerate() if thread.name == track.THREAD]


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


def test_what_a_tracker_misses_is_told_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wandb.py").write_text("import click_of_old")
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match=r"needs the package click_of_old.*pip install click_of"):
        LoaderEvaluator([1], track="wandb")


def test_the_scalars_are_those_of_the_last_minute() -> None:
    """In base units, and the last ones with the whole run's lost share."""
    logged: list[tuple[int, dict[str, float]]] = []
    recorded(epochs=2, probes=(), track=lambda *given: logged.append(given))
    assert logged == [
        (
            60,
            {
                "loadeval/epoch": 1,
                "loadeval/batches_per_s": 25,
                "loadeval/samples_per_s": 100,
                "loadeval/wait_share": 0.75,
                "loadeval/wait_s": 1.8,
                "loadeval/epoch_start_s": 0.03,
            },
        )
    ]


def test_tensorboard_gets_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where torch's writer puts its own, under the run's name, with scalars alone."""
    monkeypatch.chdir(tmp_path)
    recorded(track="tensorboard", name="my run", probes=())
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("loadeval-my-run-")
    (events,) = folder.iterdir()
    assert events.name.startswith("events.out.tfevents")
    accumulator = EventAccumulator(str(folder))
    accumulator.Reload()
    (share,) = accumulator.Tensors("loadeval/wait_share")
    assert (share.step, make_ndarray(share.tensor_proto)) == (30, pytest.approx(0.75))
