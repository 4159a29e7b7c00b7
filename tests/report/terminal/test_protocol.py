"""The screen and the page of the bottleneck protocol, and their sentences."""

from __future__ import annotations

import re
import signal
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from loadeval.analysis.doctor import CheckStatus, DoctorCode, MachineCheck
from loadeval.analysis.estimate.stats import Estimate
from loadeval.analysis.inside.stages import NoStages
from loadeval.analysis.protocol import Answers
from loadeval.analysis.remark import Remark
from loadeval.analysis.report import Report
from loadeval.report.page.protocol import protocol_page
from loadeval.report.terminal.protocol import ProtocolReport, protocol_screen
from loadeval.report.wording.protocol import (
    agreement,
    agreement_in_short,
    changes_in_short,
    names_in_short,
    outcome,
    purpose,
)
from loadeval.runlog.run_folder.processes import NothingMeasured
from loadeval.runlog.run_folder.protocol_steps import NotRun, Step, StepResult
from tests.runs.given import randomised
from tests.runs.measured import recorded

if TYPE_CHECKING:
    from collections.abc import Sequence

REAL, REPLAY = recorded("log"), recorded("replay")
LOGGED, SEPARATE = Report.of([REAL]), Report.of([REAL, REPLAY])
ALTERNATING = Report.of([randomised()])
TOO_SHORT = Report.of([randomised(pairs=1)])
NO_GPU = MachineCheck("NVML", CheckStatus.NOT_MEASURED, Remark(DoctorCode.NO_GPU))
NO_MEMORY = MachineCheck("shared memory", CheckStatus.CHANGE, Remark(DoctorCode.NO_SHARED_MEMORY))
DONE = tuple(
    StepResult(step, code=0, was_stopped=True, batches=300)
    for step in (Step.WARM_UP, Step.REAL, Step.REPLAY, Step.ALTERNATE)
)
COMMAND = "loadeval protocol --stop-after 300 -- python 'my train.py'"


def claiming(report: Report, value: float, low: float | None, high: float | None) -> Report:
    """`report` with another speed-up."""
    assert report.comparison is not None
    claimed = replace(report.comparison.headroom, speedup=Estimate(value, low, high))
    claimed = replace(claimed, steady_speedup=claimed.speedup)
    return replace(report, comparison=replace(report.comparison, headroom=claimed))


def found_by(
    separate: Report | None = SEPARATE,
    alternate: Report | None = ALTERNATING,
    results: Sequence[StepResult] = DONE,
    **others: Any,
) -> ProtocolReport:
    options = {"checks": (NO_GPU, NO_MEMORY), **others}
    return ProtocolReport(
        COMMAND, Path("/logs"), results, answers=Answers(separate, alternate), **options
    )


def screen_of(report: ProtocolReport) -> str:
    return "\n".join(protocol_screen(report, [("page", "/logs/report.html")], 80))


def page_of(report: ProtocolReport) -> str:
    """The text of the page, without what it is drawn by."""
    page = protocol_page(report, Path("/logs/report.html"))
    body = page[page.index("<body>") : page.index('<script type="application/json"')]
    text = re.sub(r"<[^>]+>", " ", body)
    for escape, plain in (("&#39;", "'"), ("&#34;", '"'), ("&lt;", "<"), ("&amp;", "&")):
        text = text.replace(escape, plain)
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (StepResult(Step.REAL, code=0), "done"),
        (StepResult(Step.REAL, code=1, was_stopped=True), "done: ended after enough batches"),
        (StepResult(Step.REAL, code=3), "failed: the command exited with 3"),
        (StepResult(Step.REAL, code=-11), "failed: the command was ended by SIGSEGV"),
        (StepResult(Step.REAL, code=-99), "failed: the command was ended by signal 99"),
        (StepResult(Step.REAL, code=-2, signal=signal.SIGINT), "interrupted by SIGINT"),
        (StepResult(Step.NSYS, NotRun.NOT_INSTALLED), "not run: nsys is not installed"),
        (StepResult(Step.REAL, NotRun.INTERRUPTED), "not run: interrupted before"),
    ],
)
def test_how_a_step_ended(result: StepResult, words: str) -> None:
    assert outcome(result) == words


def test_every_step_has_a_purpose() -> None:
    """It is told with how long the step takes, in batches."""
    assert purpose(Step.REAL, 300) == "the command as it is, for 300 batches"
    assert purpose(Step.REAL, None) == "the command as it is, to its end"
    assert all(purpose(step, 1) for step in Step)


@pytest.mark.parametrize(
    ("separate", "alternate", "words", "in_short"),
    [
        (
            (2.0, 1.9, 2.1),
            (2.2, 2.1, 2.3),
            "Both ways to measure agree within their 95% CIs",
            "2.00x [1.90x, 2.10x]: agrees within the 95% CIs",
        ),
        (
            (3.0, 2.9, 3.1),
            (2.0, 1.9, 2.1),
            (
                "disagree beyond their 95% CIs, by a factor of 1.50: the separate real and replay "
                "runs give 3.00x [2.90x, 3.10x], the alternating run 2.00x [1.90x, 2.10x]. Believe "
                "the alternating run"
            ),
            "3.00x [2.90x, 3.10x]: differs 1.50x; trust the verdict above",
        ),
        (
            (3.0, None, None),
            (2.0, 1.9, 2.1),
            "is not known, for lack of a 95% CI",
            "3.00x: cannot be compared without a 95% CI",
        ),
    ],
)
def test_whether_both_agree(
    separate: tuple[float, float, float],
    alternate: tuple[float, float, float],
    words: str,
    in_short: str,
) -> None:
    answers = Answers(claiming(SEPARATE, *separate), claiming(ALTERNATING, *alternate))
    assert words in agreement(answers)
    assert agreement_in_short(answers) == [("separate runs", in_short)]


def test_an_inconclusive_run_is_not_believed() -> None:
    """Where both are, neither is."""
    alternate = claiming(TOO_SHORT, 2.0, 1.9, 2.1)
    answers = Answers(claiming(SEPARATE, 3.0, 2.9, 3.1), alternate)
    assert "The alternating run is inconclusive" in agreement(answers)
    (row,) = agreement_in_short(answers)
    assert row[0] == "alternating run"
    separate = claiming(Report.of([REAL, recorded("replay", waits_ns=[0] * 5)]), 3.0, 2.9, 3.1)
    assert "Neither is conclusive" in agreement(Answers(separate, alternate))


@pytest.mark.parametrize(
    ("separate", "alternate", "words"),
    [
        (LOGGED, ALTERNATING, "the separate real and replay runs gave no speed-up"),
        (SEPARATE, None, "the alternating run gave no speed-up"),
        (LOGGED, LOGGED, "neither gave a speed-up"),
    ],
)
def test_one_answer_is_not_checked(separate: Report, alternate: Report | None, words: str) -> None:
    answers = Answers(separate, alternate)
    assert words in agreement(answers)
    assert not agreement_in_short(answers)


def test_what_is_to_be_changed_on_the_machine() -> None:
    assert changes_in_short([NO_GPU]) == "nothing to change"
    assert changes_in_short([NO_GPU, NO_MEMORY]) == "to change: shared memory"


def test_the_first_things_that_were_not_measured() -> None:
    assert names_in_short([("a", ""), ("doctor: a", ""), ("b", "")]) == "a, b"
    assert names_in_short([(name, "") for name in "abcdef"]) == "a, b, c, d, 2 more"


def test_the_screen_has_the_verdict_of_the_page() -> None:
    """In at most 25 lines, with the other answer below it."""
    report = found_by()
    screen = screen_of(report)
    assert report.headline.startswith("Highly input-bound")
    assert " ".join(screen.split()).startswith(report.headline)
    assert report.headline in page_of(report)
    assert len(screen.splitlines()) <= 25
    assert "separate runs" in screen
    assert "doctor         to change: shared memory" in screen
    assert screen.splitlines()[-1] == "page           /logs/report.html"


def test_the_screen_of_a_run_that_only_logged() -> None:
    """What was waited, and what was found."""
    screen = screen_of(found_by(LOGGED, None))
    assert screen.startswith("Training waited for batches 75.0% of the time")
    assert "what to do" in screen


def test_the_screen_of_a_run_without_findings() -> None:
    quick = Report.of([recorded("log", waits_ns=[0] * 30)])
    assert "what to do" not in screen_of(found_by(quick, None))


def test_a_step_that_failed_is_on_the_screen() -> None:
    """It is on the page too, with the rest as it was measured."""
    failed = StepResult(Step.REPLAY, code=3, batches=12)
    report = found_by(results=[*DONE[:2], failed, DONE[3]])
    assert "step replay    failed: the command exited with 3" in screen_of(report)
    page = page_of(report)
    assert "replay failed: the command exited with 3 12" in page
    assert "What was not measured why replay failed: the command exited with 3" in page


def test_where_nothing_was_measured() -> None:
    """The reason is told once on the screen, and the page has what is known of the machine."""
    why = (NothingMeasured.NO_LOADER, "")
    results = [
        StepResult(Step.WARM_UP, code=0, nothing=why),
        StepResult(Step.REAL, NotRun.NO_LOADER),
    ]
    report = found_by(None, None, results)
    screen = " ".join(screen_of(report).split())
    assert screen.startswith("No verdict: neither the real run nor the alternating one has a batch")
    assert screen.count("the program iterated no data loader that loadeval knows") == 1
    page = page_of(report)
    assert "real not run: the first run of the command measured nothing" in page
    assert "shared memory change none" in page


def test_the_page_has_every_step() -> None:
    """The verdict first, then what each way to measure says, then all of the run to believe."""
    page = page_of(found_by())
    for heading in ("Steps", "Throughput", "Findings", "The machine", "Not measured", "Reproduce"):
        assert heading in page
    assert page.index("if loading were free") < page.index("The two ways to measure")
    assert "warm-up done: ended after enough batches 300" in page
    assert "separate runs highly input-bound 4.00x" in page
    assert COMMAND in page
    assert "loadeval show /logs/alternate --full loadeval show /logs/real --full" in page
    assert "loadeval report" not in page


def test_the_page_says_what_nsys_wrote() -> None:
    profiled = StepResult(Step.NSYS, code=0, profile="nsys/profile.nsys-rep")
    page = page_of(found_by(results=[*DONE, profiled]))
    assert "nsys stats /logs/nsys/profile.nsys-rep" in page
    assert "nsys wrote no report" not in page


def test_nsys_that_wrote_nothing_is_not_measured() -> None:
    report = found_by(results=[*DONE, StepResult(Step.NSYS, code=0)])
    assert ("nsys", "nsys wrote no report") in report.not_measured
    assert report.nsys is None


def test_what_was_not_measured() -> None:
    """It is told of steps, comparison, runs and machine, each with its reason."""
    nsys = StepResult(Step.NSYS, NotRun.NOT_ASKED_FOR)
    report = found_by(LOGGED, LOGGED, [*DONE, nsys], problems=["other loaders"])
    missing = dict(report.not_measured)
    assert missing["nsys"] == "not run: not asked for"
    assert missing["alternate"].startswith("the training loader was logged instead")
    assert missing["comparison"] == "other loaders"
    assert missing["GPU idle while waiting"] == "no CUDA device was in use"
    assert missing["doctor: NVML"] == "no GPU"
    assert re.match(r"\d+ of \d+ checks", missing["findings"])


def test_why_the_run_to_believe_has_no_stages() -> None:
    run_report = replace(LOGGED.runs[0], no_stages=Remark(NoStages.NOT_ASKED_FOR))
    run_report = replace(
        run_report, metrics=replace(run_report.metrics, missing=(("gpu", "no driver"),))
    )
    missing = dict(found_by(replace(LOGGED, runs=(run_report,)), None).not_measured)
    assert "inside the loader: not measured" in missing["stages"].lower()
    assert missing["gpu metrics"] == "no driver"


def test_what_is_known_is_not_called_missing() -> None:
    run_report = LOGGED.runs[0]
    assert run_report.diagnosis is not None
    metrics = replace(run_report.metrics, missing=(), gpu_idle_ns={"real": 1.0, "ideal": None})
    run_report = replace(
        run_report,
        metrics=metrics,
        no_stages=None,
        diagnosis=replace(run_report.diagnosis, checks=()),
    )
    report = found_by(replace(LOGGED, runs=(run_report,)), None, checks=())
    assert report.not_measured == []
    assert "not measured" not in screen_of(report)
