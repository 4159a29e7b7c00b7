"""`import loadeval` is quick, brings no framework along, and loads modules when they are used."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import loadeval
from tests.runs import DEMO
from tests.runs.measured import record

FRAMEWORKS = {
    *("torch", "nvidia", "spdl", "PIL", "tensorboard", "pyarrow", "pandas"),
    *("matplotlib", "plotly", "jinja2", "rich", "typer", "psutil"),
}
MEASURE = """
from loadeval import LoaderEvaluator
with LoaderEvaluator(range(3), {mode!r}, probes=()) as evaluator:
    for _ in evaluator:
        pass
"""


RUN = """
from loadeval.cli.main import app
for command in {commands!r}:
    try:
        app(command.split(), standalone_mode=False)
    except SystemExit:
        pass
"""


def imported(code: str = "import loadeval") -> tuple[float, set[str]]:
    """The CPU time that `code` takes in a new process, in seconds, and the modules there then."""
    script = (
        f"import time, sys\nbegan = time.process_time()\n{code}\n"
        "seconds = time.process_time() - began\n"
        "import json\nprint(json.dumps([seconds, sorted(sys.modules)]))"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout
    seconds, modules = json.loads(out.splitlines()[-1])
    return seconds, set(modules)


@pytest.mark.check
def test_import_takes_less_than_300_ms() -> None:
    """CPU time counts, whatever runs beside it: the best of five imports, each in a new process."""
    assert min(imported()[0] for _ in range(5)) < 0.3


@pytest.mark.parametrize("mode", ["log", "replay", "alternate"])
def test_measuring_loads_less_than_40_modules(mode: str) -> None:
    """Analysis and reports are loaded when somebody asks for a result, frameworks never.

    The rooms of runtime do not count: they are folders, with a docstring alone.
    """
    modules = imported(MEASURE.format(mode=mode))[1]
    own = {name for name in modules if name.startswith("loadeval")}
    folders = {package for name in own for package in own if name.startswith(f"{package}.")}
    assert len(own - folders) + len({"loadeval", "loadeval.probes"}) < 40
    assert not modules & (FRAMEWORKS - {"psutil"})
    unused = ("loadeval.estimate", "loadeval.findings", "loadeval.report")
    assert not any(name.startswith(unused) for name in own)


def test_nothing_is_imported_that_a_command_does_not_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No framework for any, and no library that draws unless something is drawn."""
    monkeypatch.chdir(tmp_path)
    for name, mode in (("log", "log"), ("other", "log"), ("replay", "replay")):
        record(tmp_path / f"{name}.jsonl", mode)
    commands = [
        *("--help", "report --help", "compare log.jsonl replay.jsonl", "doctor", "backends ."),
        *("compare log.jsonl other.jsonl", "watch log.jsonl --once", f"whatif {DEMO}"),
        *("export log.jsonl -f chrome", "export log.jsonl -f csv"),
    ]
    modules = imported(RUN.format(commands=commands))[1]
    assert not modules & (FRAMEWORKS - {"rich", "typer", "psutil"})


def test_type_checkers_know_all_names() -> None:
    """They read imports that no program makes."""
    lines = Path(loadeval.__file__).read_text(encoding="utf-8").splitlines()
    known = [line.split()[-1] for line in lines if line.startswith("    from loadeval.")]
    assert sorted(known) == loadeval.__all__


def test_an_unknown_name_is_an_attribute_error() -> None:
    name = "LoaderEvaluater"
    with pytest.raises(AttributeError, match="module 'loadeval' has no attribute 'LoaderEval"):
        getattr(loadeval, name)
    with pytest.raises(ImportError, match="cannot import name"):
        exec(f"from loadeval import {name}", {})
