"""The findings on the page: evidence, advice, and what was checked besides."""

from __future__ import annotations

from dataclasses import astuple, replace
from typing import TYPE_CHECKING

from loadeval.analysis.findings.finding import Check, Diagnosis, Fact, Finding, Place
from loadeval.analysis.report import Report
from loadeval.report.html.blocks import Heading
from loadeval.report.html.findings import findings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from loadeval.runlog.model import Run

    Record = Callable[..., Run]

MS = 1_000_000
DIAGNOSIS = Diagnosis(
    (
        Finding(
            rule="few-workers",
            severity="high",
            sentence="Two workers are <too> few.",
            evidence=(
                Fact("loader alone", 22.8 * MS, "ns", 20.0 * MS, 26.0 * MS),
                Fact("required", 4.16, "x"),
                Fact("usable CPUs", 2, "CPUs"),
                Fact("lost", 0.786, "share", 0.734, 0.828),
                Fact("batch", 4_820_000, "bytes"),
                Fact("spread", 2.5, "workers", 2.0, 3.0),
            ),
            advice="Give the loader four.",
            confidence="likely",
            source="a manual",
            cost_share=0.62,
            places=tuple(Place(3, batch, 4_399 * MS, None, 79 * MS) for batch in range(7)),
        ),
        Finding("small", "low", "Something small.", (), "Leave it.", "possible", "a book"),
    ),
    (
        Check("few-workers", "Are workers too few?", "found"),
        Check("memory", "Does memory grow?", "nothing found"),
        Check("gpu_idle", "Does the device starve?", "not measured", "no CUDA device"),
    ),
)


def report_with(runs: Sequence[Run], diagnosis: Diagnosis) -> Report:
    """The report of `runs` with another diagnosis wherever it has one."""
    found = Report.of(runs)
    comparison = found.comparison and replace(found.comparison, diagnosis=diagnosis)
    each = [replace(one, diagnosis=one.diagnosis and diagnosis) for one in found.runs]
    return replace(found, runs=tuple(each), comparison=comparison)


def told(runs: Sequence[Run], diagnosis: Diagnosis) -> set[str]:
    """All that the section says."""
    section = findings(report_with(runs, diagnosis))
    return set(texts([astuple(block) for block in section.blocks]))


def texts(found: object) -> Iterator[str]:
    if isinstance(found, str):
        yield found
    elif isinstance(found, (list, tuple)):
        for one in found:
            yield from texts(one)


def test_findings_with_evidence_and_advice(alternating: Record) -> None:
    """Facts in their units, the worst places, and what was checked besides."""
    found = told([alternating()], DIAGNOSIS)
    assert "Two workers are <too> few." in found
    for words in (
        *("high severity", "likely", "costs 62.0% of the training time", "cost not known"),
        *("22.8 ms [20.0 ms, 26.0 ms]", "4.16x", "2", "78.6% [73.4%, 82.8%]", "4.82 MB"),
        *("2.50 [2, 3] workers", "epoch 3, batch 4 at 4.40 s: waited 79.0 ms", "and 2 more"),
        *("Give the loader four.", "a manual"),
        *("Checked and found fine (1)", "Does memory grow?"),
        *("Could not be measured (1)", "Does the device starve?", "no CUDA device"),
    ):
        assert words in found


def test_no_finding(record: Record) -> None:
    """What was checked is told all the same."""
    fine = Diagnosis((), DIAGNOSIS.checks[1:2])
    text = told([record("log")], fine)
    assert "Nothing was found to be wrong with loading." in text
    assert "Does memory grow?" in text


def test_of_several_runs_each_has_its_own(record: Record) -> None:
    """Under its name."""
    runs = [record("log", name="a"), record("log", name="b")]
    section = findings(report_with(runs, DIAGNOSIS))
    assert [block.text for block in section.blocks if isinstance(block, Heading)] == ["a", "b"]


def test_a_run_that_replayed_is_not_asked(record: Record) -> None:
    """It has no loading to find anything about."""
    (words,) = told([record("replay")], DIAGNOSIS) - {""}
    assert words.startswith("Kept batches were replayed")
