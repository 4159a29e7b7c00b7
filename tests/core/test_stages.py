"""Looking into a loader: who is asked, when, and what becomes of what is found."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from loadeval import (
    CodeSamples,
    LoaderEvaluator,
    Readings,
    Run,
    StageNote,
    StageTimes,
    WorkerStart,
    compare_backends,
    read_run,
)
from loadeval.testing import FakeClock
from tests.scripted import SerialAdapter, SerialLoader, register

MS = 1_000_000


class StagedLoader(SerialLoader):
    """Batches 0, 1, 2, …, each of which takes 20 ms; tells an epoch's `rows` which it has given.

    `said` has what was asked of its stages, of which the one named by `fails` raises.
    """

    def __init__(self, batches: int, fails: str = "") -> None:
        super().__init__(range(batches), [20 * MS] * batches, FakeClock())
        self.said: list[str] = []
        self.fails = fails
        self.rows: list[int] = []

    def __iter__(self) -> Iterator[Any]:
        rows, self.rows = self.rows, []
        return self._noted(rows)

    def _noted(self, rows: list[int]) -> Iterator[Any]:
        for batch in super().__iter__():
            rows.append(batch)
            yield batch

    def do(self, what: str) -> None:
        self.said.append(what)
        if what.split(maxsplit=1)[0] == self.fails:
            raise ArithmeticError(what)


class Fetches:
    """Looks into a StagedLoader: batch n takes n ns to fetch."""

    def __init__(self, loader: StagedLoader) -> None:
        self.do = loader.do
        self.epochs: list[tuple[int, list[int]]] = []
        self.facts: list[Any] = [StageNote("no transforms")]
        self.do("stages")

    def begin(self, loader: StagedLoader) -> Callable[[int], object]:
        self.do("begin")
        rows = loader.rows = []

        def known(epoch: int) -> None:
            self.do(f"epoch {epoch}")
            self.epochs.append((epoch, rows))
            now_ns = time.perf_counter_ns()
            self.facts += [
                WorkerStart(epoch, 0, now_ns, 0, now_ns, 0),
                CodeSamples(0, {"data.py:31 __getitem__": epoch}, {}),
                Readings("loader", "queue", [now_ns], {"batches": [1.5]}),
            ]

        return known

    def take(self) -> list[Any]:
        if any(rows for _, rows in self.epochs):
            self.do("take")
        for epoch, rows in self.epochs:
            batch = rows[:]
            del rows[: len(batch)]
            self.facts.append(StageTimes(epoch, batch, fetch_ns=batch))
        taken, self.facts = self.facts, []
        return taken

    def close(self) -> None:
        self.do("close")


class StagedAdapter(SerialAdapter):
    def stages(self, loader: StagedLoader) -> Fetches | None:
        return Fetches(loader)


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, __name__, StagedAdapter)


def asked(loader: StagedLoader) -> list[str]:
    """What was asked of its stages, but for what they found: a thread asks that at any time."""
    return [what for what in loader.said if what != "take"]


def batches_by_epoch(run: Run) -> dict[int, list[int]]:
    """The batches of each epoch that was looked into."""
    assert (run.stages.fetch_ns == run.stages.batch).all()
    return {epoch: rows.batch.tolist() for epoch, rows in run.stages.by("epoch")}


def missing(run: Run) -> list[str]:
    return [event.message for event in run.events if event.kind == "stages missing"]


def train(loader: Any, clock: FakeClock, epochs: int = 1) -> list[list[Any]]:
    served: list[list[Any]] = []
    for _ in range(epochs):
        served.append([])
        for batch in loader:
            clock.advance(10 * MS)
            served[-1].append(batch)
    return served


@pytest.mark.parametrize("logged", [True, False])
@pytest.mark.parametrize("mode", ["log", "alternate"])
def test_what_is_found_is_in_the_run(tmp_path: Path, mode: str, logged: bool) -> None:
    """Every batch of every epoch is there, in the log as in memory, its moments since the start."""
    loader, path = StagedLoader(60), tmp_path / "run.jsonl" if logged else None
    before_ns = time.perf_counter_ns()
    with LoaderEvaluator(
        loader, mode=mode, stages=True, log_file=path, clock=loader.clock
    ) as evaluator:
        train(evaluator, loader.clock, epochs=2)
    run = evaluator.recorded() if path is None else read_run(path)
    assert batches_by_epoch(run) == {0: list(range(60)), 1: list(range(60))}
    assert [start.epoch for start in run.worker_starts] == [0, 1]
    elapsed_ns = time.perf_counter_ns() - before_ns
    assert all(0 <= start.ready_ns <= elapsed_ns for start in run.worker_starts)
    assert [code.running for code in run.code] == [{"data.py:31 __getitem__": i} for i in range(2)]
    queue = run.readings["loader", "queue"]
    assert ((queue.time_ns >= 0) & (queue.time_ns <= elapsed_ns)).all()
    assert missing(run) == ["no transforms"]
    assert asked(loader) == ["stages", "begin", "epoch 0", "begin", "epoch 1", "close"]


@pytest.mark.parametrize(
    ("options", "is_asked"),
    [
        ({"mode": "alternate"}, True),
        ({"mode": "alternate", "stages": False}, False),
        ({"mode": "log"}, False),
        ({"mode": "log", "stages": True}, True),
        ({"mode": "replay", "replay_after": 8}, False),
    ],
    ids=str,
)
def test_a_loader_is_looked_into_where_it_alternates_or_on_request(
    options: dict[str, Any], is_asked: bool
) -> None:
    loader = StagedLoader(6)
    evaluator = LoaderEvaluator(loader, clock=loader.clock, **options)
    assert train(evaluator, loader.clock, epochs=2)
    evaluator.close()
    assert bool(loader.said) is is_asked
    assert bool(len(evaluator.recorded().stages)) is is_asked


@pytest.mark.parametrize("options", [{"batches": 4}, {"mode": "alternate", "pairs": 1}], ids=str)
def test_a_loader_is_left_alone_where_recording_ends(options: dict[str, Any]) -> None:
    """Within the epoch, which may be endless."""
    loader = StagedLoader(100)
    evaluator = LoaderEvaluator(loader, stages=True, clock=loader.clock, **options)
    for _ in evaluator:
        loader.clock.advance(5 * MS)
        is_left = "close" in loader.said
    assert is_left
    assert asked(loader) == ["stages", "begin", "epoch 0", "close"]


@pytest.mark.parametrize("mode", ["log", "alternate"])
@pytest.mark.parametrize("fails", ["stages", "begin", "epoch", "take", "close"])
def test_what_raises_ends_looking_into_the_loader(tmp_path: Path, fails: str, mode: str) -> None:
    """Whatever it is, one event tells it, and the training goes on."""
    loader, path = StagedLoader(60, fails=fails), tmp_path / "run.jsonl"
    options: dict[str, Any] = {"mode": mode, "stages": True, "log_file": path}
    with LoaderEvaluator(loader, clock=loader.clock, **options) as evaluator:
        assert list(map(sorted, train(evaluator, loader.clock, epochs=3))) == [[*range(60)]] * 3
    run = read_run(path)
    (message,) = (text for text in missing(run) if text != "no transforms")
    assert message.startswith("the loader is not looked into any more (ArithmeticError: ")
    assert (run.closed, run.batches) == (True, 180)
    assert sum(what.startswith(fails) for what in loader.said) == 1
    assert loader.said.count("close") == (fails != "stages")


def test_stages_that_need_no_number_of_an_epoch_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fetches, "begin", lambda self, _: self.do("begin"))  # it returns nothing
    loader = StagedLoader(6)
    evaluator = LoaderEvaluator(loader, stages=True, clock=loader.clock)
    train(evaluator, loader.clock, epochs=2)
    evaluator.close()
    assert missing(evaluator.recorded()) == ["no transforms"]
    assert asked(loader) == ["stages", "begin", "begin", "close"]


@pytest.mark.parametrize("stages", [True, False])
def test_each_backend_is_looked_into(tmp_path: Path, stages: bool) -> None:
    """It is in every epoch of every round, by the numbers that the batches have in its log."""
    clock = FakeClock()
    loaders = {"one": StagedLoader(60), "other": StagedLoader(60)}
    for loader in loaders.values():
        loader.clock = clock
    compare_backends(
        loaders,
        lambda _: clock.advance(10 * MS),
        batches=24,
        rounds=3,
        clock=clock,
        log_dir=tmp_path,
        stages=stages,
    )
    for name, loader in loaders.items():
        run = read_run(tmp_path / f"{name}.jsonl")
        epochs = sorted({*run.steps.epoch.tolist()})
        assert sorted(batches_by_epoch(run)) == (epochs if stages else [])
        assert loader.said.count("close") == stages
