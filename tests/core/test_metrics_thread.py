"""What probes read: tick by tick, whatever they do, and as part of a run."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from loadeval import LoaderEvaluator, read_run
from loadeval.core.threads import BackgroundThreads, MetricsReader
from loadeval.data.lines import Readings
from loadeval.data.run import Run
from loadeval.errors import UNGUARDED
from loadeval.probes import Probe
from loadeval.testing import FakeClock, ScriptedLoader

ORIGIN_NS = 1_000


class Script(Probe):
    """A probe that reads what it is told."""

    def __init__(self, *answers: Any, name: str = "script", every: int = 1) -> None:
        self.name = name
        self.every = every
        self.answers = list(answers)
        self.did: list[str] = []
        self.was_read = threading.Event()

    def open(self) -> None:
        self.did.append("open")

    def read(self) -> Mapping[str, Mapping[str, float | None] | str]:
        self.did.append("read")
        self.was_read.set()
        if not self.answers:
            return {"it": {"level_bytes": 1}}
        return cast("dict[str, dict[str, float | None] | str]", self.answers.pop(0))

    def close(self) -> None:
        self.did.append("close")


def reader(*probes: Script) -> tuple[MetricsReader, FakeClock]:
    """A reader that is ticked by hand, and its clock."""
    clock = FakeClock(ORIGIN_NS)
    return MetricsReader(probes, 1000, clock, clock.now_ns, BackgroundThreads(UNGUARDED)), clock


def plain_values(taken: list[Readings]) -> list[Any]:
    """What was taken, as plain values."""
    rows: list[Any] = []
    for item in taken:
        missing = () if item.missing is None else (item.missing,)
        rows.append((item.probe, item.subject, item.time_ns, item.values, *missing))
    return rows


def test_a_probe_may_be_read_at_every_so_manieth_tick() -> None:
    """One with `every` 3 is opened at the first tick, and read at the first, fourth, seventh."""
    it, clock = reader(Script(every=3), Script(name="always"))
    for _ in range(8):
        it.tick()
        clock.advance(1)
    (slow, always) = (row[2] for row in plain_values(it.take()))
    assert slow == [0, 3, 6]
    assert always == list(range(8))


def test_one_subject_may_end_and_others_go_on() -> None:
    """Text in the place of its quantities is why; the probe is read as before."""
    probe = Script(
        {"GPU 0": {"x_s": 1}, "GPU 1": {"x_s": 2}},
        {"GPU 0": "GPU is lost", "GPU 1": {"x_s": 3}},
        {"GPU 1": {"x_s": 4}},
    )
    it, clock = reader(probe)
    for _ in range(3):
        it.tick()
        clock.advance(10)
    assert plain_values(it.take()) == [
        ("script", "GPU 0", [0], {"x_s": [1]}),
        ("script", "GPU 1", [0, 10, 20], {"x_s": [2, 3, 4]}),
        ("script", "GPU 0", [], {}, "GPU is lost"),
    ]


MILLISECOND = 1_000_000


def counting() -> Script:
    """A probe that reads 1, 2, 3 and so on."""
    return Script(*({"it": {"count_items": 1 + n}} for n in range(1000)), name="counting")


def evaluator_with(probe: Script, **options: Any) -> tuple[LoaderEvaluator, FakeClock]:
    """An evaluator of four batches, 10 ns each, whose probes are read by hand."""
    clock = FakeClock()
    loader = ScriptedLoader(range(4), [10] * 4, clock)
    options = {"probe_interval_s": 1000, **options}
    return LoaderEvaluator(loader, clock=clock, probes=(probe,), **options), clock


def tick(evaluator: LoaderEvaluator) -> None:
    evaluator._measurement.recorder.metrics.tick()


def read(run: Run) -> tuple[list[int], list[float]]:
    """When the one subject was read, and what, beside the threads of a run that looks inside."""
    (table,) = (
        table for (probe, subject), table in run.readings.items() if subject and probe != "threads"
    )
    return table.time_ns.tolist(), table["count_items"].tolist()


@pytest.mark.parametrize("logged", [True, False])
def test_what_was_read_is_in_the_run(tmp_path: Path, logged: bool) -> None:
    path = tmp_path / "run.jsonl"
    evaluator, clock = evaluator_with(counting(), log_file=path if logged else None)
    for batch in evaluator:
        clock.advance(5)
        tick(evaluator)
        if batch == 1:
            assert read(evaluator.recorded()) == ([15, 30], [1, 2])
    evaluator.close()
    expected: Any = [15, 30, 45, 60], [1, 2, 3, 4]
    assert read(evaluator.recorded()) == expected
    evaluator.save_metrics(tmp_path / "metrics.json")
    assert read(read_run(tmp_path / "metrics.json")) == expected
    if logged:
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        logged_readings = [
            (line["time_ns"], line["values"]) for line in lines if line["type"] == "readings"
        ]
        assert logged_readings == [
            ([15, 30], {"count_items": [1, 2]}),
            ([45, 60], {"count_items": [3, 4]}),
        ]
        assert read(read_run(path)) == expected


def test_a_thread_reads_while_an_epoch_is_served() -> None:
    """It begins when a reading is due and ends with the epoch; a probe stays open until close()."""
    probe = counting()
    evaluator, clock = evaluator_with(probe, probe_interval_s=0.001)
    for epoch in range(2):
        for batch in evaluator:
            assert reading() == (epoch > 0 or batch > 0)
            assert not reading() or probe.was_read.wait(20)
            clock.advance(MILLISECOND)
        probe.was_read.clear()
        assert not reading()
        clock.advance(MILLISECOND)
    evaluator.close()
    reads = len(read(evaluator.recorded())[0])
    assert probe.did == ["open", *["read"] * reads, "close"]


def reading() -> bool:
    """Whether a thread reads probes."""
    return any(thread.name == "loadeval-probes" for thread in threading.enumerate())


def test_an_alternating_run_is_read_at_the_edges_of_its_blocks() -> None:
    """What is read within a block is about nothing else."""
    clock = FakeClock()
    loader = ScriptedLoader(range(80), [10] * 80, clock)
    evaluator = LoaderEvaluator(
        loader, "alternate", probes=(counting(),), probe_interval_s=1000, clock=clock
    )
    for batch in evaluator:
        clock.advance(5)
        if batch == 0:
            tick(evaluator)  # opens it
    run = evaluator.recorded()
    times, _ = read(run)
    counted = run.steps.pair >= 0
    begins = run.steps.request_ns[counted]
    edges = begins[
        np.append(True, np.diff(run.steps.pair[counted] * 2 + run.steps.arm[counted]) != 0)
    ]
    assert set(edges.tolist()) <= set(times)
