"""What is found in recorded runs is what their table says."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadeval.findings.engine import RULES
from tests.recorded import TABLE, found_in, rows_of

NOT_RECORDED = {
    *("batches passed over", "one process serves all", "open files", "samples served twice"),
    *("samples thrown away", "slow validation"),
}
"""The last is found in a folder whose validation loader has a log of its own."""
ROWS = rows_of(TABLE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ROWS)
def test_what_is_found_in_a_run(name: str, tmp_path: Path) -> None:
    assert found_in(name, tmp_path) == ROWS[name][1]


def test_each_rule_is_found_in_some_run() -> None:
    cells = "; ".join(found for _, found in ROWS.values())
    found = {rule for cell in cells.split("; ") for rule in cell.rpartition(": ")[2].split(", ")}
    missing = {rule.name for rule in RULES.values()} - found
    assert missing == NOT_RECORDED
