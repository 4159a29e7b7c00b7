"""The ranges that `annotate="nvtx"` makes, by what stands in for torch.cuda.nvtx."""

from __future__ import annotations

import sys

import pytest
import torch

from loadeval import LoaderEvaluator, UsageError


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


@pytest.fixture(name="ranges")
def _ranges(monkeypatch: pytest.MonkeyPatch) -> Ranges:
    """Those of a torch that is built for CUDA."""
    ranges = Ranges()
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "nvtx", ranges)
    return ranges


@pytest.mark.parametrize("mode", ["log", "replay", "alternate"])
def test_every_range_that_begins_ends(mode: str, ranges: Ranges) -> None:
    evaluator = LoaderEvaluator(range(4), mode, annotate="nvtx", probes=())
    assert len(list(evaluator)) == 4
    for _ in evaluator:
        break
    assert sorted(ranges.ended) == list(range(len(ranges.begun)))
    assert sum(name.startswith("loadeval.step") for name in ranges.begun) == 5


@pytest.mark.parametrize("imported", [True, False])
def test_without_it_an_error_says_what_is_needed(
    imported: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not imported:
        monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(UsageError, match="needs a torch that is built for CUDA"):
        LoaderEvaluator([1], annotate="nvtx")
