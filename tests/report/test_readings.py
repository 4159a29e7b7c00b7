"""Readings in words, in tables and in JSON."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from loadeval.analysis.backends import MeasuredRun, result_of
from loadeval.report.readings import (
    gpus_in_words,
    gpus_of_backends,
    growth_in_words,
    readings_as_dict,
    readings_rows,
    value_of,
)
from loadeval.runlog.model import Arm, Block, GpuIdle, Header, LoaderInfo, Readings, Run, Steps

HOUR_NS = 3_600 * 10**9


def block(arm: Arm, begin_ns: int) -> Block:
    request_ns = begin_ns + 100 * np.arange(10)
    unknown = np.full(10, -1)
    return Block(0, arm, request_ns, unknown * -20, unknown * -80, unknown, unknown, pair=0)


def readings(probe: str, subject: str, times: Any, **values: Any) -> Readings:
    columns = {name: np.array(column, dtype=np.float64) for name, column in values.items()}
    return Readings(probe, subject, np.array(times), columns)


def run_of(*found: Readings, starved: bool = False) -> Run:
    """A run with one block of each arm, at 1000 and at 3000 ns."""
    gpu_idle = [GpuIdle(0, 0, np.array([10] * 10 + [0] * 10))] if starved else []
    return Run(
        Header("id", "run", "alternate", "", "images", 0, LoaderInfo("loader")),
        Steps.from_blocks([block("real", 1000), block("ideal", 3000)], [], gpu_idle),
        readings=found,
    )


TIMES = [1000, 2000, 3000, 4000]
GPU = readings("gpu", "GPU 0 (H100)", TIMES, kernel_busy_percent=[0, 41, 50, 93])
NO_GPU = Readings("gpu", "", np.empty(0, np.int64), {}, "no NVIDIA driver found")


def test_each_arm_has_its_column() -> None:
    """The same rows for both, each with the mean of its own arm."""
    run = run_of(GPU, starved=True)
    assert readings_rows([(run, "real"), (run, "ideal")]) == [
        [("GPU idle while waiting, mean", "10 ns"), ("GPU 0 (H100) kernel busy", "41%")],
        [("GPU idle while waiting, mean", "0 ns"), ("GPU 0 (H100) kernel busy", "93%")],
    ]


def test_runs_side_by_side_have_the_same_rows() -> None:
    """What only one of them read is not measured in the other, nor is it 0."""
    (one, other) = readings_rows([(run_of(GPU), "real"), (run_of(NO_GPU), "real")])
    assert [label for label, _ in one] == [label for label, _ in other]
    assert dict(one)["GPU 0 (H100) kernel busy"] == "41%"
    assert dict(other)["GPU 0 (H100) kernel busy"] == "not measured"
    assert dict(other)["gpu"] == "not measured: no NVIDIA driver found"


def test_nothing_read_is_said() -> None:
    """With the reason, where it is a run too short for a reading."""
    (rows,) = readings_rows([(run_of(), "real")])
    assert [value[:12] for _, value in rows] == ["not measured", "not measured"]
    assert "no CUDA device" in rows[0][1]


def test_the_gpu_is_told_in_a_sentence() -> None:
    """Real against ideal, or the arm that was read."""
    sentence = "GPU 0 (H100): GPU busy 41% real, 93% ideal."
    assert gpus_in_words(run_of(GPU)) == [sentence]
    half = readings("gpu", "GPU 1", TIMES[:2], kernel_busy_percent=[0, 41], power_watts=[1, 2])
    assert gpus_in_words(run_of(half)) == ["GPU 1: GPU busy 41% real."]
    assert gpus_in_words(run_of(NO_GPU)) == []


def test_backends_have_their_names_before_it() -> None:
    """A backend that has no run has no sentence."""
    result = result_of("torch", MeasuredRun.of(run_of(GPU)), "batches")
    assert gpus_of_backends([result])[0].startswith("torch: GPU 0")


def test_json_has_every_level_and_reason() -> None:
    """Quantities of both arms, what is missing, starving and growth."""
    found = json.loads(json.dumps(readings_as_dict(run_of(GPU, NO_GPU, starved=True))))
    assert found["quantities"][0]["real"] == {"count": 1, "mean": 41.0, "p50": 41.0, "p95": 41.0}
    assert found["missing"] == [{"probe": "gpu", "reason": "no NVIDIA driver found"}]
    assert found["gpu_idle_ns"] == {"real": 10.0, "ideal": 0.0}
    assert [one["subject"] for one in found["growth"]] == ["process", "workers"]


def test_growing_memory_is_told_with_advice() -> None:
    """Only where it grows."""
    times = np.linspace(0, HOUR_NS, 100).astype(np.int64)
    machine = readings("host", "machine", times[:1], memory_limit_bytes=[10e9])
    for growing, said in ((5e9, 1), (0.0, 0)):
        memory = 1e9 + np.linspace(0, growing, 100) + 1e6 * np.sin(np.arange(100))
        workers = readings("host", "workers", times, pss_bytes=memory)
        lines = growth_in_words(run_of(machine, workers))
        assert len(lines) == said
        assert all("Memory of the workers grows" in line for line in lines)


@pytest.mark.parametrize(
    ("name", "value", "told"),
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
def test_values_are_told_in_their_unit(name: str, value: float, told: str) -> None:
    """The unit is what the name of the quantity ends in."""
    assert value_of(name, value) == told
