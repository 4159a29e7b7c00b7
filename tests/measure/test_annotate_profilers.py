"""Profilers of torch that come and go in a run with `annotate="torch"`, and a torch without one."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch

from loadeval import LoaderEvaluator, UsageError
from loadeval.measure import annotate

CYCLES = """
import torch
from torch.profiler import ProfilerActivity, profile, schedule
from loadeval import LoaderEvaluator

plan = schedule(wait=0, warmup=0, active=2, repeat=100)
with profile(activities=[ProfilerActivity.CPU], schedule=plan) as profiler:
    for batch in LoaderEvaluator([torch.zeros(4)] * 300, annotate="torch"):
        for _ in range(20):
            (batch + 1).sum()
        profiler.step()
"""


def test_profilers_may_follow_each_other_within_steps() -> None:
    """A schedule that stops one and starts the next at once does not crash training."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", CYCLES], check=False)
    assert done.returncode == 0


def test_the_profilers_stop_is_replaced_once() -> None:
    """However many evaluators are made."""
    LoaderEvaluator([1], annotate="torch")
    once: Any = torch.autograd.profiler._disable_profiler  # type: ignore[attr-defined]  # private
    LoaderEvaluator([1], annotate="torch")
    assert torch.autograd.profiler._disable_profiler is once  # type: ignore[attr-defined]  # private
    assert isinstance(once, annotate.EndingRanges)


def test_a_torch_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to install."""
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UsageError, match=r"needs torch 2\.1 or later.*install it"):
        LoaderEvaluator([1], annotate="torch")
