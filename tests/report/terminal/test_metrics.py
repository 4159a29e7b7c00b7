"""System metrics in words, in tables and in JSON."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from loadeval.analysis.backends import BackendReport
from loadeval.analysis.estimate.metrics import Level, Metrics, Quantity
from loadeval.data.lines import GpuIdle, Readings
from loadeval.data.run import ARMS, Run
from loadeval.report.json import metrics_as_dict
from loadeval.report.terminal.metrics import metrics_report, metrics_rows
from loadeval.report.wording.metrics import (
    difference_in_words,
    gpus_in_words,
    gpus_of_backends,
    level_in_words,
    value_of,
)
from tests.runs.given import MS, block, run_of

TIMES = np.array([1000, 2000, 3000, 4000]) * MS


def readings(subject: str, times: Any, **values: Any) -> Readings:
    columns = {name: np.array(column, dtype=np.float64) for name, column in values.items()}
    return Readings("gpu", subject, np.array(times), columns)


def run_with(*probed: Readings, gpu_idle: bool = False) -> Run:
    """A run with one block of each arm, at 1 and at 3 seconds."""
    idle = [GpuIdle(0, 0, np.array([10] * 10 + [0] * 10), np.full(20, -1))] if gpu_idle else []
    blocks = (
        block(arm, 20 * MS, 80 * MS, 10, request_ns=begin_ms * MS, pair=0)
        for arm, begin_ms in zip(ARMS, (1000, 3000), strict=True)
    )
    return run_of(blocks, gpu_idle=idle, readings=probed)


GPU = readings("GPU 0 (H100)", TIMES, kernel_busy_percent=[0, 41, 50, 93])
HALF = readings("GPU 1", TIMES[:2], kernel_busy_percent=[0, 41], power_watts=[1, 2])
NO_GPU = Readings("gpu", "", np.empty(0, np.int64), {}, "no NVIDIA driver found")
KNOWN, UNKNOWN = Metrics.of(run_with(GPU, gpu_idle=True)), Metrics.of(run_with(NO_GPU))


def printed(metrics: Metrics) -> list[str]:
    console = Console(file=io.StringIO(), width=100, highlight=False)
    console.print(metrics_report(metrics))
    assert isinstance(console.file, io.StringIO)
    return [" ".join(line.split()) for line in console.file.getvalue().splitlines()]


def test_each_arm_has_its_column() -> None:
    """The same rows for both, each with the mean of its own arm."""
    assert metrics_rows([(KNOWN, "real"), (KNOWN, "ideal")]) == [
        [("GPU idle while waiting, mean", "10 ns"), ("GPU 0 (H100) kernel busy", "41%")],
        [("GPU idle while waiting, mean", "0 ns"), ("GPU 0 (H100) kernel busy", "93%")],
    ]


def test_gpu_idle_of_a_replay_is_not_measured_for_whatever_reason() -> None:
    """It is not in replay, on a device or without one."""
    real, ideal = (dict(metrics_rows([(UNKNOWN, arm)])[0]) for arm in ARMS)
    name = "GPU idle while waiting, mean"
    assert real[name] == "not measured: no CUDA device was in use"
    assert ideal[name] == "not measured"


def test_runs_side_by_side_have_the_same_rows() -> None:
    """What only one of them read is not measured in the other, nor is it 0."""
    first, other = map(dict, metrics_rows([(KNOWN, "real"), (UNKNOWN, "real")]))
    assert list(first) == list(other)
    assert first["GPU 0 (H100) kernel busy"] == "41%"
    assert other["GPU 0 (H100) kernel busy"] == "not measured"
    assert other["gpu"] == "not measured: no NVIDIA driver found"
    (rows,) = metrics_rows([(Metrics.of(run_with()), "real")])
    assert [value[:12] for _, value in rows] == ["not measured", "not measured"]


def test_the_gpu_is_told_in_a_sentence() -> None:
    """Real against ideal, or the arm that was read; of a backend behind its name."""
    assert gpus_in_words(KNOWN) == ["GPU 0 (H100): GPU busy 41% real, 93% ideal."]
    assert gpus_in_words(Metrics.of(run_with(HALF))) == ["GPU 1: GPU busy 41% real."]
    assert gpus_in_words(UNKNOWN) == []
    backends = BackendReport.of_runs([run_with(GPU), run_with(NO_GPU)]).backends
    assert [sentence[:13] for sentence in gpus_of_backends(backends)] == ["run (1): GPU "]


def test_json_has_every_level_and_reason() -> None:
    """Quantities of both arms, what is missing, GPU idle time and growth."""
    document = json.loads(
        json.dumps(metrics_as_dict(Metrics.of(run_with(GPU, NO_GPU, gpu_idle=True))))
    )
    assert document["quantities"][0]["real"] == {"count": 1, "mean": 41.0, "p50": 41.0, "p95": 41.0}
    assert document["quantities"][0]["difference"] == 52.0
    assert document["missing"] == [{"probe": "gpu", "reason": "no NVIDIA driver found"}]
    assert document["gpu_idle_ns"] == {"real": 10.0, "ideal": 0.0}
    assert [growth["subject"] for growth in document["growth"]] == ["process", "workers"]


def test_the_table_has_both_arms() -> None:
    """Mean, median and 95th percentile of each, and by how much the ideal one is higher."""
    assert printed(KNOWN)[1:] == [
        "mean (p50, p95) real ideal ideal - real",
        "GPU 0 (H100) kernel busy 41% (41%, 41%) 93% (93%, 93%) +52 points",
    ]


def test_the_table_of_two_runs() -> None:
    """The real levels come from one, the ideal ones from the other; one may have read nothing."""
    level, nothing = "41% (41%, 41%)", "gpu: not measured: no NVIDIA driver found"
    both = printed(Metrics.of_two(Metrics.of(run_with(HALF)), KNOWN))
    assert both[2:] == [
        f"GPU 1 kernel busy {level} not measured not measured",
        "GPU 1 power 2.00 (2.00, 2.00) W not measured not measured",
        "GPU 0 (H100) kernel busy not measured 93% (93%, 93%) not measured",
    ]
    assert printed(Metrics.of_two(KNOWN, UNKNOWN))[2:] == [
        f"GPU 0 (H100) kernel busy {level} not measured not measured",
        nothing,
    ]
    assert printed(UNKNOWN)[1:] == [nothing]
    assert printed(Metrics.of(run_with()))[1].startswith("not measured: ")


@pytest.mark.parametrize(
    ("name", "p95", "expected"),
    [
        ("x_bytes", 1.2e9, "1.00 (1.00, 1.20) GB"),
        ("x_bytes", 3e12, "1.00 GB (1.00 GB, 3.00 TB)"),
        ("x_cores", 2e9, "1.00 billion (1.00 billion, 2.00 billion) cores"),
    ],
)
def test_a_unit_that_all_have_is_told_once(name: str, p95: float, expected: str) -> None:
    """Others stand at their figures."""
    assert level_in_words(name, Level(3, 1e9, 1e9, p95)) == expected


def test_a_difference_has_its_sign_and_unit() -> None:
    """Points of a percentage, else the quantity's own."""
    low, high = Level(1, 1e9, 1e9, 1e9), Level(1, 3e9, 3e9, 3e9)
    assert difference_in_words(Quantity("", "", "x_bytes", low, high)) == "+2.00 GB"
    assert difference_in_words(Quantity("", "", "x_bytes", high, low)) == "-2.00 GB"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("kernel_busy_percent", 41.4, "41%"),
        ("memory_used_bytes", 3e9, "3.00 GB"),
        ("pcie_receive_bytes_per_s", 2e9, "2.00 GB/s"),
        ("minor_faults_per_s", 1500, "1,500/s"),
        ("power_watts", 350, "350 W"),
        ("temperature_celsius", 61, "61 C"),
        ("sm_clock_hz", 1.41e9, "1.41 GHz"),
        ("cpu_cores", 1.91, "1.91 cores"),
        ("cgroup_throttled_share", 0.125, "12.5%"),
        ("power_slowdown_flag", 0.25, "25% of the time"),
        ("alive_workers", 4, "4.00"),
    ],
)
def test_values_are_told_in_their_unit(name: str, value: float, expected: str) -> None:
    """The unit is what the name of the quantity ends in."""
    assert value_of(name, value) == expected
