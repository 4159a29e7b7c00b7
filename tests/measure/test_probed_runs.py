"""What probes read is part of the run, in its log and in memory."""

from __future__ import annotations

import json
import os
import threading
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval import LoaderEvaluator, read_run
from loadeval.errors import ProbeError, UsageError
from loadeval.runtime.metrics_thread import BackgroundThreads, MetricsReader, Probes
from loadeval.testing import FakeClock, ScriptedLoader

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from loadeval.runlog.model import Run

MILLISECOND = 1_000_000


class Counting:
    """A probe that reads 1, 2, 3 …; at `last` it ends."""

    name = "counting"
    every = 1

    def __init__(self, last: int = 1000) -> None:
        self.last = last
        self.reads = 0
        self.did: list[str] = []
        self.was_read = threading.Event()

    def open(self) -> None:
        self.did.append("open")

    def read(self) -> Mapping[str, Mapping[str, float | None]]:
        self.reads += 1
        self.was_read.set()
        if self.reads > self.last:
            raise ProbeError("it has counted enough")
        return {"it": {"count_items": self.reads}}

    def close(self) -> None:
        self.did.append("close")


def evaluator_with(probe: Counting, **options: Any) -> tuple[LoaderEvaluator, FakeClock]:
    """An evaluator of four batches, 10 ns each, whose sampler is ticked by hand."""
    clock = FakeClock()
    loader = ScriptedLoader(range(4), [10] * 4, clock)
    options = {"probe_interval_s": 1000, **options}
    return LoaderEvaluator(loader, clock=clock, probes=(probe,), **options), clock


def sampler_of(evaluator: LoaderEvaluator) -> MetricsReader:
    return evaluator._measurement.recorder._metrics


def read(run: Run) -> tuple[list[int], list[float]]:
    """When the one subject was read, and what."""
    (found,) = (readings for readings in run.readings if readings.subject)
    return found.time_ns.tolist(), found.values["count_items"].tolist()


@pytest.mark.parametrize("logged", [True, False])
def test_what_was_read_is_in_the_run(tmp_path: Path, logged: bool) -> None:
    """With and without a log, each reading is there with its time, before and after close()."""
    path = tmp_path / "run.jsonl" if logged else None
    evaluator, clock = evaluator_with(Counting(), log_file=path)
    for _ in evaluator:
        clock.advance(5)
        sampler_of(evaluator).tick()
        assert len(read(evaluator.recorded())[0]) == sampler_of(evaluator)._ticks
    evaluator.close()
    assert read(evaluator.recorded()) == ([15, 30, 45, 60], [1, 2, 3, 4])


def test_a_log_has_lines_of_readings(tmp_path: Path) -> None:
    """What was read since the last line is one line, in columns."""
    path = tmp_path / "run.jsonl"
    evaluator, clock = evaluator_with(Counting(), log_file=path)
    for batch in evaluator:
        clock.advance(5)
        sampler_of(evaluator).tick()
        if batch == 1:
            evaluator.recorded()
    evaluator.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    told = [(line["time_ns"], line["values"]) for line in lines if line["type"] == "readings"]
    assert told == [([15, 30], {"count_items": [1, 2]}), ([45, 60], {"count_items": [3, 4]})]
    assert read(read_run(path)) == ([15, 30, 45, 60], [1, 2, 3, 4])


def test_a_probe_that_ends_in_a_run_is_told_in_the_run(tmp_path: Path) -> None:
    """Its readings until then, the reason, and an event with its time; batches go on."""
    evaluator, clock = evaluator_with(Counting(last=2), log_file=tmp_path / "run.jsonl")
    for _ in evaluator:
        clock.advance(5)
        sampler_of(evaluator).tick()
    evaluator.close()
    run = read_run(tmp_path / "run.jsonl")
    assert len(run.steps) == 4
    assert read(run) == ([15, 30], [1, 2])
    assert [(found.subject, found.missing) for found in run.readings] == [
        ("it", None),
        ("", "it has counted enough"),
    ]
    (event,) = run.events
    assert event.time_ns == 45
    assert event.message == "readings of the counting ended: it has counted enough"


def test_a_thread_reads_while_an_epoch_is_served() -> None:
    """It begins when a reading is due and ends with the epoch; a probe stays open until close()."""
    probe = Counting()
    evaluator, clock = evaluator_with(probe, probe_interval_s=0.001)
    for epoch in range(2):
        for batch in evaluator:
            assert reading() == (epoch > 0 or batch > 0)
            assert not reading() or probe.was_read.wait(20)
            clock.advance(MILLISECOND)
        probe.was_read.clear()
        assert not reading()
    assert probe.did == ["open"]
    evaluator.close()
    assert probe.did == ["open", "close"]
    assert len(read(evaluator.recorded())[0]) == probe.reads


def test_epochs_shorter_than_an_interval_are_read_too() -> None:
    """Once an interval has passed since the first of them."""
    probe = Counting()
    evaluator, clock = evaluator_with(probe, probe_interval_s=0.001)
    for epoch in range(4):
        for _ in evaluator:
            clock.advance(MILLISECOND // 10)
            assert reading() == (epoch == 3)
            assert not reading() or probe.was_read.wait(20)


def test_an_epoch_begins_without_a_thread() -> None:
    """Even if a reading is due, for the loader may fork its workers there."""
    probe = Counting()
    threads = []

    def loader() -> Iterator[int]:
        threads.append(reading())
        yield from range(3)

    clock = FakeClock()
    evaluator = LoaderEvaluator(loader, clock=clock, probes=(probe,), probe_interval_s=0.001)
    for _ in range(2):
        for _ in evaluator:
            clock.advance(MILLISECOND)
    assert threads == [False, False]
    assert probe.reads > 0


def reading() -> bool:
    """Whether a thread reads probes."""
    return any(thread.name == "loadeval-probes" for thread in threading.enumerate())


def test_a_sampler_reads_until_it_is_stopped() -> None:
    """It begins once an interval has passed, with one thread; after stop() there is none."""
    probe, clock = Counting(), FakeClock()
    threads = BackgroundThreads()
    sampler = MetricsReader(Probes((probe,), 0.001), clock, 0, threads)
    sampler.start_when_due()
    assert not reading()
    for _ in range(2):
        clock.advance(MILLISECOND)
        sampler.start_when_due()
        sampler.start_when_due()
        assert sum(thread.name == "loadeval-probes" for thread in threading.enumerate()) == 1
        assert probe.was_read.wait(20)
        threads.stop()
        threads.stop()
        assert not reading()
        probe.was_read.clear()
    assert probe.did == ["open"]


def test_with_nothing_to_read_there_is_no_thread() -> None:
    """Neither without probes, nor once every probe has ended."""
    clock = FakeClock()
    threads = BackgroundThreads()
    empty, ended = (
        MetricsReader(Probes(probes, 1), clock, 0, threads) for probes in ((), (Counting(0),))
    )
    ended.tick()
    for sampler in (empty, ended):
        for _ in range(2):
            sampler.start_when_due()
            clock.advance(1000 * MILLISECOND)
        assert not reading()


@pytest.mark.parametrize("interval_s", [0, -1, float("nan")])
def test_an_interval_is_more_than_nothing(interval_s: float) -> None:
    """Seconds that cannot pass are an error, which says how to have no readings."""
    with pytest.raises(UsageError, match=r"probe_interval_s is .*; pass probes=\(\) to record no"):
        evaluator_with(Counting(), probe_interval_s=interval_s)


def test_nothing_is_read_after_close() -> None:
    """What is served unmeasured is not watched either."""
    probe = Counting()
    evaluator, _ = evaluator_with(probe)
    for _ in evaluator:
        sampler_of(evaluator).tick()
        evaluator.close()
        sampler_of(evaluator).tick()
        assert not reading()
    assert probe.reads == 1
    assert read(evaluator.recorded())[1] == [1]


def test_a_child_reads_nothing() -> None:
    """In a forked process nothing is read; in the parent reading goes on."""
    probe = Counting()
    evaluator, _ = evaluator_with(probe)
    for _ in evaluator:
        sampler_of(evaluator).tick()
    child = get_context("fork").Process(target=_serve_in_child, args=(evaluator,))
    child.start()
    child.join()
    assert child.exitcode == 0
    for _ in evaluator:
        sampler_of(evaluator).tick()
    assert read(evaluator.recorded())[1] == list(range(1, 9))


def _serve_in_child(evaluator: LoaderEvaluator) -> None:
    for _ in evaluator:
        assert not reading()
    assert evaluator.recorded().readings == ()
    evaluator.close()


def test_seen_from_another_process_there_is_no_sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    """An epoch that begins after a fork leaves the parent's probes alone."""
    probe = Counting()
    evaluator, _ = evaluator_with(probe)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert list(evaluator) == [0, 1, 2, 3]
    assert (probe.reads, evaluator.recorded().readings) == (0, ())


def test_a_saved_run_keeps_its_readings(tmp_path: Path) -> None:
    """The metrics file has them as the log has."""
    evaluator, clock = evaluator_with(Counting(last=3))
    for _ in evaluator:
        clock.advance(5)
        sampler_of(evaluator).tick()
    evaluator.close()
    evaluator.save_metrics(tmp_path / "metrics.json")
    run = read_run(tmp_path / "metrics.json")
    assert read(run) == ([15, 30, 45], [1, 2, 3])
    assert [found.missing for found in run.readings] == [None, "it has counted enough"]


def test_an_alternating_run_is_read_at_the_edges_of_its_blocks() -> None:
    """So that what is read within a block is about nothing else."""
    clock = FakeClock()
    loader = ScriptedLoader(range(80), [10] * 80, clock)
    evaluator = LoaderEvaluator(
        loader, "alternate", probes=(Counting(),), probe_interval_s=1000, clock=clock
    )
    for batch in evaluator:
        clock.advance(5)
        if batch == 0:
            sampler_of(evaluator).tick()  # opens it
    run = evaluator.recorded()
    times, _ = read(run)
    counted = run.steps.pair >= 0
    begins = run.steps.request_ns[counted]
    edges = begins[
        np.append(True, np.diff(run.steps.pair[counted] * 2 + run.steps.arm[counted]) != 0)
    ]
    assert set(edges.tolist()) <= set(times)
