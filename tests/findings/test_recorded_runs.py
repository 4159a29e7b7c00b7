"""What holds of the findings of every recorded run, whatever they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from loadeval import RunLogError, read_run
from loadeval.findings.engine import RULES, Diagnosis, diagnose
from loadeval.report.build import findings, result_of
from tests.recordings import RECORDED, TOGETHER, laid_out

if TYPE_CHECKING:
    from pathlib import Path

    from loadeval.data.run import Run

ACCOUNTED, WORTH_ACCOUNTING, EXACT = 0.8, 0.2, 0.1
"""Of what is lost; runs that lose so much, by an interval of so many points to either side."""
RUNS = [name for name in RECORDED if name not in TOGETHER]


def read(name: str, folder: Path) -> list[tuple[Run, Run | None]]:
    """The runs of a recording, each with the one that replayed; none where it cannot be read."""
    laid_out(name, folder)
    try:
        runs = {log.stem: read_run(log) for log in sorted(folder.rglob("*.jsonl"))}
    except RunLogError:
        return []
    if runs.keys() == {"log", "replay"}:
        return [(runs["log"], runs["replay"])]
    return [(run, None) for run in runs.values()]


@pytest.mark.parametrize("name", RUNS)
def test_findings_of_a_recorded_run(name: str, tmp_path: Path) -> None:
    for run, ideal in read(name, tmp_path):
        told = diagnose(run, ideal)
        each_rule_ends_in_one_list(told)
        findings_account_for_what_is_lost(run, told)
        a_log_is_told_how_to_measure_more(run, told)
        facts_carry_their_unit(run, ideal)


def each_rule_ends_in_one_list(told: Diagnosis) -> None:
    names = [*(finding.rule for finding in told.findings), *told.nothing, *told.skipped]
    assert sorted(names) == sorted(rule.name for rule in RULES)


def findings_account_for_what_is_lost(run: Run, told: Diagnosis) -> None:
    lost = result_of(run).gap.lost_share
    if run.header.mode != "alternate" or lost is None:
        return
    accounted = sum(finding.cost or 0.0 for finding in told.findings)
    assert accounted <= max(lost.value, 0.0) + 1e-9
    if lost.value < WORTH_ACCOUNTING or lost.low is None or lost.high is None:
        return
    if (lost.high - lost.low) / 2 < EXACT:
        assert accounted >= ACCOUNTED * lost.value


def a_log_is_told_how_to_measure_more(run: Run, told: Diagnosis) -> None:
    said = [*told.skipped.values()]
    said += [f"{do.says} {getattr(do, 'because', '')}" for each in told.findings for do in each.do]
    for sentence in said:
        assert "mode='alternate'" not in sentence or "loadeval diagnose -- COMMAND" in sentence


def facts_carry_their_unit(run: Run, ideal: Run | None) -> None:
    (shown,) = findings(result_of(run, ideal)).blocks or [None]
    for finding in shown.found if shown else ():
        assert len({label for label, _ in finding.facts}) == len(finding.facts)
