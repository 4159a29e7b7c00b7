"""Findings as text and JSON, and their sentences."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from loadeval.analysis.estimate.memory import GrowthAdvice, GrowthReason
from loadeval.analysis.estimate.verdict import Unmeasured
from loadeval.analysis.remark import Remark
from loadeval.analysis.rules.finding import (
    Advice,
    Caveat,
    Check,
    Diagnosis,
    Fact,
    Finding,
    Place,
    Problem,
    Rule,
    Unknown,
)
from loadeval.report.json import diagnosis_as_dict
from loadeval.report.terminal.findings import diagnosis_report
from loadeval.report.wording.advice import ADVICE, change_in_short
from loadeval.report.wording.findings import (
    CAVEATS,
    PROBLEMS,
    UNKNOWNS,
    WORDS,
    checked_in_words,
    describe,
    places_in_words,
    value_in_words,
)

if TYPE_CHECKING:
    from enum import Enum

MS = 1_000_000
PLACE = Place(epoch=1, batch=1200, start_ns=5000 * MS, end_ns=5300 * MS, wait_ns=250 * MS)
CAVEAT = Remark(Caveat.TOO_FEW_PAIRS, {"pairs": 1, "needed": 3, "more_batches": 2000})
FINDING = Finding(
    Rule.IDLE_GPU,
    "moderate",
    "measured",
    Remark(Problem.GPU_IDLE, {"gpu": "GPU 0", "idle_share": 0.6}),
    (Remark(Advice.CPUS_BUSY, {"cpus": 4, "others_cpus": 1.5}), Remark(Advice.KEEP_LOADER)),
    (Fact("of all waiting", 0.9, "share"), Fact("batches", 4, "batches")),
    cost_share=0.123,
    places=(PLACE,),
)
NO_IDEAL = Remark(Unknown.NO_IDEAL)
TOO_FEW = Remark(Unknown.TOO_FEW_BATCHES, {"batches": 7, "needed": 20})
CHECKS = (
    Check(Rule.STALLS, "found"),
    Check(Rule.DRIFT, "nothing found"),
    Check(Rule.OUTLIERS, "nothing found"),
    Check(Rule.CAPACITY, "not measured", NO_IDEAL),
    Check(Rule.CONTENTION, "not measured", NO_IDEAL),
    Check(Rule.WAITING, "not measured", TOO_FEW),
)
SENTENCE = "Loading is not the limit: even with ideal loading GPU 0 is idle 60.0% of the time."
ADVISED = (
    "No CPU is free (training may use 4). Other programs use 1.5 CPUs. Leave the loader as it is: "
    "these waits cost nothing."
)


def printed(diagnosis: Diagnosis) -> str:
    console = Console(file=io.StringIO(), width=400, highlight=False, markup=True)
    console.print(diagnosis_report(diagnosis))
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def test_every_code_has_its_words() -> None:
    """Sentences for all, and for each rule its question and its source."""
    tables: list[tuple[dict[Enum, Any], list[type[Enum]]]] = [
        (PROBLEMS, [Problem]),
        (ADVICE, [Advice, GrowthAdvice]),
        (CAVEATS, [Caveat]),
        (UNKNOWNS, [Unknown, Unmeasured, GrowthReason]),
    ]
    for table, enums in tables:
        assert set(table) == {code for enum in enums for code in enum}
    assert set(WORDS) == set(Rule)
    assert all(words.question.endswith("?") and words.source for words in WORDS.values())
    advised = [words.sentence for words in ADVICE.values()]
    assert all(sentence.endswith(".") for sentence in (*PROBLEMS.values(), *advised))


def test_a_finding_is_told_with_all_that_belongs_to_it() -> None:
    """What it costs, its figures and batches, advice, where the rule is from, what was asked."""
    assert printed(Diagnosis((FINDING,), CHECKS)) == (
        "Findings\n"
        "1. idle GPU: moderate, 12.3% lost, measured\n"
        f"  {SENTENCE}\n"
        f"  Advice: {ADVISED}\n"
        "  Evidence: of all waiting 90.0%; batches 4.\n"
        "  Where: epoch 1, batch 1,200 at 5.00 s: took 300 ms, waited 250 ms.\n"
        f"  Source: {WORDS[Rule.IDLE_GPU].source}.\n"
        "Nothing found: drift, outliers.\n"
        f"Not measured: capacity, contention ({UNKNOWNS[Unknown.NO_IDEAL]}); waiting (7 "
        "steady-state batches, of 20 needed)."
    )


def test_a_finding_and_a_check_are_described() -> None:
    """A finding by its sentences, a check by its question and why it could not be told."""
    assert describe(FINDING) == f"{SENTENCE} {ADVISED}"
    caveat = "There is no 95% CI with under 3 pairs: run about 2,000 more batches"
    assert f"{SENTENCE} {caveat}" in describe(replace(FINDING, caveat=CAVEAT))
    assert describe(CHECKS[1]) == WORDS[Rule.DRIFT].question
    expected = f"{WORDS[Rule.CAPACITY].question} Not measured: {UNKNOWNS[Unknown.NO_IDEAL]}."
    assert describe(CHECKS[3]) == expected


def test_the_first_change_that_has_a_few_words_is_told_in_short() -> None:
    """With the numbers of the problem where it has none of its own."""
    assert change_in_short(FINDING) == "nothing: hidden by GPU work"
    problem = Remark(Problem.LOADER_TOO_SLOW, {"required": 1.6})
    cheaper = replace(FINDING, problem=problem, changes=(Remark(Advice.CHEAPER_OR_CPUS),))
    assert change_in_short(cheaper) == "make the loader 1.60x faster"


def test_of_many_places_some_are_told() -> None:
    """The text says how many there are besides."""
    text = printed(Diagnosis((replace(FINDING, places=(PLACE,) * 6),), CHECKS))
    assert text.count("epoch 1, batch 1,200") == 5
    assert "; and 1 more." in text


def test_a_run_without_findings() -> None:
    """It is said that there are none, and what was asked; without a check nothing more is said."""
    assert printed(Diagnosis((), CHECKS[1:2])) == "Findings: none\nNothing found: drift."
    assert checked_in_words(Diagnosis((), ())) == []


def test_what_is_not_known_is_not_told() -> None:
    """This holds for cost, places and figures."""
    text = printed(Diagnosis((replace(FINDING, cost_share=None, places=(), evidence=()),), ()))
    assert "idle GPU: moderate, cost not known, measured\n" in text
    assert "Evidence" not in text
    assert "Where" not in text


@pytest.mark.parametrize(
    ("fact", "expected"),
    [
        (Fact("iteration", 1.5 * MS, "ns"), "1.50 ms"),
        (Fact("iteration", 2 * MS, "ns", MS, 3 * MS), "2.00 ms [1.00 ms, 3.00 ms]"),
        (Fact("growth", 5e9, "bytes"), "5.00 GB"),
        (Fact("factor", 2.0, "x"), "2.00x"),
        (Fact("in use", 3.61, "CPUs"), "3.61 CPUs"),
        (Fact("prefetch depth", 4, "batches"), "4 batches"),
        (Fact("CPUs available", 4, "CPUs"), "4"),
    ],
)
def test_figures_have_their_units(fact: Fact, expected: str) -> None:
    """The unit is left out where the name says it."""
    assert value_in_words(fact) == expected


def test_a_batch_whose_time_is_not_known() -> None:
    """Its wait is all there is to tell."""
    place = replace(PLACE, start_ns=None, end_ns=None)
    began = replace(PLACE, end_ns=None)
    assert places_in_words([place, began]) == [
        "epoch 1, batch 1,200: waited 250 ms",
        "epoch 1, batch 1,200 at 5.00 s: waited 250 ms",
    ]


def test_text_of_a_run_steers_no_terminal() -> None:
    """A name in a log, with escapes and markup, is printed as it is."""
    hostile = Remark(Problem.GPU_IDLE, {"gpu": "\x1b[2J[bold]{x}", "idle_share": 0.6})
    text = printed(Diagnosis((replace(FINDING, problem=hostile),), ()))
    assert "\x1b" not in text
    assert "\\x1b[2J[bold]{x}" in text


def test_a_diagnosis_as_json() -> None:
    """Every field is there under its name, codes with their numbers and in words."""
    diagnosis = Diagnosis((replace(FINDING, caveat=CAVEAT),), CHECKS[2:4])
    document = json.loads(json.dumps(diagnosis_as_dict(diagnosis)))
    (finding,) = document["findings"]
    assert (finding["rule"], finding["code"]) == ("idle GPU", "gpu_idle")
    assert finding["values"] == {"gpu": "GPU 0", "idle_share": 0.6}
    assert finding["caveat"] == {"code": "too_few_pairs", "values": dict(CAVEAT.values)}
    assert finding["changes"][0] == {"code": "cpus_busy", "values": {"cpus": 4, "others_cpus": 1.5}}
    assert (finding["sentence"].startswith(SENTENCE), finding["advice"]) == (True, ADVISED)
    assert finding["evidence"][0] == {
        "name": "of all waiting",
        "value": 0.9,
        "unit": "share",
        "low": None,
        "high": None,
    }
    fine, unknown = document["checks"]
    assert (fine["rule"], fine["code"], fine["reason"]) == ("outliers", None, "")
    assert unknown == {
        "rule": "capacity",
        "question": WORDS[Rule.CAPACITY].question,
        "outcome": "not measured",
        "code": "no_ideal",
        "values": {},
        "reason": UNKNOWNS[Unknown.NO_IDEAL],
    }
