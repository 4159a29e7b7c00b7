"""Profilers of torch that come and go in a run with `annotate="torch"`, and a torch without one."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from typing import Any

import pytest
import torch

from loadeval import LoaderEvaluator, UsageError
from loadeval.runtime import annotate

ITERATIONS = """
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
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", ITERATIONS], check=False)
    assert done.returncode == 0


def stop_of_the_profiler() -> Any:
    return torch.autograd.profiler._disable_profiler  # type: ignore[attr-defined]  # private


def test_the_profilers_stop_is_put_back() -> None:
    """It is replaced once, however many evaluators serve, until the last of them is closed."""
    before = stop_of_the_profiler()
    evaluators = [LoaderEvaluator([1, 2], annotate="torch") for _ in range(2)]
    assert stop_of_the_profiler() is before
    for evaluator in evaluators:
        list(evaluator)
    assert isinstance(stop_of_the_profiler(), annotate.EndingRanges)
    evaluators[0].close()
    evaluators[0].close()
    assert isinstance(stop_of_the_profiler(), annotate.EndingRanges)
    evaluators[1].close()
    assert stop_of_the_profiler() is before


def test_what_another_tool_put_there_meanwhile_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """It calls ours, which calls torch's."""
    evaluator = LoaderEvaluator([1, 2], annotate="torch")
    list(evaluator)
    ours = stop_of_the_profiler()
    theirs = partial(ours)
    monkeypatch.setattr(torch.autograd.profiler, "_disable_profiler", theirs)
    evaluator.close()
    assert stop_of_the_profiler() is theirs


def test_after_close_no_range_is_open() -> None:
    """Nor is one begun by what is still served."""
    evaluator = LoaderEvaluator(range(4), annotate="torch")
    epoch = iter(evaluator)
    next(epoch)
    evaluator.close()
    assert not annotate._guards
    assert next(epoch) == 1
    del epoch
    assert not annotate._guards


def test_a_torch_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to install."""
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UsageError, match=r"needs torch 2\.1 or later.*install it"):
        LoaderEvaluator([1], annotate="torch")
