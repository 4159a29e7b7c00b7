"""Every command and code block of the README works, and prints what the README shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from shutil import copytree

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
NOT_RUN = re.compile(r"<!-- not run: (\S+) does -->\n\n```console\n.*?```\n", re.DOTALL)
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", NOT_RUN.sub("", README), flags=re.DOTALL)
COMMANDS = [
    line.removeprefix("$ ")
    for kind, block in BLOCKS
    if kind == "console"
    for line in block.splitlines()
    if line.startswith("$ ")
]
LOADEVAL = Path(sys.executable).with_name("loadeval")


def run(*command: str | Path, cwd: Path) -> str:
    path = os.pathsep.join([str(LOADEVAL.parent), os.environ["PATH"]])  # as in its environment
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the README's first block was run."""
    folder = tmp_path_factory.mktemp("readme")
    copytree(ROOT / "examples", folder / "examples")
    model = torch.nn.Linear(2, 1)

    def train_one_epoch(model: torch.nn.Module, loader: DataLoader[torch.Tensor]) -> None:
        for (batch,) in loader:
            model(batch).sum().backward()

    dataset = TensorDataset(torch.randn(400, 2))
    namespace = {
        "dataloader": DataLoader(dataset, batch_size=8),
        "model": model,
        "train_one_epoch": train_one_epoch,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for kind, block in BLOCKS:
            if kind == "python":
                exec(block, namespace)
    return folder


def test_the_python_blocks_write_what_they_name(folder: Path) -> None:
    assert {path.name for path in folder.iterdir()} >= {"run.jsonl", "comparison.png"}


@pytest.mark.check
@pytest.mark.parametrize("command", [each for each in COMMANDS if each.startswith("loadeval ")])
def test_the_commands_work(command: str, folder: Path) -> None:
    _, *arguments = command.split()
    run(LOADEVAL, *arguments, cwd=folder)


@pytest.mark.parametrize("test", NOT_RUN.findall(README))
def test_what_is_not_run_is_run_elsewhere(test: str) -> None:
    assert (ROOT / test).exists()


def test_the_output_shown_is_of_this_version(folder: Path) -> None:
    """The lines that the README shows of its first command begin as those of today do."""
    shown = [line for _, block in BLOCKS for line in block.splitlines()]
    today = run(LOADEVAL, "compare", "run.jsonl", cwd=folder).splitlines()
    for label in ("a batch  ", "ideal    ", "█ step ", "More: loadeval compare "):
        assert any(line.startswith(label) for line in shown)
        assert any(line.startswith(label) for line in today)


def test_the_readme_is_short() -> None:
    """It can be read in five minutes, and its screen is one of 25 by 80."""
    prose = re.sub(r"```.*?```|<!--.*?-->", "", README, flags=re.DOTALL)
    assert len(prose.split()) <= 600
    printed = next(block for _, block in BLOCKS if "$ loadeval diagnose" in block).splitlines()[1:]
    shown = [line for line in printed if not line.startswith("epoch ")]  # the script's own
    assert len(shown) <= 25
    assert max(map(len, shown)) <= 80


def test_make_demo_runs_the_command() -> None:
    assert "`make demo`" in README
    assert ".venv/bin/loadeval demo --output loadeval-demo" in run("make", "-n", "demo", cwd=ROOT)
