"""One batch in N in detail, and exact totals of all."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval import LoaderEvaluator, read_run
from loadeval.analysis.estimate.summary import Summary, summarise
from loadeval.runlog.columns import UNKNOWN
from loadeval.runlog.histogram import bin_of
from loadeval.runlog.log_file.writer import metrics_of
from loadeval.runlog.model import GpuIdle, longest_aggregate_ns
from loadeval.runtime.recording.thinning import gpu_idle_of
from loadeval.runtime.serving.loop import CHUNK
from loadeval.testing import FakeClock, ScriptedLoader

if TYPE_CHECKING:
    from pathlib import Path

    from loadeval.runlog.model import Run

MS = 1_000_000
SECOND = 1_000 * MS
EVERY = 100
FIGURES = [field.name for field in fields(Summary) if field.name != "waits"]


def trained(
    every: int, path: Path | None = None, *, leave: int | None = None, epochs: int = 3
) -> Run:
    """Epochs of 1000 batches with a heavy tail; of the second one `leave` more after the first."""
    random = np.random.default_rng(0)
    waits_ns = (random.pareto(2, 1_000) * 5 * MS).astype(int).tolist()
    steps_ns = random.integers(5 * MS, 20 * MS, 1_000).tolist()
    clock = FakeClock(7)
    batches = [np.zeros((4, 2), np.uint8)] * 999 + [np.zeros((1, 2), np.uint8)]
    loader = ScriptedLoader(batches, waits_ns, clock)
    options: dict[str, Any] = {"every": every, "log_file": path, "probes": (), "warmup": 3}
    with LoaderEvaluator(loader, clock=clock, **options) as evaluator:
        for epoch in range(epochs):
            for number, _ in enumerate(evaluator):
                clock.advance(steps_ns[number])
                if epoch == 1 and number == leave:
                    break
    return evaluator.recorded()


@pytest.mark.parametrize("leave", [None, 0, 1, 2, 3, 99, 100, 777])
@pytest.mark.parametrize("logged", [False, True], ids=["in memory", "in a log"])
def test_figures_are_those_of_all_batches(tmp_path: Path, leave: int | None, logged: bool) -> None:
    """Sums, rates, means, extremes and epoch starts are equal, however it ends."""
    whole = trained(1, leave=leave)
    thinned = trained(EVERY, tmp_path / "run.jsonl" if logged else None, leave=leave)
    expected, actual = summarise(whole), summarise(thinned)
    for name in FIGURES:
        assert getattr(actual, name) == getattr(expected, name), name
    for name in ("mean_ns", "max_ns"):
        assert getattr(actual.waits, name) == getattr(expected.waits, name)
    of_whole, of_thinned = metrics_of(whole), metrics_of(thinned)
    of_whole.pop("batch_times")
    assert len(of_thinned.pop("batch_times")) == len(thinned.steps)
    assert of_thinned == of_whole


def test_quantiles_are_in_the_bin_of_the_right_ones() -> None:
    """A sixteenth of the value away, at most."""
    expected, actual = summarise(trained(1)).waits, summarise(trained(EVERY)).waits
    for name in ("p50_ns", "p95_ns", "p99_ns"):
        assert getattr(actual, name) == pytest.approx(getattr(expected, name), rel=1 / 16)


def test_kept_batches_are_those_of_the_whole_run(tmp_path: Path) -> None:
    whole = trained(1, leave=250).steps
    thinned = trained(EVERY, tmp_path / "run.jsonl", leave=250).steps
    rows = whole.batch % EVERY == 0
    assert thinned.batch.tolist() == whole.batch[rows].tolist()
    for name in ("epoch", "request_ns", "wait_ns", "step_ns", "samples", "nbytes"):
        assert getattr(thinned, name).tolist() == getattr(whole, name)[rows].tolist()


def test_aggregates_have_every_batch_once() -> None:
    """They follow on one another, part at the warm-up, and tell of their slowest batch."""
    whole, thinned = trained(1).steps, trained(EVERY)
    for epoch in range(3):
        aggregates = [aggregate for aggregate in thinned.aggregates if aggregate.epoch == epoch]
        ends = np.cumsum([aggregate.batches for aggregate in aggregates])
        assert [aggregate.first for aggregate in aggregates] == [0, *ends.tolist()[:-1]]
        assert ends[-1] == 1_000
        assert 3 in ends
        for aggregate in aggregates:
            rows = np.flatnonzero(whole.epoch == epoch)
            rows = rows[aggregate.first : aggregate.first + aggregate.batches]
            for name in ("wait", "step"):
                bins = getattr(aggregate, f"{name}_bins")
                repeated = np.repeat(bins, getattr(aggregate, f"{name}_counts"))
                assert (
                    repeated.tolist()
                    == np.sort(bin_of(getattr(whole, f"{name}_ns")[rows])).tolist()
                )
            slowest = rows[np.argmax((whole.wait_ns + whole.step_ns)[rows])]
            assert aggregate.slowest_batch == whole.batch[slowest]
            for name in ("request_ns", "wait_ns", "step_ns"):
                assert getattr(aggregate, f"slowest_{name}") == getattr(whole, name)[slowest]


def test_a_run_that_goes_on_is_whole_so_far(tmp_path: Path) -> None:
    clock = FakeClock()
    loader = ScriptedLoader([0] * 10, [3] * 10, clock)
    path = tmp_path / "run.jsonl"
    with LoaderEvaluator(loader, every=4, log_file=path, clock=clock) as evaluator:
        for number, _ in enumerate(evaluator):
            run = evaluator.recorded()
            assert run.batches == number + 1
            assert run.steps.batch.tolist() == list(range(0, number + 1, 4))
            assert metrics_of(run)["total_time"] == pytest.approx((8 * number + 3) / 1e9)
            clock.advance(5)
    assert read_run(path).batches == 10
    assert summarise(read_run(path)).iteration_ns == 8.0


def test_closing_in_the_middle_of_an_epoch_keeps_all(tmp_path: Path) -> None:
    """What was held back until its step is known is written by then."""
    evaluator = LoaderEvaluator(range(10), every=4, log_file=tmp_path / "run.jsonl")
    epoch = iter(evaluator)
    assert [next(epoch) for _ in range(5)] == [0, 1, 2, 3, 4]
    evaluator.close()
    run = read_run(tmp_path / "run.jsonl")
    assert (run.batches, run.closed, run.steps.batch.tolist()) == (5, True, [0, 4])
    assert run.steps.step_ns[-1] == UNKNOWN
    assert list(epoch) == [5, 6, 7, 8, 9]


def test_two_epochs_at_once_have_their_own_totals(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with LoaderEvaluator(range(5), every=2, log_file=path) as evaluator:
        for _ in evaluator:
            for _ in evaluator:
                pass
    run = read_run(path)
    assert run.batches == 30
    assert run.steps.batch.tolist() == [0, 2, 4] * 6


def test_an_epoch_that_fails_keeps_its_last_step() -> None:
    clock = FakeClock()
    loader = ScriptedLoader([0, 1, OSError("no")], [3, 3, 3], clock)
    evaluator = LoaderEvaluator(loader, every=2, clock=clock)
    epoch = iter(evaluator)
    for _ in range(2):
        next(epoch)
        clock.advance(5)
    with pytest.raises(OSError, match="no"):
        next(epoch)
    assert [aggregate.step_ns for aggregate in evaluator.recorded().aggregates] == [5, 5]


def test_an_epoch_without_a_batch_has_no_aggregate() -> None:
    with pytest.warns(match="the loader gave no batch"):
        evaluator = LoaderEvaluator([], every=2)
        list(evaluator)
    run = evaluator.recorded()
    assert (run.aggregates, len(run.steps), len(run.ends)) == ((), 0, 1)
    assert metrics_of(run) == {}
    assert summarise(run).waits is None


@pytest.mark.check
def test_a_million_batches_are_a_small_file(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with LoaderEvaluator(range(1_000_000), every=1_000, log_file=path, probes=()) as evaluator:
        for _ in evaluator:
            pass
    assert path.stat().st_size < 100_000
    run = read_run(path)
    assert (run.batches, len(run.steps)) == (1_000_000, 1_000)
    assert summarise(run).steady_batches == 999_999


def test_without_a_log_memory_is_thinned_too() -> None:
    evaluator = LoaderEvaluator(range(20 * CHUNK), every=1_000, probes=())
    for _ in evaluator:
        pass
    run = evaluator.recorded()
    assert len(run.steps) == math.ceil(20 * CHUNK / 1_000)
    assert len(run.aggregates) < 20


def test_a_log_without_thinning_is_as_ever(tmp_path: Path) -> None:
    """every=1 writes blocks under version 1, and nothing of thinning."""
    path = tmp_path / "run.jsonl"
    trained(1, path)
    text = path.read_text()
    assert '"version":1,' in text
    for word in ("every", "excerpt", "aggregate", '"batch"'):
        assert word not in text


def test_aggregates_grow_with_the_run() -> None:
    """They go from 1 s over 1 min to a thousandth of the run: a few thousand in three months."""
    seconds = (0, 20, 600, 59_000, 10**6)
    longest_s = [longest_aggregate_ns(second * SECOND) // SECOND for second in seconds]
    assert longest_s == [1, 2, 60, 60, 1_000]
    now_ns, count = 0, 0
    while now_ns < 90 * 86_400 * SECOND:
        now_ns += longest_aggregate_ns(now_ns)
        count += 1
    assert 5_000 < count < 7_000


@pytest.mark.parametrize(
    ("first", "gpu_idle_ns", "expected"),
    [
        (0, [1, 2, 3, 4, 5], (0, [1, 4])),
        (2, [1, 2, 3, 4, 5], (3, [2, 5])),
        (4, [1], None),
        (3, [UNKNOWN, 5], None),
        (3, [7], (3, [7])),
    ],
)
def test_gpu_idle_time_is_kept_of_the_same_batches(
    first: int, gpu_idle_ns: list[int], expected: tuple[int, list[int]] | None
) -> None:
    kept = gpu_idle_of(GpuIdle(0, first, np.array(gpu_idle_ns), np.array(gpu_idle_ns)), 3)
    assert (None if kept is None else (kept.first, kept.gpu_idle_ns.tolist())) == expected
