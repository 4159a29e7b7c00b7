"""What is shown of a training that was looked at from outside."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from loadeval.analysis.attach.job import Training
from loadeval.probes.stacks import ProcessSamples, StackProblem, ThreadSamples
from loadeval.report.terminal.attach import attached_screen
from loadeval.report.wording.attach import NO_STACKS, headline
from tests import attached
from tests.attached import PID, process, report_of

if TYPE_CHECKING:
    from loadeval.analysis.attach.report import AttachedReport


def text_of(report: AttachedReport) -> str:
    return " ".join(" ".join(attached_screen(report, 80)).split())


def test_the_screen_of_a_training_that_waits() -> None:
    """How long and where, what workers do, what is wrong, and what is not measured."""
    text = text_of(attached.attached(gpus={"GPU 0 (H100)": 41.0}))
    for part in (
        "Training process 100 waits for batches 50.5% [",
        "without it, at most 2.02x [",
        "python train.py",
        "train/train.py:48 main, 50.5%",
        "epochs begin",
        "2 workers",
        "train/data.py:12 __getitem__ > open",
        "workers blocked",
        "sk_wait_data, system call recvfrom, socket:[7]",
        "1.6 CPUs in use, 4.00 threads running or runnable on average",
        "GPU GPU 0 (H100)",
        "1. storage latency (likely): Loading is blocked",
        "loadeval run --mode alternate -- python train.py",
        "Looking took 0.3% of the CPUs' time",
    ):
        assert part in text, part


def test_lines_fit_the_terminal() -> None:
    """But for commands, which are to be copied."""
    for shown in attached_screen(attached.attached(), 80):
        assert len(shown) <= 80


def test_a_training_that_hardly_waits_is_said_not_to_be_limited_by_loading() -> None:
    report = report_of(process(PID, *(attached.STEP,) * 99, attached.WAIT))
    assert headline(report).endswith("Loading is not what limits it.")
    assert report.findings == ()


def test_a_training_that_always_waits_has_no_bound() -> None:
    said = headline(report_of(process(PID, *(attached.WAIT,) * 20)))
    assert "at most" not in said
    assert "100.0%" in said


def test_a_loader_that_is_not_known_is_said() -> None:
    report = report_of(process(PID, *(attached.STEP,) * 20))
    assert "never seen in a loader that loadeval knows" in headline(report)


@pytest.mark.parametrize("problem", StackProblem)
def test_why_there_are_no_stacks_is_said(problem: StackProblem) -> None:
    report = report_of(process(PID, problem=problem))
    assert NO_STACKS[problem] in headline(report)


def test_without_stacks_workers_may_sleep_for_want_of_work() -> None:
    """So they are not said to be blocked."""
    asleep = process(101, moments=(attached.moment("poll_schedule_timeout", call="poll"),) * 4)
    text = text_of(report_of(process(PID, problem=StackProblem.NOT_PERMITTED), [asleep]))
    assert "workers sleep in poll_schedule_timeout, system call poll" in text
    assert "blocked" not in text


def test_a_thread_that_reads_and_an_end_are_said() -> None:
    thread = ThreadSamples(7, "trainer", (attached.WAIT, attached.STEP) * 10)
    training = process(PID, samples=(ProcessSamples(PID, (thread,), 2),))
    report = replace(report_of(training, ended=True), training=Training(PID, None, ()))
    text = text_of(report)
    assert "read in thread trainer" in text
    assert "2 more could not be read; it has ended" in text
    assert "command not known" in text


def test_of_many_workers_some_are_listed() -> None:
    """And those whose stacks were read are told apart from the others."""
    workers = [process(pid, *(attached.FETCH,) * (pid < 104)) for pid in range(101, 121)]
    text = text_of(report_of(process(PID, *(attached.WAIT, attached.STEP) * 20), workers))
    assert "3 of 20 workers" in text
    assert "and 12 more workers" in text
    assert "worker 108" in text
    assert "worker 109" not in text
