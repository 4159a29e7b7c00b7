"""Rules are asked, and told, in one order."""

from __future__ import annotations

import subprocess
import sys

from loadeval.findings.engine import diagnose
from tests.builder import logged

TOLD = """
import {first}
from loadeval.findings.engine import diagnose
from tests.builder import alternating
diagnosis = diagnose(alternating())
print(*diagnosis.nothing, *diagnosis.skipped, sep=", ")
"""


def test_it_is_the_same_whatever_was_imported_first() -> None:
    """Attaching to a process imports some of the rooms of rules, and not the first one first."""
    told = [
        subprocess.run(
            [sys.executable, "-c", TOLD.format(first=first)], capture_output=True, check=True
        ).stdout
        for first in ("loadeval.findings.engine", "loadeval.findings.run")
    ]
    assert told[0] == told[1]


def test_rules_that_need_a_longer_run_say_so_together() -> None:
    """Forty steady batches do for all that judge by them alone."""
    short, longer = diagnose(logged([0.1] * 11)), diagnose(logged([0.1] * 41))
    assert {"stalls", "outliers", "drift"} <= short.more_batches.keys()
    assert max(short.more_batches.values()) == 33
    assert longer.more_batches == {}
