"""Rules are asked, and told, in one order."""

from __future__ import annotations

import subprocess
import sys

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
