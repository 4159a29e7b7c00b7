"""Probes that hang, lie or raise: the training and its log know nothing of it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadeval import LoaderEvaluator, read_run
from loadeval.core import threads
from loadeval.probes import Probe as BaseProbe

MODES = ("log", "alternate")
BATCHES = list(range(60))


class Probe(BaseProbe):
    """Does something of its own in one of its methods."""

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
    evaluator._measurement.recorder.metrics.tick()
    assert sorted(evaluator) == list(range(2000))
    assert probe.reads == 2
    names = [thread.name for thread in threading.enumerate()]
    assert names.count(threads.PROBES_THREAD) == 1
    evaluator.close()
    assert read_run(path).batches == 2000


def missing(path: Path) -> str:
    (why,) = read_run(path).missing.values()
    return why


def test_a_probe_that_lies_is_not_read_again(tmp_path: Path) -> None:
    lie = {"it": {"level_bytes": 10**400}}
    path, probe = tmp_path / "run.jsonl", Probe("read 2", lambda: lie)
    evaluator = LoaderEvaluator(range(3), log_file=path, probes=[probe], probe_interval_s=1000)
    for _ in evaluator:
        evaluator._measurement.recorder.metrics.tick()
    evaluator.close()
    assert probe.reads == 2
    assert missing(path).startswith("OverflowError")


@pytest.mark.parametrize("value", [1e300, math.nan])
def test_a_number_that_no_log_holds_is_not_known(tmp_path: Path, value: float) -> None:
    path, probe = tmp_path / "run.jsonl", Probe("read", lambda: {"it": {"level_bytes": value}})
    with LoaderEvaluator(range(3), log_file=path, probes=[probe], probe_interval_s=1000) as loader:
        for _ in loader:
            loader._measurement.recorder.metrics.tick()
    run = read_run(path)
    assert run.notes == ()
    assert np.isnan(run.readings["probe", "it"]["level_bytes"]).tolist() == [True] * 3


@pytest.mark.parametrize("error", [SystemExit(3), MemoryError()])
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
        evaluator._measurement.recorder.metrics.tick()
    evaluator.close()
    assert other.reads == 3
    assert read_run(path).closed
    assert where == "close" or missing(path).startswith(type(error).__name__)
