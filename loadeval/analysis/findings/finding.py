"""A finding: what is wrong, the figures that say so, what it costs and what to change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["high", "moderate", "low"]
Confidence = Literal["measured", "likely", "possible"]
Outcome = Literal["found", "nothing found", "not measured"]


@dataclass(frozen=True, slots=True)
class Fact:
    """A figure that a finding rests on.

    `unit` is "ns", "bytes", "share" (0 to 1), "x" (a factor), "rank correlation" (-1 to 1), or
    what is counted: "batches", "CPUs", "workers" and so on. `low` and `high` bound its 95%
    interval where it has one.
    """

    name: str
    value: float
    unit: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """A batch that shows what was found: number `batch` of `epoch`, both from 0.

    `start_ns`, since the run's start, is when it was asked for, `end_ns` when its step ended;
    None where that is not known.
    """

    epoch: int
    batch: int
    start_ns: int | None
    end_ns: int | None
    wait_ns: int


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    `rule` is its short name, the same in every run, and `cost_share` the share of the training
    time that it costs, 0 to 1, no part of which is in the cost of another finding; None where it
    is not known, or where others have it all. `confidence` is "measured" where what is wrong was,
    "likely" where it is inferred from figures that leave little else, and "possible" where other
    causes would look the same, or the run was too short to be sure. `source` says where the rule
    is from.
    """

    rule: str
    severity: Severity
    sentence: str
    evidence: tuple[Fact, ...]
    advice: str
    confidence: Confidence
    source: str
    cost_share: float | None = None
    places: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True)
class Check:
    """A rule that was asked: its question, and what came of it; `reason` why nothing could."""

    rule: str
    question: str
    outcome: Outcome
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The findings, the costliest first, and everything that was checked."""

    findings: tuple[Finding, ...]
    checks: tuple[Check, ...]
