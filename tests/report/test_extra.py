"""Without the packages of `loadeval[report]` every command that draws says what to install."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from loadeval import UsageError, plot_comparison, plot_worker_curve
from tests.cli.commands import runner
from tests.runs import DEMO
from tests.runs.measured import record

INSTALL = "which is not installed; install it with: pip install matplotlib jinja2"
WITHOUT = {
    ("compare", "{log}", "-o", "figure.png"): "charts need the package matplotlib",
    ("whatif", "{log}", "-o", "figure.png"): "charts need the package matplotlib",
    ("report", "{log}"): "a page needs the package jinja2",
}


@pytest.fixture(autouse=True)
def _neither(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for package in ("matplotlib", "jinja2"):
        monkeypatch.setitem(sys.modules, package, None)
    for module in ("charts", "html"):
        monkeypatch.delitem(sys.modules, f"loadeval.report.{module}", raising=False)
        monkeypatch.delattr(f"loadeval.report.{module}", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("command", WITHOUT)
def test_a_command_that_draws(command: tuple[str, ...], tmp_path: Path) -> None:
    log = shutil.copy(DEMO, tmp_path / "run.jsonl")
    code, out, err = runner()(*(word.format(log=log) for word in command))
    assert (code, out, err) == (1, "", f"Error: {WITHOUT[command]}, {INSTALL}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["run.jsonl"]


@pytest.mark.parametrize("plot", [plot_comparison, plot_worker_curve])
def test_functions_raise(plot: object, tmp_path: Path) -> None:
    assert callable(plot)
    with pytest.raises(UsageError, match=r"needs? the package matplotlib, which is not installed"):
        plot(record(tmp_path / "run.jsonl"), output=tmp_path / "figure.png")
