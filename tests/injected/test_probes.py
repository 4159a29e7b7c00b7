"""Probes that hang, lie or raise: the training and its log know nothing of it."""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from loadeval import LoaderEvaluator, read_run
from loadeval.core import threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MODES = ("log", "alternate")
BATCHES = list(range(60))


class Probe:
    """Does something of its own in one of its methods."""

    every = 1

    def __init__(self, where: str, does: Callable[[], Any], name: Any = "probe") -> None:
        self.where, self.does = where, does
        self.name = name
        self.was_asked = threading.Event()
        self.reads = 0

    def open(self) -> None:
        self._do("open")

    def read(self) -> Any:
        self.reads += 1
        answer = self._do("read") or self._do(f"read {self.reads}")
        return {"it": {"level_bytes": 1.0}} if answer is None else answer

    def close(self) -> None:
        self._do("close")

    def _do(self, where: str) -> Any:
        if where != self.where:
            return None
        self.was_asked.set()
        return self.does()


def slowly(batches: list[int]) -> Iterator[int]:
    for batch in batches:
        time.sleep(0.0005)
        yield batch


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """What a probe that hangs does, until its test is over."""
    monkeypatch.setattr(threads, "LONGEST_JOIN_S", 0.01)
    monkeypatch.setattr(threads, "LONGEST_MARK_S", 0.01)
    # Another thread's reading, which this waits for too, may be kept from its CPU for a while.
    monkeypatch.setattr(threads, "LONGEST_CLOSE_S", 0.2)
    over = threading.Event()

    def hang() -> None:
        over.wait()

    yield hang
    over.set()
    for thread in threading.enumerate():
        if thread.name == threads.PROBES_THREAD:
            thread.join(20)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("where", ["open", "read", "read 2", "close"])
def test_a_probe_that_hangs(
    tmp_path: Path, hanging: Callable[[], None], where: str, mode: str
) -> None:
    """Epochs and close() end all the same."""
    path, probe = tmp_path / "run.jsonl", Probe(where, hanging)
    evaluator = LoaderEvaluator(
        lambda: slowly(BATCHES), mode, log_file=path, probes=[probe], probe_interval_s=0.001
    )
    for _ in range(3):
        assert sorted(evaluator) == BATCHES
    evaluator.close()
    assert probe.was_asked.wait(20)
    run = read_run(path)
    assert (run.closed, run.batches) == (True, 180)


def test_a_probe_that_hangs_at_the_edge_of_a_block(
    tmp_path: Path, hanging: Callable[[], None]
) -> None:
    """There training waits for a reading, though not for long, and only once."""
    path, probe = tmp_path / "run.jsonl", Probe("read 2", hanging)
    evaluator = LoaderEvaluator(
        range(2000), "alternate", log_file=path, probes=[probe], probe_interval_s=1000
    )
    evaluator._measurement.recorder._metrics.tick()
    assert sorted(evaluator) == list(range(2000))
    assert probe.reads == 2
    evaluator.close()
    assert read_run(path).batches == 2000


def test_one_that_hangs_is_not_called_by_another_thread(hanging: Callable[[], None]) -> None:
    probe = Probe("read", hanging)
    clock = iter(range(10**9)).__next__
    reader = threads.MetricsReader(
        threads.Probes((probe,), 1), clock, 0, threads.BackgroundThreads()
    )
    threads.within(0, threads.PROBES_THREAD, reader.tick)
    assert probe.was_asked.wait(20)
    reader.tick()
    reader.mark()
    reader.close()
    assert (probe.reads, reader.take()) == (1, [])


def missing(path: Path) -> str:
    (why,) = read_run(path).missing.values()
    return why


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        ("no mapping", "AttributeError"),
        ([1, 2], "AttributeError"),
        ({1: {"level_bytes": 1}}, "TypeError: 1 is the name"),
        ({None: "gone"}, "TypeError: None is the name"),
        ({"it": {("a", "b"): 1}}, "TypeError: ('a', 'b') is the name"),
        ({"it": {"level_bytes": "much"}}, "ValueError"),
        ({"it": {"level_bytes": 10**400}}, "OverflowError"),
        ({"it": {"level_bytes": {}}}, "TypeError"),
    ],
)
def test_a_probe_that_lies_is_not_read_again(tmp_path: Path, lie: Any, reason: str) -> None:
    """The log says why, and reads."""
    path, probe = tmp_path / "run.jsonl", Probe("read 2", lambda: lie)
    evaluator = LoaderEvaluator(range(3), log_file=path, probes=[probe], probe_interval_s=1000)
    for _ in evaluator:
        evaluator._measurement.recorder._metrics.tick()
    evaluator.close()
    assert probe.reads == 2
    assert missing(path).startswith(reason)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1e300, True])
def test_odd_numbers_of_a_probe_can_be_read(tmp_path: Path, value: float) -> None:
    """What is not finite is not known."""
    probe = Probe("read", lambda: {"\ud800\n": {"\x00": value}})
    evaluator = LoaderEvaluator(
        range(2), log_file=tmp_path / "run.jsonl", probes=[probe], probe_interval_s=1000
    )
    for _ in evaluator:
        evaluator._measurement.recorder._metrics.tick()
    evaluator.close()
    (table,) = read_run(tmp_path / "run.jsonl").readings.values()
    assert len(table) == 2


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), MemoryError(), Warning("x")])
@pytest.mark.parametrize("where", ["open", "read", "close"])
def test_whatever_a_probe_raises_ends_it_alone(
    tmp_path: Path, error: BaseException, where: str
) -> None:
    def fails() -> None:
        raise error

    path, other = tmp_path / "run.jsonl", Probe("", lambda: None)
    probes = [Probe(where, fails, "bad"), other]
    evaluator = LoaderEvaluator(range(3), log_file=path, probes=probes, probe_interval_s=1000)
    for _ in evaluator:
        evaluator._measurement.recorder._metrics.tick()
    evaluator.close()
    assert other.reads == 3
    assert read_run(path).closed
    assert where == "close" or missing(path).startswith(type(error).__name__)


class Unnamed(Probe):
    """Says no name, and is equal to nothing."""

    @property
    def name(self) -> Any:
        raise LookupError("no name")

    @name.setter
    def name(self, name: Any) -> None: ...

    def __eq__(self, other: object) -> bool:
        raise LookupError("no equal")

    __hash__ = None  # type: ignore[assignment]  # as of what has only __eq__


def test_a_probe_without_a_name(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    evaluator = LoaderEvaluator(range(3), log_file=path, probes=(), probe_interval_s=1000)
    metrics = evaluator._measurement.recorder._metrics
    metrics._waiting = [Unnamed("", lambda: None), Probe("", lambda: None, name=3)]
    for _ in evaluator:
        metrics.tick()
    evaluator.close()
    assert sorted(read_run(path).missing.values()) == [
        "LookupError: no name",
        "TypeError: its name is 3, where text was expected",
    ]
