"""The documentation tells every rule."""

from __future__ import annotations

import re
from pathlib import Path

from loadeval.analysis.rules.diagnosis import RULES

DOC = Path(__file__).parents[3] / "docs/findings.md"


def test_each_rule_is_in_the_table() -> None:
    """By its name and question, in the same order, and no other is."""
    rows = re.findall(r"^\| `([^`]+)` \| ([^|]+) \|", DOC.read_text(), re.MULTILINE)
    assert rows == [(rule.name, rule.question) for rule in RULES]
