"""What is shown of a training that was looked at from outside."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from loadeval.analysis.attach.job import Training
from loadeval.analysis.hangs.hang import Cause, Hang
from loadeval.probes.stacks import ProcessSamples, StackProblem, ThreadSamples
from loadeval.report.attach import SOURCE, attached_as_dict
from loadeval.report.terminal.attach import attached_screen
from loadeval.report.wording.attach import NO_STACKS, headline
from tests import attached
from tests.attached import PID, process, report_of

if TYPE_CHECKING:
    from loadeval.analysis.attach.report import AttachedReport


def text_of(report: AttachedReport) -> str:
    return " ".join(" ".join(attached_screen(report, 80)).split())


def test_whom_training_waits_for_while_others_are_done_is_said() -> None:
    """Batches come, though slowly: it is not stuck."""
    hang = Hang(Cause.SLOW, 10**10, PID, pid=101, worker=0, batch=4, idle=(1, 2), seen_ns=10**10)
    text = " ".join(" ".join(attached_screen(attached.attached(), 80, hang)).split())
    assert "waits for worker 0 (process 101), at the end of the look; workers 1, 2 done" in text
    assert "1. storage latency (likely)" in text


def test_no_finding_has_a_simulation_as_its_source() -> None:
    """As those of a run that was measured have."""
    findings = attached_as_dict(attached.attached())["findings"]
    assert {finding["source"] for finding in findings} == {SOURCE}


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
