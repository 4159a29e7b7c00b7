"""What to change, in a few words."""

from __future__ import annotations

from loadeval.analysis.remark import Remark
from loadeval.analysis.rules.finding import Advice, Finding, Problem, Rule
from loadeval.report.wording.advice import change_in_short


def test_a_loader_that_was_not_timed_alone_is_to_be_cheaper() -> None:
    """It is not known by how much."""
    problem = Remark(Problem.NOTHING_LOADED_AHEAD, {"wait_share": 0.5})
    changes = (Remark(Advice.CHEAPER_OR_CPUS),)
    finding = Finding(Rule.ZERO_WORKERS, "high", "measured", problem, changes, ())
    assert change_in_short(finding) == "make loading cheaper"
