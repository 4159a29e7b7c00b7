"""What holds of the findings of every recorded run, whatever they are; the page of the rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.findings_page import PAGE, page, runs_of
from loadeval.findings.engine import RULES
from loadeval.report.blocks import Findings
from loadeval.report.build import Result, findings, result_of
from tests.recorded import TABLE, found_in, rows_of
from tests.recordings import RECORDED, TOGETHER

ACCOUNTED, WORTH_ACCOUNTING, EXACT = 0.8, 0.2, 0.1
"""Of what is lost; runs that lose so much, known to so many points on either side."""
ROWS = rows_of(TABLE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ROWS)
def test_what_is_found_in_a_run_is_what_the_table_says(name: str, tmp_path: Path) -> None:
    assert found_in(name, tmp_path) == ROWS[name][1]


def test_each_rule_is_found_in_some_run() -> None:
    cells = "; ".join(found for _, found in ROWS.values())
    found = {rule for cell in cells.split("; ") for rule in cell.rpartition(": ")[2].split(", ")}
    assert {rule.name for rule in RULES.values()} <= found


@pytest.mark.parametrize("name", [name for name in RECORDED if name not in TOGETHER])
def test_findings_of_a_recorded_run(name: str) -> None:
    for runs in runs_of(name):
        result = result_of(*runs)
        each_rule_ends_in_one_list(result)
        costs_account_for_what_is_lost(result)
        a_log_is_told_how_to_measure_more(result)
        no_two_facts_have_one_name(result)


def each_rule_ends_in_one_list(result: Result) -> None:
    told = result.diagnosis
    names = [*(finding.rule for finding in told.findings), *told.nothing, *told.skipped]
    assert sorted(names) == sorted(rule.name for rule in RULES.values())


def costs_account_for_what_is_lost(result: Result) -> None:
    lost = result.gap.lost_share
    if result.run.header.mode != "alternate" or lost is None:
        return
    beside = {rule.name for rule in RULES.values() if not rule.of}  # a share of the run
    found = [each for each in result.diagnosis.findings if each.rule not in beside]
    accounted = sum(finding.cost or 0.0 for finding in found)
    assert accounted <= max(lost.value, 0.0) + 1e-9
    is_exact = lost.low is not None and (lost.bounds[1] - lost.bounds[0]) / 2 < EXACT
    if is_exact and lost.value >= WORTH_ACCOUNTING:
        assert accounted >= ACCOUNTED * lost.value


def a_log_is_told_how_to_measure_more(result: Result) -> None:
    told = result.diagnosis
    advice = [f"{do.says} {do.because}" for finding in told.findings for do in finding.do]
    for sentence in [*told.skipped.values(), *advice]:
        assert "mode='alternate'" not in sentence or "loadeval diagnose -- COMMAND" in sentence


def no_two_facts_have_one_name(result: Result) -> None:
    for block in findings(result).blocks:
        for finding in block.found if isinstance(block, Findings) else ():
            names = [name for name, _ in finding.facts]
            assert len({*names}) == len(names)


def test_the_page_has_the_rules_as_they_are() -> None:
    """And what they say of recorded runs: python -m bench.findings_page writes it anew."""
    text = PAGE.read_text()
    assert page(text) == text
