"""A framework that loadeval has never heard of: one file and one entry point, as documented."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loadeval import LoaderEvaluator, Run, diagnose, read_run
from loadeval import adapter as registry
from loadeval.data.folder import processes_in
from loadeval.data.lines import Mode
from loadeval.testing import AdapterContract
from tests.launch.conftest import environment, launch_command

DOCUMENT = (Path(__file__).parents[2] / "docs" / "adapters.md").read_text(encoding="utf-8")
SECTION = DOCUMENT.split("\n## Add a framework of yours\n")[1].split("\n## ")[0]
FILES = dict(re.findall(r"(?ms)^File `([\w./-]+)`[^\n]*:\n\n```\w+\n(.*?)^```$", SECTION))
TRAIN = """
from lanes import LaneLoader

loader = LaneLoader(40)
for epoch in range(3):
    for batch in loader:
        sum(range(1000))
print(epoch)
"""


@pytest.fixture(name="lanes")
def _lanes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The document's package, installed: files, and metadata with entry points."""
    site = tmp_path / "site"
    for name, text in FILES.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text, encoding="utf-8")
    info = site / "lanes-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lanes\nVersion: 0.1\n")
    ((name, value),) = re.findall(r'^"(\S+)" = "(\S+)"$', FILES["pyproject.toml"], re.MULTILINE)
    (info / "entry_points.txt").write_text(f"[{registry.GROUP}]\n{name} = {value}\n")
    monkeypatch.syspath_prepend(site)
    importlib.invalidate_caches()
    registry.registered.cache_clear()
    yield importlib.import_module("lanes")
    registry.registered.cache_clear()
    for module in [module for module in sys.modules if module.split(".")[0] == "lanes"]:
        del sys.modules[module]


def measured(loader: Any, mode: Mode = "log") -> Run:
    evaluator = LoaderEvaluator(loader, mode, probes=())
    for _ in range(3):
        list(evaluator)
    evaluator.close()
    return evaluator.recorded()


def test_its_adapter_describes_it(lanes: Any) -> None:
    header = measured(lanes.LaneLoader(8, lanes=2)).header
    assert header.loader.adapter == "lanes.loadeval_adapter.LaneAdapter"
    assert (header.loader.workers, header.loader.prefetch_depth) == (2, 4)
    assert header.loader.setting_names == {"num_workers": "lanes", "prefetch_depth": "ahead"}
    assert header.environment["packages"]["lanes"] == "0.1"


@pytest.mark.check
def test_the_contract_passes(lanes: Any) -> None:
    """The document's test, which is every test of AdapterContract."""
    contract = [name for name in vars(AdapterContract) if name.startswith("test_")]
    site, variables = Path(lanes.__file__).parents[1], environment()
    variables["PYTHONPATH"] = f"{variables['PYTHONPATH']}:{site}"
    options = ("-q", "-p", "no:cacheprovider", "-W", "error", "--import-mode=importlib")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, site / "lanes" / "test_adapter.py"],
        cwd=site,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"\n{len(contract)} passed" in done.stdout, done.stdout


@pytest.mark.check
def test_an_unmodified_program_is_measured(lanes: Any, tmp_path: Path) -> None:
    """`loadeval run` measures it, and its output is its own."""
    folder, variables = tmp_path / "logs", environment()
    site = Path(lanes.__file__).parents[1]
    variables["PYTHONPATH"] = f"{variables['PYTHONPATH']}:{site}"
    command = [*launch_command(folder), sys.executable, "-c", TRAIN]
    done = subprocess.run(
        command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[0] == "2"
    (process,) = processes_in(folder)
    assert process.main is not None
    run = read_run(folder / process.main.log)
    assert run.batches == 120
    assert run.header.loader.backend == "lanes.LaneLoader"


@pytest.mark.check
def test_advice_names_its_settings(lanes: Any, tmp_path: Path) -> None:
    """The log is read where neither it nor its adapter is."""
    path = tmp_path / "run.jsonl"
    with LoaderEvaluator(lanes.LaneLoader(400), "alternate", log_file=path) as evaluator:
        for _ in range(2):
            for _ in evaluator:
                sum(range(20_000))
    registry.registered.cache_clear()
    actions = [action.says for action in diagnose(read_run(path)).actions]
    assert "try lanes above 1, or make loading cheaper" in actions
