"""What the pages of docs/ show is run as it stands, block by block, in the order of the page.

A block under "`name.py`, ..." is a file, a `diff` under "In `name.py`" changes one, other Python is
run here, and of `console` blocks each line after "$ ". What cannot be run says why in a comment.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from tests.runs import DEMO
from tests.runs.measured import record

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
RUN = ("index", "tutorial", "modes", "findings", "json", "howto/*", "benchmarks", "comparison")
README = ROOT / "README.md"
PAGES = [
    *(page for name in RUN for page in sorted(DOCS.glob(f"{name}.md"))),
    *(ROOT / "CONTRIBUTING.md", README),
]
RUN_ELSEWHERE = {
    *("adapters", "examples", "export", "frameworks", "how-it-measures", "inside-the-loader"),
    *("run", "run-log", "what-if"),
}
"""Pages whose code has tests of its own."""
WITHOUT_CODE = {"commands", "contributing", "gpu", "index", "reliability", "reference", "security"}
BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<mark>[^\n]+) -->\n\n)?"
    r"(?:(?P<lead>[^\n]*\S)\n\n)?^```(?P<kind>\w+)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
SMALLER = {
    "COUNT = 768": "COUNT = 64",
    "EPOCHS = 16": "EPOCHS = 2",
    "bench.ranks": "bench.ranks --ranks 4 --batches 100",
}
"""What a page does at full length, and the tests do not."""
LOGS = {
    "findings": {"run": "alternate"},
    "json": {"before": "log", "after": "log"},
    "production-monitor": {"training": "log"},
}
"""Runs that are there before the page's first block."""
FILES = {
    "ci-gate": (ROOT / "tests" / "launch" / "gated_training.py", "train.py"),
    "my-training-hangs": (ROOT / "tests" / "cli" / "hung_training.py", "train.py"),
    "json": (DEMO, "run.jsonl"),  # what is predicted needs a loader looked into
    "README": (ROOT / "examples" / "train.py", "examples/train.py"),
}
"""What is there that the page does not show."""
BIN = Path(sys.executable).parent
NOT_OURS = ("pip",)
MAY_EXIT = {
    "loadeval doctor --json": {0, 1},
    "loadeval compare now --fail-above 20": {0, 3, 4},
    "loadeval compare now --fail-above 20 || [ $? -eq 4 ]": {0, 1},
    "loadeval compare before now --fail-slower 5": {0, 3, 4},
}
"""Every code of a command whose code depends on the machine; any other exits with 0."""


class Block(NamedTuple):
    """A fenced block, the line above it, and the comment that it is not run."""

    mark: str | None
    lead: str | None
    kind: str
    text: str

    @property
    def file(self) -> str | None:
        """The file that the line above names."""
        match = re.match(r"(?:In )?`([\w./-]+\.py)`", self.lead or "")
        return match and match[1]


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [Block(**match.groupdict()) for match in BLOCK.finditer(text)]


def smaller(text: str) -> str:
    for long, short in SMALLER.items():
        text = text.replace(long, short)
    return text


def changed(text: str, diff: str) -> str:
    """`text` after the hunks of `diff`, each of which fits it at one place."""
    for hunk in re.split(r"^@@.*\n", diff, flags=re.MULTILINE):
        lines = [(line[:1], line[1:]) for line in hunk.splitlines(keepends=True)]
        before = "".join(line for sign, line in lines if sign in " -")
        after = "".join(line for sign, line in lines if sign in " +")
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    return text


def run_commands(text: str) -> None:
    """Each line after "$ "; where `echo $?` follows, with the exit code that is shown."""
    matches = re.findall(r"^\$ ([^\n]+)\n((?:(?!\$ )[^\n]*\n)*)", text, re.MULTILINE)
    for number, (command, shown) in enumerate(matches):
        if command.startswith(NOT_OURS) or command == "echo $?":
            continue
        following, code = matches[number + 1] if number + 1 < len(matches) else ("", "")
        allowed = {int(code)} if following == "echo $?" else MAY_EXIT.get(command, {0})
        run = smaller(command)
        if run.startswith("make "):
            run = run.replace("make ", f"make -n -C {ROOT} ")
        run = run.replace("python -m bench.", f"PYTHONPATH={ROOT} python -m bench.")
        done = subprocess.run(["/bin/bash", "-c", run], capture_output=True, text=True, check=False)
        assert done.returncode in allowed, (run, done.stdout[-2000:], done.stderr[-2000:])
        if command.startswith("loadeval"):
            check_labels(shown, done.stdout + done.stderr)


def check_labels(shown: str, printed: str) -> None:
    for label in re.findall(r"^([a-z][a-z -]*[a-z])  +\S", shown, re.MULTILINE):
        assert re.search(rf"^{label}  ", printed, re.MULTILINE), label


def what_readers_have() -> dict[str, Any]:
    """A loader, a model and a training loop."""
    model = torch.nn.Linear(2, 1)

    def train_one_epoch(model: torch.nn.Module, loader: DataLoader[torch.Tensor]) -> None:
        for (batch,) in loader:
            model(batch).sum().backward()

    dataloader = DataLoader(TensorDataset(torch.randn(800, 2)), batch_size=8)
    return {"dataloader": dataloader, "model": model, "train_one_epoch": train_one_epoch}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{BIN}{os.pathsep}{os.environ['PATH']}")
    for name, mode in LOGS.get(page.stem, {}).items():
        # Three epochs of texts.
        times = {"epochs": 3, "batches": 120, "wait_ms": 3, "step_ns": 5_000_000}
        record(tmp_path / f"{name}.jsonl", mode, batch="text", num_cached_batches=4, **times)
    if page.stem in FILES:
        path, name = FILES[page.stem]
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(path, tmp_path / name)
    scope = what_readers_have()
    for block in blocks_of(page):
        if block.mark:
            continue
        if block.kind == "diff":
            path = Path(str(block.file))
            path.write_text(changed(path.read_text(), smaller(block.text)))
        elif block.kind == "python" and block.file:
            Path(block.file).write_text(smaller(block.text))
        elif block.kind == "python":
            exec(block.text, scope)
        elif block.kind == "console":
            run_commands(block.text)


def test_every_block_was_found() -> None:
    """No fence is written in a way that leaves its block out."""
    for page in PAGES:
        fences = len(re.findall(r"^```", page.read_text(encoding="utf-8"), re.MULTILINE))
        directives = len(re.findall(r"^```\{", page.read_text(encoding="utf-8"), re.MULTILINE))
        assert fences - 2 * directives == 2 * len(blocks_of(page)), page


def test_every_page_is_run_somewhere() -> None:
    """Here, by a test of its own, or it has no code."""
    ours = {page.stem for page in PAGES}
    assert {page.stem for page in DOCS.rglob("*.md")} <= ours | RUN_ELSEWHERE | WITHOUT_CODE


@pytest.mark.parametrize("test", [block.mark for block in blocks_of(README) if block.mark])
def test_what_the_readme_does_not_run_is_run_elsewhere(test: str) -> None:
    assert (ROOT / test.removesuffix(" does")).exists()


def test_the_readme_is_short() -> None:
    """It can be read in five minutes, and its screen is one of 25 by 80."""
    prose = re.sub(r"```.*?```|<!--.*?-->", "", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(prose.split()) <= 600
    printed = blocks_of(README)[0].text.splitlines()[1:]
    shown = [line for line in printed if not line.startswith("epoch ")]  # the script's own
    assert len(shown) <= 25
    assert max(map(len, shown)) <= 80


def test_make_demo_runs_the_command() -> None:
    command = ["make", "-n", "demo"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert ".venv/bin/loadeval demo --output loadeval-demo" in done.stdout
