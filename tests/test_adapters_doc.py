"""What docs/adapters.md says is so, and its code works as it stands, installed as it says."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from loadeval import Adapter, LoaderEvaluator, LoadevalWarning, read_run
from loadeval.testing import AdapterContract

DOCUMENT = (Path(__file__).parents[1] / "docs" / "adapters.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"(?ms)^`([\w./]+)`, [^\n]*:\n\n```\w+\n(.*?)^```$", DOCUMENT))
BLOCKS = re.findall(r"(?ms)^```python\n(.*?)^```$", DOCUMENT)
PYTHON = Path(sys.executable)
ADAPTER = "blockreader.loadeval_adapter"
BLOCKS_IN_FILE = 7
"""Each has 256 records of 64 bytes; the last one is shorter."""
READER = """
from blockreader import BlockReader
from loadeval import LoaderEvaluator
reader = BlockReader("records.bin", record_bytes=64, rows=256)
"""


@dataclass(frozen=True)
class Place:
    """A folder to work in, and what is on the module path there."""

    folder: Path
    module_path: Path

    def run(self, *command: str | Path) -> str:
        environment = {key: value for key, value in os.environ.items() if key != "FORCE_COLOR"}
        environment["PYTHONPATH"] = str(self.module_path)
        done = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def python(self, script: str) -> str:
        """What `script` prints, with the document's reader at hand."""
        return self.run(PYTHON, "-c", READER + script)


@pytest.fixture(scope="module", name="project")
def _project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the document names, as it shows them."""
    project = tmp_path_factory.mktemp("project")
    for name, content in FILES.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(content, encoding="utf-8")
    return project


@pytest.fixture(scope="module", name="installed")
def _installed(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Where the document's project is installed, and its file of records lies."""
    site, folder = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("work")
    offline = ("--quiet", "--no-index", "--no-deps", "--no-build-isolation")
    Place(folder, site).run(PYTHON, "-m", "pip", "install", *offline, "--target", site, project)
    write_records(folder)
    return Place(folder, site)


def write_records(folder: Path, blocks: int = BLOCKS_IN_FILE) -> None:
    records = np.arange(16 * (256 * blocks - 100), dtype=np.uint32)
    records.tofile(folder / "records.bin")


def test_the_document_shows_a_whole_project() -> None:
    """Loader, adapter, registration, test and use."""
    assert set(FILES) == {
        "blockreader/__init__.py",
        "blockreader/loadeval_adapter.py",
        "blockreader/loadeval_stages.py",
        "pyproject.toml",
        "tests/test_loadeval_adapter.py",
        "measure.py",
    }


def test_the_adapter_is_short() -> None:
    """An adapter of one's own takes under 40 lines."""
    assert len(FILES["blockreader/loadeval_adapter.py"].splitlines()) < 40


def test_the_registry_finds_the_adapter(installed: Place) -> None:
    """The entry point of the installed project names it, also for subclasses of the loader."""
    script = """
from loadeval.adapter import adapter_for
class Mine(BlockReader): pass
for loader in (reader, Mine("records.bin", 64, 256)):
    print(type(adapter_for(loader)).__module__)
"""
    assert installed.python(script).splitlines() == [ADAPTER] * 2


def test_log_mode_serves_whole_epochs(installed: Place) -> None:
    """Each epoch has all blocks of the file, in order, one broken off before it or not."""
    script = """
import numpy as np
file = np.fromfile("records.bin", np.uint8).reshape(-1, 64)
loader = LoaderEvaluator(reader)
for block in loader:
    break
for epoch in range(2):
    assert np.array_equal(np.concatenate([block.copy() for block in loader]), file)
steps = loader.recorded().steps
print(*np.bincount(steps.epoch), steps.samples[-1])
"""
    epochs = f"1 {BLOCKS_IN_FILE} {BLOCKS_IN_FILE} 156\n"
    assert installed.python(script) == epochs


def test_replay_serves_kept_blocks(installed: Place) -> None:
    """An epoch has as many as the loader says; the reader's thread is stopped."""
    script = """
import numpy as np
loader = LoaderEvaluator(reader, mode="replay", num_cached_batches=2)
assert reader.thread is None
first = [int(block.view(np.uint32)[0, 0]) for block in loader]
print(*first)
"""
    one_after_the_other = [0, 256 * 16] * BLOCKS_IN_FILE
    expected = " ".join(map(str, one_after_the_other[:BLOCKS_IN_FILE]))
    assert installed.python(script) == expected + "\n"


def test_the_description_is_the_adapters(installed: Place) -> None:
    """What is known of the reader is in the run."""
    script = """
loader = LoaderEvaluator(reader)
list(loader)
info = loader.recorded().header.loader
print(info.adapter, info.workers, info.prefetch_depth, info.batch_size, info.length)
"""
    described = f"{ADAPTER}.BlockReaderAdapter 1 2 256 {BLOCKS_IN_FILE}\n"
    assert installed.python(script) == described


def test_the_stages_are_in_the_run(installed: Place) -> None:
    """Every block of every epoch has its read, and afterwards the loader is as it was."""
    script = """
loader = LoaderEvaluator(reader, stages=True)
for epoch in range(2):
    list(loader)
loader.close()
run = loader.recorded()
for epoch, times in run.stages.by("epoch"):
    assert (times.fetch_ns > 0).all() and (times.fetch_start_ns > 0).all()
    print(epoch, times.batch.tolist(), times.samples.sum(), times.collate_ns.max())
print(run.events, "_read" in vars(reader))
"""
    batches, samples = list(range(BLOCKS_IN_FILE)), 256 * BLOCKS_IN_FILE - 100
    epochs = "".join(f"{epoch} {batches} {samples} -1\n" for epoch in range(2))
    assert installed.python(script) == f"{epochs}() False\n"


def test_without_the_adapter_an_epoch_is_empty(installed: Place, project: Path) -> None:
    """The loader found in its source tree, where no adapter is registered, is not rewound."""
    script = """
import warnings
warnings.simplefilter("ignore")
loader = LoaderEvaluator(reader)
print(loader.recorded().header.loader.adapter, len(list(loader)))
"""
    printed = Place(installed.folder, project).python(script)
    assert printed == "loadeval.adapter.IterableAdapter 0\n"


@pytest.mark.check
def test_the_contract_passes(installed: Place, project: Path) -> None:
    """Every test of AdapterContract, and the one that the document adds."""
    contract = [name for name in vars(AdapterContract) if name.startswith("test_")]
    options = ("-q", "-p", "no:cacheprovider", "-W", "error", "--import-mode=importlib")
    tests = project / "tests" / "test_loadeval_adapter.py"
    printed = installed.run(PYTHON, "-m", "pytest", *options, tests)
    assert f"\n{len(contract) + 1} passed" in printed


def test_the_use_that_is_shown_measures(installed: Place, project: Path, tmp_path: Path) -> None:
    """The script runs, prints a result, and leaves a run log of three whole epochs."""
    write_records(tmp_path, blocks=60)
    script = (project / "measure.py").read_text(encoding="utf-8")
    printed = Place(tmp_path, installed.module_path).run(PYTHON, "-c", script)
    assert "if loading were free" in printed
    run = read_run(tmp_path / "run.jsonl")
    assert run.header.loader.adapter == f"{ADAPTER}.BlockReaderAdapter"
    assert np.bincount(run.steps.epoch).tolist() == [60] * 3


def test_a_callable_serves_every_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The document's generator function is called anew for each."""
    monkeypatch.chdir(tmp_path)
    write_records(tmp_path)
    (block,) = (block for block in BLOCKS if "def blocks():" in block)
    scope: dict[str, LoaderEvaluator] = {}
    exec(block, scope)
    batches = np.bincount(scope["loader"].recorded().steps.epoch).tolist()
    assert batches == [-(-Path("records.bin").stat().st_size // 4096)] * 3


def test_a_generator_serves_one_epoch() -> None:
    """A second one is empty, with a warning."""
    evaluator = LoaderEvaluator(number for number in range(3))
    assert list(evaluator) == [0, 1, 2]
    with pytest.warns(LoadevalWarning, match="wrap a callable"):
        assert list(evaluator) == []


def test_every_method_of_an_adapter_is_described() -> None:
    """The table has a row for each method of the protocol, with its arguments, in order."""
    rows = re.findall(r"^\| `(\w+)\(([\w, ]*)\)` \|", DOCUMENT, re.MULTILINE)
    methods = [
        (name, ", ".join(list(inspect.signature(method).parameters)[1:]))
        for name, method in vars(Adapter).items()
        if inspect.isfunction(method) and not name.startswith("_")
    ]
    assert rows == methods


def test_every_adapter_of_loadevals_is_in_the_table() -> None:
    """Its rows are the entry points that loadeval is installed with."""
    rows = re.findall(r"^\| `([\w.]+)` \| `(loadeval[\w.:]+)` \|", DOCUMENT, re.MULTILINE)
    ours = metadata.distribution("loadeval").entry_points.select(group="loadeval.adapters")
    assert sorted(rows) == sorted((own.name, own.value) for own in ours)
