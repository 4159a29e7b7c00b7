"""Instruments stand outside: they import public names."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1] / "bench"
PUBLIC = {"loadeval", "loadeval.testing"}
INSIDE = {
    *("fuzz/run.py", "looking.py", "promises/test_reproductions.py", "intervals.py"),
    *("record.py", "hangs/record.py", "zoo/workloads.py", "findings_page.py", "json_page.py"),
    *("screen.py", "gpu/rows.py"),
}
"""Each says why beside its import; those that record logs or write pages are no judges."""


def imported(path: Path) -> set[str]:
    """The modules of loadeval that a file imports names of."""
    modules = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            modules.add(node.module or "")
        elif isinstance(node, ast.Import):
            modules.update(name.name for name in node.names)
    return {module for module in modules if module.partition(".")[0] == "loadeval"}


@pytest.mark.parametrize("path", sorted(BENCH.rglob("*.py")), ids=lambda path: path.name)
def test_an_instrument_imports_public_names(path: Path) -> None:
    is_inside = path.relative_to(BENCH).as_posix() in INSIDE
    assert bool(imported(path) - PUBLIC) is is_inside
