"""The code of docs/frameworks.md runs as it stands, and measures; its versions are these."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from loadeval import read_run

DOCUMENT = (Path(__file__).parents[2] / "docs" / "frameworks.md").read_text(encoding="utf-8")
EXAMPLES = [
    (section.partition("\n")[0], block)
    for section in DOCUMENT.split("\n## ")
    for block in re.findall(r"(?ms)^```python\n(.*?)^```$", section)
]
BEGINNING = EXAMPLES[0][1]
MODULE, ON_ONE, ON_SEVERAL = (b for title, b in EXAMPLES if title == "Lightning")
RUNNABLE = [
    pytest.param((MODULE if block == ON_ONE else "") + block, id=title)
    for title, block in EXAMPLES
    if block not in {BEGINNING, MODULE, ON_SEVERAL}
]
BATCHES = 2 * 80


# What the frameworks have to say of such small trainings, and of torch, is theirs.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("block", RUNNABLE)
def test_an_example_measures(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends, and each batch that was trained on has its row."""
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {"__name__": "__main__"}
    exec(BEGINNING + block, scope)
    measured = scope.get("measured") or scope.get("loader") or scope["trainer"].measured
    read_to_build = int("keras" in scope)
    assert len(measured.recorded().steps) == BATCHES + read_to_build


def test_the_example_on_several_devices_measures(tmp_path: Path) -> None:
    """Lightning launches it; each rank leaves the log of its half of the batches."""
    script = tmp_path / "train.py"
    script.write_text(BEGINNING + MODULE + ON_SEVERAL, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, script],
        cwd=tmp_path,
        env={key: value for key, value in os.environ.items() if key != "PYTHONWARNINGS"},
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        assert len(read_run(tmp_path / f"rank{rank}.jsonl").steps) == BATCHES / 2


def test_the_versions_are_those_installed() -> None:
    """Each row of the table names the version that its tests have run with."""
    rows = re.findall(r"^\| [\w ,]+ \| ([\w-]+) ([\d.]+) \|", DOCUMENT, re.MULTILINE)
    assert len(rows) == 8
    for package, tested in rows:
        assert version(package).startswith(tested), package
