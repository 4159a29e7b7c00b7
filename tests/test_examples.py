"""Every example runs as it is, and writes what it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
WRITES = {
    "quickstart.py": {"run.jsonl", "comparison.png"},
    "backends.py": {"torch.jsonl", "dali-cpu.jsonl", "spdl.jsonl", "backends.png"},
}
"""The files that each example leaves behind; on a GPU there may be more."""
NEEDS = {"backends.py": ["nvidia.dali", "spdl.pipeline"]}
OPTIONS = {"backends.py": ["--batches", "24", "--output"]}
"""What stands before the folder."""


def test_all_examples_are_run() -> None:
    """There is no example that the tests leave out."""
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(WRITES)


@pytest.mark.parametrize("name", WRITES)
def test_example(name: str, tmp_path: Path) -> None:
    """An example writes its files into the folder given, and tells of its figure."""
    for module in NEEDS.get(name, []):
        pytest.importorskip(module)
    folder = tmp_path / "results"
    folder.mkdir()
    result = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / name, *OPTIONS.get(name, []), folder],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert {path.name for path in folder.iterdir() if path.is_file()} >= WRITES[name]
    figures = [name for name in WRITES[name] if name.endswith(".png")]
    assert all(figure in result.stdout for figure in figures)
