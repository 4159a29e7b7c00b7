"""What is seen of a training: shares with intervals that hold the truth, threads, and lines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from loadeval.attach.observe import share_of
from loadeval.probes.stacks import ProcessStacks, ThreadStacks
from tests.attach import seen
from tests.attach.seen import PID, frame, process, report_of


@pytest.mark.parametrize(("wait_s", "step_s"), [(0.04, 0.02), (0.002, 0.098), (0.5, 0.5), (1, 3)])
def test_the_interval_holds_the_share_of_a_training(wait_s: float, step_s: float) -> None:
    """In 19 of 20 runs at least; moments are those of a Poisson process, ten a second for 20 s."""
    random, true = np.random.default_rng(0), wait_s / (wait_s + step_s)
    held = 0
    for _ in range(200):
        moments = np.cumsum(random.exponential(0.1, 200)) + random.uniform(0, 10)
        share: Any = share_of(((moments % (wait_s + step_s)) < wait_s).tolist())
        held += share.bounds[0] <= true <= share.bounds[1]
    assert held >= 190


def test_moments_that_all_saw_the_same_leave_a_width() -> None:
    """Of a hundred, what takes under some 4% of the time may not have been seen."""
    share: Any = share_of([True] * 100)
    assert share.bounds == (pytest.approx(0.96, abs=0.01), 1.0)


def test_dependent_moments_count_for_fewer() -> None:
    """Ten of each in turn are few states, however often they were seen."""
    dependent: Any = share_of([True] * 20 + [False] * 20 + [True] * 20 + [False] * 20)
    independent: Any = share_of((np.random.default_rng(1).random(80) < 0.5).tolist())
    assert np.ptp(dependent.bounds) > 1.5 * np.ptp(independent.bounds)


def test_moments_that_could_not_be_read_widen_it_to_both_sides() -> None:
    known: Any = share_of([True, False] * 50)
    partly: Any = share_of([True, False] * 50, failed=25)
    low, high = known.bounds
    assert partly.bounds == pytest.approx((low * 0.8, high * 0.8 + 0.2))


def test_a_training_that_always_waits_has_no_bound() -> None:
    """Nor has its interval an upper end, where it may always wait."""
    assert report_of(process(PID, *(seen.WAIT,) * 50)).at_most is None
    mostly: Any = report_of(process(PID, seen.STEP, *(seen.WAIT,) * 2)).at_most
    assert (mostly.value, mostly.high) == (pytest.approx(3.0), None)


def test_a_process_that_was_seen_in_no_loader_waits_for_an_unknown_time() -> None:
    """Its loader may be none that adapters know; with workers it does not wait."""
    alone = report_of(process(PID, *(seen.STEP,) * 50))
    assert alone.wait_share is None
    assert alone.headline.endswith("it was never seen in a loader that loadeval knows.")
    with_worker: Any = report_of(process(PID, *(seen.STEP,) * 50), [process(101, seen.ASK)])
    assert with_worker.wait_share.value == 0.0


def test_the_main_thread_trains_where_it_asks_itself() -> None:
    """Another thread may read ahead."""
    threads = (
        ThreadStacks(7, "reads ahead", (seen.WAIT,) * 40),
        ThreadStacks(PID, "MainThread", (seen.WAIT,) * 10 + (seen.STEP,) * 30),
    )
    report: Any = report_of(process(PID, stacks=ProcessStacks(PID, threads)))
    assert report.moments == 40
    assert report.wait_share.value == 0.25


def test_a_library_that_asks_for_batches_is_called_by_the_program() -> None:
    """Frames of a Trainer stand between, and of a clone of loadeval that measures."""
    trainer = frame("fit", f"{seen.PACKAGES}/lightning/trainer.py", 7)
    serves = frame("__next__", "/home/me/loadeval/loadeval/core/loop.py", 9)
    report = report_of(process(PID, *((*seen.WAIT[:2], serves, trainer, *seen.MAIN),) * 10))
    assert [line.place for line in report.callers] == ["train/train.py:48 main"]


def test_what_loadeval_puts_between_is_no_line_of_the_program() -> None:
    """Under `loadeval run` a transform is called by a stand-in, which may be of a clone."""
    resize = frame("Resize.__call__", f"{seen.PACKAGES}/torchvision/transforms.py", 5)
    stand_in = frame(
        "Timed.__call__", "/home/me/adapters/loadeval_adapters/torch_trace/transforms.py"
    )
    folder = frame("ImageFolder.__getitem__", f"{seen.PACKAGES}/torchvision/folder.py", 8)
    stack = (resize, stand_in, folder, seen.FETCHING, *seen.LOOP)
    report: Any = report_of(process(PID, seen.WAIT), [process(101, stack)])
    assert [line.place for line in report.workers.lines] == ["torchvision/folder.py:8 __getitem__"]


def test_a_function_has_the_line_in_which_it_was_seen_most() -> None:
    """Where none is the program's, it is the library's outermost."""

    def at(line: int) -> seen.Stack:
        return (frame("load", "/home/me/train/data.py", line), seen.FETCHING, *seen.LOOP)

    inner = frame("open", f"{seen.PACKAGES}/PIL/Image.py", 3)
    outer = frame("ImageFolder.__getitem__", f"{seen.PACKAGES}/torchvision/folder.py", 8)
    stacks = (at(3), *(at(4),) * 60, *((inner, outer, seen.FETCHING, *seen.LOOP),) * 39)
    report: Any = report_of(process(PID, seen.WAIT), [process(101, *stacks)])
    assert [(line.place, line.leaf) for line in report.workers.lines] == [
        ("train/data.py:4 load", ""),
        ("torchvision/folder.py:8 __getitem__", "open"),
    ]


def test_a_comprehension_is_of_the_function_that_has_it() -> None:
    """A function in a class, a function, or both is called by its own name."""
    names = ("Photos.load.<locals>.<listcomp>", "Photos.load", "main.<locals>.load")
    stacks = [(frame(name, "/home/me/data.py", 3), seen.FETCHING, *seen.LOOP) for name in names]
    report: Any = report_of(process(PID, seen.WAIT), [process(101, *stacks)])
    assert [line.place for line in report.workers.lines] == ["me/data.py:3 load"]
