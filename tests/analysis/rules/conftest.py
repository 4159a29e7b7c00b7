"""What is found in runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from loadeval.analysis.remark import Remark
from loadeval.analysis.rules.case import Case
from loadeval.analysis.rules.diagnosis import RULES, diagnose
from loadeval.data.lines import LoaderInfo
from loadeval.report.wording.advice import change_in_short
from loadeval.report.wording.findings import describe, why_not_checked
from tests.runs.given import MS, block, run_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from enum import Enum

    from loadeval.analysis.remark import Value
    from loadeval.analysis.rules.finding import Diagnosis, Finding, Outcome, Rule
    from loadeval.data.run import Run

NOTHING = "nothing found"
GAINS = {"speedup", "low", "high", "at_most", "times"}
LONGEST_CHANGE = 50
"""Characters of what the screen says."""


def diagnosed(real: Run, ideal: Run | None = None) -> Diagnosis:
    """What is found: each finding has evidence, and each remark a sentence that it fills."""
    diagnosis = diagnose(real, ideal)
    assert all(finding.evidence for finding in diagnosis.findings)
    assert all(describe(finding).endswith(".") for finding in diagnosis.findings)
    assert all(
        0 < len(change_in_short(finding)) <= LONGEST_CHANGE for finding in diagnosis.findings
    )
    for check in diagnosis.checks:
        assert bool(why_not_checked(check)) == (check.outcome == "not measured")
    return diagnosis


def finding_of(rule: Rule, real: Run, ideal: Run | None = None) -> Finding:
    """The finding of a rule, which must be there."""
    (finding,) = (finding for finding in diagnosed(real, ideal).findings if finding.rule is rule)
    return finding


def outcome(rule: Rule, real: Run, ideal: Run | None = None) -> Outcome | Enum:
    """What came of asking a rule by itself, or the code of why it could not tell."""
    answer = RULES[rule](Case(real, ideal))
    if isinstance(answer, Remark):
        return answer.code
    return NOTHING if answer is None else "found"


def advised(finding: Finding) -> list[Enum]:
    """The codes of what is advised."""
    return [change.code for change in finding.changes]


def numbers(finding: Finding) -> dict[Enum, Mapping[str, Value]]:
    """The numbers in what is advised, by its codes, but for what it is predicted to bring."""
    return {
        change.code: {name: value for name, value in change.values.items() if name not in GAINS}
        for change in finding.changes
    }


def gains(finding: Finding) -> dict[Enum, Mapping[str, Value]]:
    """What each piece of advice is predicted to bring, by its code."""
    return {
        change.code: {name: value for name, value in change.values.items() if name in GAINS}
        for change in finding.changes
    }


@pytest.fixture
def long_alternating() -> Run:
    """Thirty pairs, of whose real batches every hundredth waits long."""
    blocks = []
    for pair in range(30):
        waits_ns = [MS] * 7 + [4000 * MS if pair % 12 == 5 else MS]
        requests_ns = (pair * 20_000 + 100 * np.arange(8)) * MS
        blocks += [
            block("real", waits_ns, 99 * MS, request_ns=requests_ns, pair=pair),
            block("ideal", 0, 99 * MS, 8, request_ns=(pair * 20_000 + 10_000) * MS, pair=pair),
        ]
    return run_of(blocks, loader=LoaderInfo("torch.utils.data.DataLoader", workers=2))


@pytest.fixture
def timed_run() -> Run:
    """A log of 30 batches of 100 ns, of which number 3 waits for 900."""
    waits_ns = [10, 10, 10, 900, *[10] * 26]
    requests_ns = [0, 100, 200, 3000, *range(3990, 6500, 100)]
    return run_of([block("real", waits_ns, 90, request_ns=requests_ns)], mode="log", warmup=0)
