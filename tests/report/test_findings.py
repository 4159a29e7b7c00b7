"""Findings as text."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from loadeval.analysis.rules.finding import Check, Diagnosis, Fact, Finding, Place
from loadeval.report.findings import (
    checked_in_words,
    diagnosis_as_dict,
    diagnosis_report,
    place_in_words,
    value_in_words,
)

MS = 1_000_000
PLACE = Place(epoch=1, batch=1200, start_ns=5000 * MS, end_ns=5300 * MS, wait_ns=250 * MS)
FINDING = Finding(
    rule="bursts",
    severity="moderate",
    sentence="Few batches wait.",
    evidence=(Fact("of all waiting", 0.9, "share"), Fact("batches", 4, "batches")),
    advice="Look at them.",
    confidence="measured",
    source="a rule",
    cost_share=0.123,
    places=(PLACE,),
)
CHECKS = (
    Check("bursts", "Are there bursts?", "found"),
    Check("drift", "Does it drift?", "nothing found"),
    Check("outliers", "Are there outliers?", "nothing found"),
    Check("capacity", "Is it slow?", "not measured", "nothing was served for free"),
    Check("contention", "Does it interfere?", "not measured", "nothing was served for free"),
    Check("memory", "Does it grow?", "not measured", "too short"),
)


def printed(diagnosis: Diagnosis, name: str = "") -> str:
    console = Console(file=io.StringIO(), width=400, highlight=False, markup=True)
    console.print(diagnosis_report(diagnosis, name))
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def test_a_finding_is_told_with_all_that_belongs_to_it() -> None:
    """What it costs, its figures and batches, advice, where the rule is from, what was asked."""
    assert printed(Diagnosis((FINDING,), CHECKS), "a run") == (
        "Findings in a run\n"
        "1. bursts: moderate, 12.3% lost, measured\n"
        "  Few batches wait.\n"
        "  Advice: Look at them.\n"
        "  Evidence: of all waiting 90.0%; batches 4.\n"
        "  Where: epoch 1, batch 1,200 at 5.00 s: took 300 ms, waited 250 ms\n"
        "  Source: a rule.\n"
        "  Nothing found: drift, outliers.\n"
        "  Not measured: capacity, contention (nothing was served for free); memory (too short)."
    )


def test_of_many_places_some_are_told() -> None:
    """And how many there are besides."""
    told = printed(Diagnosis((replace(FINDING, places=(PLACE,) * 6),), CHECKS))
    assert told.count("epoch 1, batch 1,200") == 5
    assert "; and 1 batch more." in told


def test_a_run_without_findings() -> None:
    """It is said that there are none, and what was asked; without a check nothing more is said."""
    assert printed(Diagnosis((), CHECKS[1:2])) == "Findings: none\n  Nothing found: drift."
    assert checked_in_words(Diagnosis((), ())) == []


def test_what_is_not_known_is_not_told() -> None:
    """Neither cost nor places nor figures."""
    bare = replace(FINDING, cost_share=None, places=(), evidence=())
    assert printed(Diagnosis((bare,), ())) == (
        "Findings\n1. bursts: moderate, cost not known, measured\n  Few batches wait.\n"
        "  Advice: Look at them.\n  Source: a rule."
    )


@pytest.mark.parametrize(
    ("fact", "told"),
    [
        (Fact("iteration", 1.5 * MS, "ns"), "1.50 ms"),
        (Fact("iteration", 2 * MS, "ns", MS, 3 * MS), "2.00 ms [1.00 ms, 3.00 ms]"),
        (Fact("growth", 5e9, "bytes"), "5.00 GB"),
        (Fact("factor", 2.0, "x"), "2.00x"),
        (Fact("in use", 3.61, "CPUs"), "3.61 CPUs"),
        (Fact("prefetch depth", 4, "batches"), "4 batches"),
        (Fact("CPUs there are", 4, "CPUs"), "4"),
    ],
)
def test_figures_have_their_units(fact: Fact, told: str) -> None:
    """Unless the name says it."""
    assert value_in_words(fact) == told


def test_a_batch_whose_time_is_not_known() -> None:
    """Its wait is all there is to tell."""
    place = replace(PLACE, start_ns=None, end_ns=None)
    assert place_in_words(place) == "epoch 1, batch 1,200: waited 250 ms"
    place = replace(PLACE, end_ns=None)
    assert place_in_words(place) == "epoch 1, batch 1,200 at 5.00 s: waited 250 ms"


def test_text_of_a_run_steers_no_terminal() -> None:
    """A name, or a sentence, with escapes and markup is printed as it is."""
    hostile = replace(FINDING, sentence="\x1b[2J[bold]x")
    told = printed(Diagnosis((hostile,), ()), "\x1b]0;title\x07")
    assert "\x1b" not in told
    assert "\\x1b[2J[bold]x" in told


def test_a_diagnosis_as_json() -> None:
    """Every field is there under its name."""
    found = json.loads(json.dumps(diagnosis_as_dict(Diagnosis((FINDING,), CHECKS[:1]))))
    assert found["findings"][0]["evidence"][0] == {
        "name": "of all waiting",
        "value": 0.9,
        "unit": "share",
        "low": None,
        "high": None,
    }
    assert found["checks"] == [
        {"rule": "bursts", "question": "Are there bursts?", "outcome": "found", "reason": ""}
    ]
