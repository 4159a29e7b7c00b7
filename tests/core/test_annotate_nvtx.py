"""The ranges that `annotate="nvtx"` makes, told by NVTX to a listener in Nsight Systems' place."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from loadeval import LoaderEvaluator, UsageError

LISTENER = Path(__file__).with_name("nvtx_listener.c")
SCRIPT = """
import sys
from loadeval import LoaderEvaluator

evaluator = LoaderEvaluator(range(4), sys.argv[1], annotate="nvtx", probes=())
for number in evaluator:
    print("train", number, flush=True)
for number in evaluator:
    break
"""
compiler = shutil.which("cc")
listening = pytest.mark.skipif(compiler is None, reason="the listener is written in C")


def heard(mode: str, folder: Path) -> list[str]:
    """What the real package nvtx told the listener of a script, beside what that printed."""
    library = folder / "listener.so"
    subprocess.run([str(compiler), "-shared", "-fPIC", "-o", library, LISTENER], check=True)
    environment = {**os.environ, "NVTX_INJECTION64_PATH": str(library)}
    command = [sys.executable, "-c", SCRIPT, mode]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


@listening
def test_log_is_told_range_by_range(tmp_path: Path) -> None:
    lines = heard("log", tmp_path)
    first = ["begin 1 loadeval.wait real", "end 1", "begin 2 loadeval.step real", "train 0"]
    assert lines[:6] == [*first, "end 2", "begin 3 loadeval.wait real"]
    assert lines[-4:] == [line.replace(" 1", " 10").replace(" 2", " 11") for line in first[:3]] + [
        "end 11"
    ]


@listening
@pytest.mark.parametrize("mode", ["log", "replay", "alternate"])
def test_every_range_that_begins_ends(mode: str, tmp_path: Path) -> None:
    words = [line.split(maxsplit=2) for line in heard(mode, tmp_path)]
    begun = {number: name for word, number, *name in words if word == "begin"}
    ended = [number for word, number, *_ in words if word == "end"]
    assert sorted(begun) == sorted(ended)
    assert sum(name[0].startswith("loadeval.step") for name in begun.values()) == 5


@pytest.mark.parametrize("mode", ["log", "replay"])
def test_without_a_tool_batches_are_served_as_ever(mode: str) -> None:
    assert list(LoaderEvaluator(range(4), mode, annotate="nvtx")) == list(range(4))


class Ranges:
    """Stands for torch.cuda.nvtx, which only a torch that is built for CUDA has."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended: list[int] = []

    def range_start(self, name: str) -> int:
        self.begun.append(name)
        return len(self.begun) - 1

    def range_end(self, number: int) -> None:
        self.ended.append(number)


def test_a_torch_for_cuda_is_preferred(monkeypatch: pytest.MonkeyPatch) -> None:
    """No package is needed beside it."""
    ranges = Ranges()
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "nvtx", ranges)
    assert list(LoaderEvaluator([1], annotate="nvtx")) == [1]
    wait, step = "loadeval.wait real", "loadeval.step real"
    assert ranges.begun == [wait, step, wait]
    assert ranges.ended == [0, 1, 2]


@pytest.mark.parametrize("imported", [True, False])
def test_without_either_the_error_says_what_to_install(
    imported: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "nvtx", None)
    if not imported:
        monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(UsageError, match="pip install nvtx"):
        LoaderEvaluator([1], annotate="nvtx")


def test_another_tool_is_an_error() -> None:
    wrong: Any = "nsys"
    with pytest.raises(UsageError, match="annotate is 'nsys'; expected 'nvtx' or 'torch' or None"):
        LoaderEvaluator([1], annotate=wrong)
