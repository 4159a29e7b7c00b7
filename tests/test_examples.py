"""Every example runs as it is, and what it says and leaves behind holds on any machine."""

from __future__ import annotations

import io
import json
import re
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from loadeval import read_run
from tests.launch.conftest import ran

EXAMPLES = Path(__file__).parents[1] / "examples"
NOTEBOOK = EXAMPLES / "notebook.ipynb"
DOCUMENT = EXAMPLES.parent / "docs" / "examples.md"
WRITES = {
    "quickstart.py": {"run.jsonl", "comparison.png"},
    "slow_to_fast.py": {"slow-to-fast.png"},
    "generator.py": {"documents.txt", "run.jsonl", "comparison.png"},
    "video.py": {"run.jsonl", "comparison.png"},
    "distributed.py": {"rank0.jsonl"},
    "migrate_from_dali.py": {"real.json", "ideal.json", "two-runs.png", "alternate.jsonl"},
}
"""The files that each example leaves behind; on a GPU there may be more."""
ELSEWHERE = {"train.py"}
"""Run by tests/launch/test_run_doc.py."""
NEEDS = {"migrate_from_dali.py": ["nvidia.dali"]}
OPTIONS = {
    "slow_to_fast.py": "--photographs 240 --width 160 --pairs 1",
    "generator.py": "--documents 250",
    "video.py": "--videos 40 --epochs 3",
    "distributed.py": "--samples 960 --epochs 2",
    "migrate_from_dali.py": "--photographs 160 --epochs 4",
}
"""For a short run; what stands before the folder."""
SHOWN = ["slow_to_fast.py", "migrate_from_dali.py"]
"""Those whose output the document shows."""


class Outcome:
    """What an example printed, and the folder with what it left behind."""

    def __init__(self, name: str, folder: Path, *before: str) -> None:
        for module in NEEDS.get(name, []):
            pytest.importorskip(module)
        folder.mkdir()
        command = [sys.executable, *(before or ("-W", "error"))]
        options = OPTIONS.get(name, "").split()
        done = ran(folder.parent, *command, EXAMPLES / name, *options, folder, timeout_s=300)
        assert done.returncode == 0, done.stderr
        self.folder = folder
        self.printed = done.stdout


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """Each example is run once, when a test first asks for it."""

    class Run(dict[str, Outcome]):
        def __missing__(self, name: str) -> Outcome:
            self[name] = Outcome(name, tmp_path_factory.mktemp("example") / "results")
            return self[name]

    return Run()


def test_all_examples_are_run() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(WRITES) | ELSEWHERE


@pytest.mark.parametrize("name", [*WRITES])
def test_an_example_writes_what_it_says(name: str, outcomes: dict[str, Outcome]) -> None:
    outcome = outcomes[name]
    assert {path.name for path in outcome.folder.iterdir() if path.is_file()} >= WRITES[name]
    figures = [file for file in WRITES[name] if file.endswith(".png")]
    assert all(figure in outcome.printed for figure in figures)


def test_every_rank_is_told_of(tmp_path: Path) -> None:
    """Each has a log under torchrun, all follow one schedule, and rank 0 tells of all, once."""
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    outcome = Outcome("distributed.py", tmp_path / "ranks", *launcher)
    assert re.findall(r"^rank \d", outcome.printed, re.MULTILINE) == ["rank 0", "rank 1"]
    first, other = (read_run(outcome.folder / f"rank{rank}.jsonl").steps for rank in (0, 1))
    assert len(first) == 2 * 960 // (2 * 16)
    assert first.arm.tolist() == other.arm.tolist()
    assert first.pair.tolist() == other.pair.tolist()


def test_the_lines_that_are_kept_work_with_dalis_class(tmp_path: Path) -> None:
    pytest.importorskip("nvidia.dali")
    before = "from nvidia.dali.plugin.pytorch.loader_evaluator import LoaderEvaluator\n"
    after = "from loadeval import LoaderEvaluator, plot_comparison\n"
    source = (EXAMPLES / "migrate_from_dali.py").read_text(encoding="utf-8")
    assert source.count(after) == source.count(before) == 1
    as_it_was = source.replace(after, before)
    kept = as_it_was[: as_it_was.index("    files = (")] + "\n\nmain()\n"
    script = tmp_path / "as_it_was.py"
    script.write_text(kept, encoding="utf-8")
    done = ran(tmp_path, "python", script, "--photographs", "64", tmp_path, timeout_s=120)
    assert done.returncode == 0, done.stderr
    assert {"real.json", "ideal.json"} <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize("name", SHOWN)
def test_the_output_shown_is_of_today(name: str, outcomes: dict[str, Outcome]) -> None:
    """The lines that the document shows begin as those of today do; their figures are chance."""
    section = DOCUMENT.read_text(encoding="utf-8").split(f"\n## {name.removesuffix('.py')}\n")[1]
    block = re.search(r"```console\n\$ [^\n]*\n(.*?)```", section, re.DOTALL)
    assert block is not None
    assert _beginnings(block[1]) == _beginnings(outcomes[name].printed)


def test_the_notebook_prints_what_it_shows(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cell by cell, in one process; the numbers are chance. --rewrite-golden shows today's."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    shown = ["".join(_lines(cell)) for cell in cells]
    scope: dict[str, Any] = {"__name__": "__main__"}
    today = [_printed("".join(cell["source"]), scope) for cell in cells]
    if request.config.getoption("rewrite_golden"):
        for number, (cell, text) in enumerate(zip(cells, today, strict=True), 1):
            lines = text.splitlines(keepends=True)
            output = {"name": "stdout", "output_type": "stream", "text": lines}
            cell["execution_count"], cell["outputs"] = number, [output] if lines else []
        text = json.dumps(notebook, indent=1, ensure_ascii=False)
        NOTEBOOK.write_text(f"{text}\n", encoding="utf-8")
    else:
        assert list(map(_form, today)) == list(map(_form, shown))


def _lines(cell: dict[str, Any]) -> list[str]:
    """What a cell of a notebook shows on stdout."""
    return [line for output in cell["outputs"] for line in output["text"]]


def _printed(code: str, scope: dict[str, Any]) -> str:
    stdout = io.StringIO()
    with redirect_stdout(stdout):
        exec(code, scope)
    return stdout.getvalue()


def _form(printed: str) -> str:
    """Without the numbers."""
    return re.sub(r"(under )?-?\d+(\.\d+)?", "0", printed)


def _beginnings(printed: str) -> set[str]:
    """The first word of each line, where it is one."""
    return set(re.findall(r"^[A-Za-z]\w*", printed, re.MULTILINE))
