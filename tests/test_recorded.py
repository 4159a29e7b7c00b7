"""What is found in recorded runs is what their table says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.recorded import TABLE, found_in, rows_of

if TYPE_CHECKING:
    from pathlib import Path

ROWS = rows_of(TABLE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ROWS)
def test_what_is_found_in_a_run(name: str, tmp_path: Path) -> None:
    assert found_in(name, tmp_path) == ROWS[name][1]
