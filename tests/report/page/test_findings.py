"""The findings on the page: evidence, advice, and what was checked besides."""

from __future__ import annotations

from dataclasses import astuple
from typing import TYPE_CHECKING

from loadeval.analysis.remark import Remark
from loadeval.analysis.report import Report
from loadeval.analysis.rules.finding import (
    Advice,
    Check,
    Diagnosis,
    Fact,
    Finding,
    Place,
    Problem,
    Rule,
    Unknown,
)
from loadeval.report.page.blocks import Heading
from loadeval.report.page.findings import findings
from loadeval.report.wording.advice import ADVICE
from loadeval.report.wording.findings import UNKNOWNS, WORDS, finding_sentence
from tests.runs.given import randomised
from tests.runs.measured import recorded
from tests.runs.tables import replace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loadeval.data.run import Run


MS = 1_000_000
DIAGNOSIS = Diagnosis(
    (
        Finding(
            Rule.IDLE_GPU,
            "high",
            "likely",
            Remark(Problem.GPU_IDLE, {"gpu": "<GPU>", "idle_share": 0.5}),
            (Remark(Advice.KEEP_LOADER),),
            (
                Fact("loader alone", 22.8 * MS, "ns", 20.0 * MS, 26.0 * MS),
                Fact("required", 4.16, "x"),
                Fact("usable CPUs", 2, "CPUs"),
                Fact("lost", 0.786, "share", 0.734, 0.828),
                Fact("batch", 4_820_000, "bytes"),
                Fact("spread", 2.5, "workers", 2.0, 3.0),
            ),
            0.62,
            tuple(Place(3, batch, 4_399 * MS, None, 79 * MS) for batch in range(7)),
        ),
        Finding(
            Rule.UNPINNED_MEMORY,
            "low",
            "possible",
            Remark(Problem.BATCHES_UNPINNED),
            (Remark(Advice.KEEP_LOADER),),
            (),
        ),
    ),
    (
        Check(Rule.IDLE_GPU, "found"),
        Check(Rule.WORKER_MEMORY, "nothing found"),
        Check(Rule.HIDDEN_WAITS, "not measured", Remark(Unknown.NO_CUDA)),
    ),
)


def report_with(runs: Sequence[Run], diagnosis: Diagnosis) -> Report:
    """The report of `runs` with another diagnosis wherever it has one."""
    report = Report.of(runs)
    comparison = report.comparison and replace(report.comparison, diagnosis=diagnosis)
    each = [
        replace(run_report, diagnosis=run_report.diagnosis and diagnosis)
        for run_report in report.runs
    ]
    return replace(report, runs=tuple(each), comparison=comparison)


def texts_of(runs: Sequence[Run], diagnosis: Diagnosis) -> set[str]:
    """All that the section says."""
    section = findings(report_with(runs, diagnosis))
    return set(texts([astuple(block) for block in section.blocks]))


def texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from texts(part)


def test_findings_with_evidence_and_advice() -> None:
    """Facts in their units, the worst places, and what was checked besides."""
    shown = texts_of([randomised()], DIAGNOSIS)
    assert finding_sentence(DIAGNOSIS.findings[0]) in shown
    for words in (
        *("high severity", "likely", "costs 62.0% of the training time", "cost not known"),
        *("22.8 ms [20.0 ms, 26.0 ms]", "4.16x", "2", "78.6% [73.4%, 82.8%]", "4.82 MB"),
        *("2.50 [2, 3] workers", "epoch 3, batch 4 at 4.40 s: waited 79.0 ms", "and 2 more"),
        *("idle GPU", ADVICE[Advice.KEEP_LOADER].sentence, WORDS[Rule.IDLE_GPU].source),
        *("Checked and found fine (1)", WORDS[Rule.WORKER_MEMORY].question),
        *("Not measured (1)", WORDS[Rule.HIDDEN_WAITS].question, UNKNOWNS[Unknown.NO_CUDA]),
    ):
        assert words in shown


def test_no_finding() -> None:
    """What was checked is told all the same."""
    fine = Diagnosis((), DIAGNOSIS.checks[1:2])
    text = texts_of([recorded("log")], fine)
    assert "No problem with data loading was found." in text
    assert WORDS[Rule.WORKER_MEMORY].question in text


def test_of_several_runs_each_has_its_own() -> None:
    """Each stands under its name."""
    runs = [recorded("log", name="a"), recorded("log", name="b")]
    section = findings(report_with(runs, DIAGNOSIS))
    assert [block.text for block in section.blocks if isinstance(block, Heading)] == ["a", "b"]


def test_a_run_that_replayed_is_not_asked() -> None:
    """It has no loading to find anything about."""
    (words,) = texts_of([recorded("replay")], DIAGNOSIS) - {""}
    assert "replayed kept batches" in words
