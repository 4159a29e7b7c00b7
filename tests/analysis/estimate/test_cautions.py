"""What of the machine moves the figures of a run, and is said beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis.estimate.cautions import Caution, about_the_machine
from loadeval.analysis.estimate.headroom import headroom, headroom_of_two
from loadeval.data.lines import Readings
from loadeval.report.wording.verdict import cautions
from tests.runs.staged import MS, staged
from tests.runs.tables import readings_lines, replace

if TYPE_CHECKING:
    from loadeval.data.lines import Mode
    from loadeval.data.run import Run

ALTERNATING = staged()
GPU = "GPU 0 (NVIDIA H100)"


Levels = dict[str, float | tuple[float, float]]


def machine_read(levels: Levels, subject: str = "machine", run: Run = ALTERNATING) -> Run:
    """The run with readings: of each a number for both arms, or a pair: real and ideal."""
    steps, time_ns = run.steps, np.arange(2000, dtype=np.int64) * 10 * MS
    rows = np.searchsorted(steps.request_ns, time_ns) - 1
    ideal = steps.arm[rows.clip(min=0)] == 1
    values = {}
    for name, level in levels.items():
        in_real, in_ideal = level if isinstance(level, tuple) else (level, level)
        values[name] = np.where(ideal, in_ideal, in_real).astype(np.float64)
    return replace(run, readings=(*readings_lines(run), Readings("host", subject, time_ns, values)))


def only_caution(levels: Levels, subject: str = "machine") -> tuple[Any, dict[str, Any]]:
    (caution,) = about_the_machine(machine_read(levels, subject))
    return caution.code, dict(caution.values)


def test_stolen_time() -> None:
    """Its share of what was used and stolen, in the arm where it is the larger."""
    caution = only_caution({"stolen_cores": (0.25, 0.05), "cpu_cores": 0.75})
    assert caution == (Caution.CPU_STOLEN, {"share": pytest.approx(0.25, abs=0.02)})


def test_a_limit_on_cpu_time() -> None:
    """In a tenth of the periods."""
    caution = only_caution({"cgroup_throttled_share": 0.1})
    assert caution == (Caution.CPU_LIMITED, {"share": pytest.approx(0.1)})


def test_heat() -> None:
    """Each time counts that a CPU was throttled."""
    caution = only_caution({"thermal_throttles_per_s": 0.5})
    assert caution == (Caution.CPU_HOT, {"per_s": pytest.approx(0.5)})


def test_a_clock_that_differs_between_the_arms() -> None:
    """The slower arm is named."""
    caution = only_caution({"cpu_clock_hz": (2.4e9, 3.2e9)})
    assert caution == (Caution.CPU_CLOCK, {"arm": "real", "share": pytest.approx(0.25, abs=0.03)})


@pytest.mark.parametrize("flag", ["thermal_slowdown_flag", "hardware_slowdown_flag"])
def test_a_gpu_that_is_slowed_down(flag: str) -> None:
    """By heat, or by its hardware; a power limit is usual."""
    caution = only_caution({"power_slowdown_flag": 1.0, flag: (0.0, 0.5)}, GPU)
    assert caution == (Caution.GPU_SLOWED, {"share": pytest.approx(0.5, abs=0.05)})


@pytest.mark.parametrize(
    "levels",
    [
        {},
        {"stolen_cores": 0.01, "cpu_cores": 0.75},
        {"stolen_cores": 0.25},  # of what is not known
        {"stolen_cores": 0.0, "cpu_cores": 0.0},
        {"cgroup_throttled_share": 0.04},
        {"thermal_throttles_per_s": 0.0},
        {"thermal_throttles_per_s": float("nan")},
        {"cpu_clock_hz": (3.0e9, 3.2e9)},
        {"cpu_clock_hz": (3.0e9, float("nan"))},
        {"power_slowdown_flag": 1.0, "thermal_slowdown_flag": 0.04},
    ],
)
def test_a_machine_that_moves_nothing(levels: Levels) -> None:
    """Or of which that is not known."""
    assert about_the_machine(machine_read(levels)) == []


def test_they_stand_beside_the_headline() -> None:
    """Of an alternating run, and of two runs."""
    read = machine_read({"thermal_throttles_per_s": 0.5})
    assert any("Heat throttled the CPUs" in said for said in cautions(headroom(read)))
    compared = headroom_of_two(of_arm(ALTERNATING, "log", 0), of_arm(read, "replay", 1))
    assert Caution.CPU_HOT in {remark.code for remark in compared.cautions}


def of_arm(run: Run, mode: Mode, arm: int) -> Run:
    """The run as one of another mode, in which all batches are of one arm."""
    steps = replace(run.steps, arm=np.full(len(run.steps), arm, np.int64))
    return replace(run, header=replace(run.header, mode=mode), steps=steps)
