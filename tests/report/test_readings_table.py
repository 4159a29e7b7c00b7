"""What was read of the machine, as a table."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from loadeval.analysis.metrics import Level, Quantity
from loadeval.report.readings_table import difference_in_words, level_in_words, readings_report
from loadeval.runlog.model import Arm, Block, Header, LoaderInfo, Readings, Run, Steps

TIMES = [1000, 2000, 3000, 4000]


def block(arm: Arm, begin_ns: int, pair: int | None) -> Block:
    unknown = np.full(10, -1)
    request_ns = begin_ns + 100 * np.arange(10)
    return Block(0, arm, request_ns, unknown * -20, unknown * -80, unknown, unknown, pair)


def run_of(mode: Any, *blocks: Block, values: Any = None, missing: str | None = None) -> Run:
    columns = {} if values is None else {"kernel_busy_percent": np.array(values, np.float64)}
    times = np.array(TIMES if columns else [], np.int64)
    subject = "GPU 0" if columns else ""
    found = (
        []
        if values is None and missing is None
        else [Readings("gpu", subject, times, columns, missing)]
    )
    header = Header("id", "run", mode, "", "images", 0, LoaderInfo("loader"))
    return Run(header, Steps.from_blocks(blocks, []), readings=tuple(found))


def alternating(**more: Any) -> Run:
    return run_of("alternate", block("real", 1000, 0), block("ideal", 3000, 0), **more)


def printed(real: Run, ideal: Run | None = None) -> list[str]:
    console = Console(file=io.StringIO(), width=100, highlight=False)
    console.print(readings_report(real, ideal))
    assert isinstance(console.file, io.StringIO)
    return [" ".join(line.split()) for line in console.file.getvalue().splitlines()]


def test_both_arms_of_a_run() -> None:
    """Mean, median and 95th percentile of each, and by how much the ideal one is higher."""
    assert printed(alternating(values=[0, 41, 50, 93])) == [
        "System metrics",
        "mean (p50, p95) real ideal difference",
        "GPU 0 kernel busy 41% (41%, 41%) 93% (93%, 93%) +52 points",
    ]


def test_two_runs() -> None:
    """The real levels come from one, the ideal ones from the other."""
    real = run_of("log", block("real", 1000, None), values=[0, 41, 50, 50])
    ideal = run_of("replay", block("ideal", 1000, None), values=[0, 93, 50, 50])
    assert printed(real, ideal)[2] == "GPU 0 kernel busy 41% (41%, 41%) 93% (93%, 93%) +52 points"


@pytest.mark.parametrize("swapped", [False, True])
def test_what_one_of_them_did_not_read(swapped: bool) -> None:
    """It is not measured, and there is no difference."""
    real = run_of("log", block("real", 1000, None), values=[0, 41, 50, 50])
    ideal = run_of("replay", block("ideal", 1000, None), missing="no NVIDIA driver found")
    level = "41% (41%, 41%) not measured"
    if swapped:
        real = run_of("log", block("real", 1000, None), missing="no NVIDIA driver found")
        ideal = run_of("replay", block("ideal", 1000, None), values=[0, 41, 50, 50])
        level = "not measured 41% (41%, 41%)"
    assert printed(real, ideal)[2:] == [
        f"GPU 0 kernel busy {level} not measured",
        "gpu: not measured: no NVIDIA driver found",
    ]


def test_nothing_was_read() -> None:
    """It is said why."""
    assert printed(alternating())[1].startswith("not measured: nothing was read")
    assert printed(alternating(missing="no driver"))[1:] == ["gpu: not measured: no driver"]


@pytest.mark.parametrize(
    ("p95", "told"), [(1.2, "1.00 (1.00, 1.20) GB"), (3000, "1.00 GB (1.00 GB, 3.00 TB)")]
)
def test_a_unit_that_all_have_is_told_once(p95: float, told: str) -> None:
    """Others stand at their figures."""
    assert level_in_words("x_bytes", Level(3, 1e9, 1e9, p95 * 1e9)) == told


def test_a_difference_has_its_sign_and_unit() -> None:
    """Points of a percentage, else the quantity's own."""
    low, high = Level(1, 1e9, 1e9, 1e9), Level(1, 3e9, 3e9, 3e9)
    assert difference_in_words(Quantity("", "", "x_bytes", low, high)) == "+2.00 GB"
    assert difference_in_words(Quantity("", "", "x_bytes", high, low)) == "-2.00 GB"
