"""Page faults that free loading met and real loading did not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from loadeval.analysis.headroom import more_faults
from loadeval.analysis.figures import Figures
from loadeval.runlog.model import Arm, Block, Header, LoaderInfo, Readings, Run, Steps

MS = 1_000_000
FIGURES = Figures(100.0 * MS, 100.0 * MS, 10, 10, None, None)


def block(arm: Arm, begin_ns: int) -> Block:
    unknown = np.full(10, -1)
    wait_ns, step_ns = np.full(10, 20 * MS), np.full(10, 80 * MS)
    request_ns = begin_ns + 100 * MS * np.arange(10)
    return Block(0, arm, request_ns, wait_ns, step_ns, unknown, unknown, pair=0)


def run_of(**values: Any) -> Run:
    """A real block of a second, and an ideal one, with a reading at the edges of each."""
    times = np.array([0, 1000, 2000, 3000]) * MS
    columns = {name: np.array(column, np.float64) for name, column in values.items()}
    return Run(
        Header("id", "run", "alternate", "", "images", 0, LoaderInfo("loader")),
        Steps.from_blocks([block("real", 0), block("ideal", 2000 * MS)], []),
        readings=(Readings("host", "process", times, columns),),
    )


def test_far_more_faults_are_told() -> None:
    """By how many a batch, and what to set."""
    told = more_faults(run_of(minor_faults_per_s=[0, 1_900, 0, 53_000]), FIGURES)
    assert told.startswith("A step met 5,300 page faults a batch with free loading and 190 with")
    assert "MALLOC_TRIM_THRESHOLD_" in told


@pytest.mark.parametrize("ideal", [1_900, 11_000, 0])
def test_few_more_are_not(ideal: float) -> None:
    """Under a thousand a batch, or when there are fewer."""
    assert not more_faults(run_of(minor_faults_per_s=[0, 1_900, 0, ideal]), FIGURES)


def test_many_in_both_arms_are_not() -> None:
    """The step itself takes memory then, wherever its batches come from."""
    assert not more_faults(run_of(minor_faults_per_s=[0, 30_000, 0, 50_000]), FIGURES)


def test_what_was_not_read_is_not_told() -> None:
    """Neither without readings of both arms nor without a pace."""
    run = run_of(minor_faults_per_s=[0, 1_900, 0, 53_000])
    assert not more_faults(run_of(cpu_cores=[0, 1, 0, 1]), FIGURES)
    assert not more_faults(run_of(minor_faults_per_s=[0, np.nan, 0, 9e9]), FIGURES)
    assert not more_faults(run, replace(FIGURES, ideal_ns=None))
