"""What is said of a training that was looked at from outside."""

from __future__ import annotations

import pytest

from loadeval.probes.observing import ProcessGrowth
from loadeval.probes.stacks import ProcessSamples, StackProblem, ThreadSamples
from tests import attached
from tests.attached import PID, growth, process, report_of, samples


def test_how_long_training_waits_bounds_what_it_can_gain() -> None:
    report = report_of(process(PID, *(attached.WAIT, attached.STEP) * 50))
    assert report.wait is not None
    assert report.bound is not None
    assert report.wait.low is not None
    assert report.wait.value == 0.5
    assert report.bound.value == 2.0
    assert report.bound.low == pytest.approx(1 / (1 - report.wait.low))
    assert (report.moments, report.failed, report.problem) == (100, 0, None)
    assert report.loader == "DataLoader"
    assert report.cost == pytest.approx(0.01 / 4)
    (line,) = report.callers
    assert (line.place, line.share.value) == ("train/train.py:48 main", 0.5)


def test_beginning_an_epoch_is_waiting_too() -> None:
    report = report_of(process(PID, *(attached.START, attached.WAIT, attached.STEP) * 10))
    assert report.wait is not None
    assert report.starts is not None
    assert report.wait.value == pytest.approx(2 / 3)
    assert report.starts.value == pytest.approx(1 / 3)


def test_a_training_that_always_waits_has_no_bound() -> None:
    """Nor has its interval an upper end, where it may always wait."""
    assert report_of(process(PID, *(attached.WAIT,) * 50)).bound is None
    mostly = report_of(process(PID, attached.STEP, *(attached.WAIT,) * 2)).bound
    assert mostly is not None
    assert mostly.value == pytest.approx(3.0)
    assert (mostly.low, mostly.high) == (None, None)


def test_what_could_not_be_read_is_in_the_interval() -> None:
    recordings = (samples(PID, *(attached.WAIT, attached.STEP) * 20, failed=10),)
    report = report_of(process(PID, samples=recordings))
    assert report.failed == 10
    assert report.wait is not None
    assert report.wait.high is not None
    assert report.wait.high > 0.7


def test_a_process_that_was_seen_in_no_loader_waits_for_an_unknown_time() -> None:
    """Its loader may be none that adapters know; with workers it does not wait."""
    alone = report_of(process(PID, *(attached.STEP,) * 50))
    assert (alone.wait, alone.bound, alone.loads_itself, alone.starts) == (None,) * 4
    assert alone.loader is None
    with_worker = report_of(process(PID, *(attached.STEP,) * 50), [process(101, attached.ASK)])
    assert with_worker.wait is not None
    assert with_worker.wait.value == 0.0


def test_without_stacks_the_reason_and_the_kernels_figures_are_left() -> None:
    denied = StackProblem.NOT_PERMITTED
    report = report_of(process(PID, problem=denied), [process(101, problem=denied)])
    assert report.problem is denied
    assert report.wait is None
    assert report.moments == 0
    assert [row.cpu for row in report.processes] == [0.5, 0.5]
    assert [row.is_worker for row in report.processes] == [False, True]


@pytest.mark.parametrize("used", [None, ProcessGrowth(0)])
def test_a_process_that_was_counted_once_has_no_rates(used: ProcessGrowth | None) -> None:
    (row,) = report_of(process(PID, attached.STEP, growth=used)).processes
    assert (row.cpu, row.run_queue) == (None, None)


def test_a_counter_that_is_not_told_is_no_rate() -> None:
    used = growth()
    (row,) = report_of(process(PID, growth=ProcessGrowth(used.elapsed_ns, used.cpu_ns))).processes
    assert (row.cpu, row.run_queue) == (0.5, None)


def test_batches_that_another_thread_asks_for() -> None:
    """As in a framework that trains in a thread; the main thread never does."""
    threads = (
        ThreadSamples(PID, "MainThread", (attached.MAIN,) * 20),
        ThreadSamples(7, "trainer", (attached.WAIT, attached.STEP) * 10),
    )
    report = report_of(process(PID, samples=(ProcessSamples(PID, threads, 0),)))
    assert report.thread == "trainer"
    assert report.wait is not None
    assert report.wait.value == 0.5


def test_the_main_thread_trains_where_it_asks_itself() -> None:
    """Another thread may read ahead."""
    threads = (
        ThreadSamples(7, "reads ahead", (attached.WAIT,) * 20),
        ThreadSamples(PID, "MainThread", (attached.WAIT, attached.STEP) * 10),
    )
    report = report_of(process(PID, samples=(ProcessSamples(PID, threads, 0),)))
    assert report.thread is None
    assert report.wait is not None
    assert report.wait.value == 0.5


def test_the_lines_in_which_training_loads_itself() -> None:
    report = report_of(process(PID, *(attached.OWN_LOADING, attached.STEP) * 10))
    (line,) = report.own_lines
    assert (line.place, line.leaf) == ("train/data.py:12 __getitem__", "open")
    assert line.share.value == 1.0


def test_several_recordings_are_one_series() -> None:
    parts = (samples(PID, *(attached.WAIT,) * 10), samples(PID, *(attached.STEP,) * 30))
    report = report_of(process(PID, samples=parts), ended=True)
    assert report.wait is not None
    assert report.wait.value == 0.25
    assert report.ended
