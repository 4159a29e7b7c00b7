"""Named ranges around waits and steps: torch's in its traces, NVTX by what stands in for it."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function

from loadeval import LoaderEvaluator, UsageError
from loadeval.data.run import ARMS


class Trace:
    """What torch's profiler recorded of loadeval's ranges, and of those it was asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.profiler = profile(activities=[ProfilerActivity.CPU])

    def stop(self) -> None:
        self.profiler.stop()
        self.profiler.export_chrome_trace(str(self.path))

    def ranges(self, start: str = "loadeval.") -> list[tuple[str, float, float]]:
        """Name, begin and end of each, in the order of their beginning."""
        events = json.loads(self.path.read_text())["traceEvents"]
        selected = [event for event in events if event["name"].startswith(start)]
        selected.sort(key=lambda event: event["ts"])
        return [(event["name"], event["ts"], event["ts"] + event["dur"]) for event in selected]

    def names(self) -> list[str]:
        return [name for name, _, _ in self.ranges()]

    def open_at(self, mark: str) -> list[str]:
        """The names of our ranges that were open when `mark` was recorded."""
        ((_, begin, end),) = self.ranges(mark)
        return [name for name, first, last in self.ranges() if first <= begin and end <= last]


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    trace = Trace(tmp_path / "trace.json")
    trace.profiler.start()
    return trace


def pairs_of(arm: str, batches: int) -> list[str]:
    """The ranges of an epoch that is served to its end."""
    return [f"loadeval.wait {arm}", f"loadeval.step {arm}"] * batches + [f"loadeval.wait {arm}"]


@pytest.mark.parametrize(("mode", "arm"), [("log", "real"), ("replay", "ideal")])
def test_each_batch_has_a_wait_and_a_step(trace: Trace, mode: Any, arm: str) -> None:
    """They come in turn, with a last wait for the request that ends the epoch; in a copy too."""
    evaluator = LoaderEvaluator(range(4), mode, annotate="torch")
    list(evaluator)
    list(copy.copy(evaluator))
    trace.stop()
    assert trace.names() == 2 * pairs_of(arm, 4)
    assert [end.cause for end in evaluator.recorded().ends] == ["exhausted"]


def test_alternate_has_the_ranges_of_each_batch_under_its_arm(trace: Trace) -> None:
    evaluator = LoaderEvaluator(range(60), "alternate", annotate="torch", probes=())
    assert list(evaluator) == list(range(60))
    trace.stop()
    steps = evaluator.recorded().steps
    counts = Counter(trace.names())
    for number, arm in enumerate(ARMS):
        assert counts[f"loadeval.step {arm}"] == np.count_nonzero(steps.arm == number) > 0
        assert counts[f"loadeval.wait {arm}"] - counts[f"loadeval.step {arm}"] in {0, 1}


def mark(name: str) -> None:
    with record_function(name):
        torch.zeros(1)


@pytest.mark.parametrize("mode", ["log", "replay", "alternate"])
def test_an_epoch_that_is_broken_off_ends_its_step(trace: Trace, mode: str) -> None:
    evaluator = LoaderEvaluator(range(4), mode, annotate="torch", probes=())
    for _ in evaluator:
        break
    mark("after")
    assert [end.cause for end in evaluator.recorded().ends] == ["broken off"]
    assert len(list(evaluator)) == 4
    trace.stop()
    assert trace.open_at("after") == []
    steps = [name for name in trace.names() if "step" in name]
    assert len(steps) == len(evaluator.recorded().steps) == 5


def test_an_exception_or_a_dropped_iterator_ends_the_step(trace: Trace) -> None:
    evaluator = LoaderEvaluator(range(4), annotate="torch")

    def train() -> None:
        for number in evaluator:
            number / 0

    with pytest.raises(ZeroDivisionError):
        train()
    mark("raised")
    epoch: Any = iter(evaluator)
    next(epoch)
    mark("held")
    del epoch
    mark("dropped")
    trace.stop()
    assert trace.names() == pairs_of("real", 1)[:2] * 2
    opened = [trace.open_at(name) for name in ("raised", "held", "dropped")]
    assert opened == [[], ["loadeval.step real"], []]


def test_a_profiler_that_stops_ends_what_is_open(trace: Trace) -> None:
    for number in LoaderEvaluator(range(4), annotate="torch"):
        if number == 1:
            trace.stop()
    assert trace.names() == pairs_of("real", 2)[:-1]


def test_a_profiler_that_starts_in_a_step_records_from_the_next_wait_on(tmp_path: Path) -> None:
    """A profiler with a schedule does so in its `step()`."""
    trace = Trace(tmp_path / "trace.json")
    for number in LoaderEvaluator(range(4), annotate="torch"):
        if number == 1:
            trace.profiler.start()
    trace.stop()
    assert trace.names() == pairs_of("real", 2)


ITERATIONS = """
import torch
from torch.profiler import ProfilerActivity, profile, schedule
from loadeval import LoaderEvaluator

plan = schedule(wait=0, warmup=0, active=2, repeat=100)
with profile(activities=[ProfilerActivity.CPU], schedule=plan) as profiler:
    for batch in LoaderEvaluator([torch.zeros(4)] * 300, annotate="torch"):
        for _ in range(20):
            (batch + 1).sum()
        profiler.step()
"""


@pytest.mark.check
def test_profilers_may_follow_each_other_within_steps() -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", ITERATIONS], check=False)
    assert done.returncode == 0


def test_a_torch_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UsageError, match=r"needs torch 2\.1 or later.*install it"):
        LoaderEvaluator([1], annotate="torch")


class Ranges:
    """Stands for torch.cuda.nvtx, which only a torch that is built for CUDA has."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended: list[int] = []

    def range_start(self, name: str) -> int:
        self.begun.append(name)
        return len(self.begun) - 1

    def range_end(self, number: int) -> None:
        self.ended.append(number)


@pytest.fixture(name="ranges")
def _ranges(monkeypatch: pytest.MonkeyPatch) -> Ranges:
    """Those of a torch that is built for CUDA."""
    ranges = Ranges()
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "nvtx", ranges)
    return ranges


@pytest.mark.parametrize("mode", ["log", "replay", "alternate"])
def test_every_range_of_nvtx_that_begins_ends(mode: str, ranges: Ranges) -> None:
    evaluator = LoaderEvaluator(range(4), mode, annotate="nvtx", probes=())
    assert len(list(evaluator)) == 4
    for _ in evaluator:
        break
    assert sorted(ranges.ended) == list(range(len(ranges.begun)))
    assert sum(name.startswith("loadeval.step") for name in ranges.begun) == 5


@pytest.mark.parametrize("imported", [True, False])
def test_without_nvtx_an_error_says_what_is_needed(
    imported: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not imported:
        monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(UsageError, match="needs a torch that is built for CUDA"):
        LoaderEvaluator([1], annotate="nvtx")
