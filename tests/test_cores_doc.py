"""What docs/howto/cores-per-gpu.md says is so."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from loadeval.analysis.machine import MLPERF_STEPS
from loadeval.cli.main import app
from tests.runs import DEMO

if TYPE_CHECKING:
    from collections.abc import Sequence

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "howto" / "cores-per-gpu.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\$ (loadeval plan .*)$", PAGE, re.MULTILINE)


@pytest.fixture(autouse=True)
def _in_the_folder_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(DEMO, tmp_path / "run.jsonl")


def printed(command: str) -> Sequence[str]:
    done = CliRunner().invoke(app, command.split()[1:], env={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    return [line.rstrip() for line in done.stdout.splitlines()]


def test_the_command_prints_what_is_shown() -> None:
    """Of this machine only its memory is told, which is not in the page."""
    (shown,) = re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert printed(COMMANDS[0]) == shown.splitlines()


def test_page_and_figure_are_written(tmp_path: Path) -> None:
    printed(COMMANDS[1])
    assert (tmp_path / "plan.html").exists()
    assert (tmp_path / "plan.png").exists()


def test_python_plans(capsys: pytest.CaptureFixture[str]) -> None:
    """The code of the page."""
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    exec(code, {})
    out = capsys.readouterr().out
    assert re.fullmatch(r"\d\d% busy, \d+ workers each\n(faster shrink|CPUs ) [\s\S]*%\n", out)


def test_all_published_steps_are_listed() -> None:
    """With their times and batches."""
    for name, (seconds, samples) in MLPERF_STEPS.items():
        text = f"{seconds * 1e3:.3g}" if seconds * 1e3 >= 10 else f"{seconds * 1e3:.2f}"
        plural = "sample" if samples == 1 else "samples"
        assert f"| `{name}` | {text} ms | {samples} {plural} |" in PAGE
