"""Padding: what a batch has besides its samples, and a step works on all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.estimate.padding import padding_share
from loadeval.analysis.estimate.verdict import HIGH_SHARE, MODERATE_SHARE
from loadeval.analysis.remark import Remark
from loadeval.analysis.rules.case import severity_of
from loadeval.analysis.rules.finding import Advice, Fact, Finding, Problem, Rule, Unknown

if TYPE_CHECKING:
    from loadeval.analysis.remark import Value
    from loadeval.analysis.rules.case import Answer, Case
    from loadeval.analysis.rules.finding import Severity

MOST_GAIN = 0.99
"""Of an iteration: no more is predicted to be gained."""


def padding(case: Case) -> Answer:
    """Much of the batches is padding, and steps take longer for it.

    That time is not lost to loading, so it is no cost: what is predicted is the speed-up.
    """
    figures = padding_share(case.real)
    if figures is None:
        return Remark(Unknown.NO_PADDING_TOLD)
    share, step_ns, saved, length = (
        figures.share,
        figures.step_ns,
        figures.saved_ns,
        figures.length,
    )
    values: dict[str, Value] = {"share": share.value, "low": share.low, "high": share.high}
    evidence = [
        Fact("padding", share.value, "share", share.low, share.high),
        Fact("batches looked at", figures.batches, "batches"),
    ]
    problem, group, gain = Problem.TOKENS_PADDED, Remark(Advice.GROUP_BY_LENGTH), None
    unpredicted: Severity = "low"
    changes = [group]
    if saved is not None and step_ns is not None and len(case.rows):
        gain = min(saved.value / (step_ns + float(case.wait_ns.mean())), MOST_GAIN)
        changes = [Remark(group.code, {"at_most": 1 / (1 - gain)})]
        evidence.append(Fact("of a step, for padding", saved.value, "ns", saved.low, saved.high))
    if length is not None and figures.longest < length:
        problem, unpredicted = Problem.PADDED_TO_MAXIMUM, "moderate"
        values |= {"length": length, "longest": figures.longest}
        changes.insert(0, Remark(Advice.PAD_TO_LONGEST))
    if share.value < HIGH_SHARE or (gain is not None and gain < MODERATE_SHARE):
        return None
    return Finding(
        Rule.PADDING,
        unpredicted if gain is None else severity_of(gain),
        "possible" if gain is None else "measured",
        Remark(problem, values),
        tuple(changes),
        tuple(evidence),
    )
