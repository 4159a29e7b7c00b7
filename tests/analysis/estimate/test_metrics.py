"""Readings fall to the arm that was served meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis.estimate.metrics import Level, Metrics, quantities
from loadeval.analysis.estimate.summary import GpuWait, gpu_wait
from loadeval.data.lines import Arm, Block, GpuIdle, Readings
from tests.runs.given import block, run_of
from tests.runs.tables import readings_lines, replace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.data.lines import Mode
    from loadeval.data.run import Run


def batches(
    arm: Arm, begin_ns: int, pair: int | None = 0, count: int = 10, batch_ns: int = 100
) -> Block:
    """Batches of `batch_ns` each, from `begin_ns` on."""
    wait_ns, step_ns = (batch_ns * part // 10 for part in (2, 8))
    return block(arm, wait_ns, step_ns, count, request_ns=begin_ns, pair=pair)


def run_with(
    blocks: Sequence[Block],
    times: Sequence[int],
    values: Sequence[float],
    mode: Mode = "alternate",
    idle_ns: Sequence[int] = (),
) -> Run:
    column: Any = np.array(values, dtype=np.float64)
    readings = Readings("gpu", "GPU 0", np.array(times, np.int64), {"sm_busy_percent": column})
    stopped = Readings("host", "", np.empty(0, np.int64), {}, "no such file")
    gpu_idle = [GpuIdle(0, 0, np.array(idle_ns), np.full(len(idle_ns), -1))] if idle_ns else []
    return run_of(blocks, gpu_idle=gpu_idle, mode=mode, warmup=0, readings=(readings, stopped))


def test_each_arm_has_its_own_levels() -> None:
    """A reading counts for the arm whose batches were served when it was taken."""
    blocks = [batches("real", 1000), batches("ideal", 3000)]
    run = run_with(blocks, [1100, 1200, 1300, 3100, 3200, 3300], [40, 40, 44, 90, 90, 96])
    (quantity,) = quantities(run)
    assert (quantity.probe, quantity.subject, quantity.name) == ("gpu", "GPU 0", "sm_busy_percent")
    assert quantity.real == Level(2, 42.0, 42.0, 43.8)
    assert quantity.ideal == Level(2, 93.0, 93.0, 95.7)


def test_a_reading_at_an_edge_is_of_what_lies_before_it() -> None:
    """Those at the beginning and the end of a block hold all of it between them."""
    blocks = [batches("real", 1000), batches("ideal", 3000)]
    (quantity,) = quantities(run_with(blocks, [990, 2010, 2990, 4010], [1, 2, 3, 4]))
    assert (quantity.real, quantity.ideal) == (Level(1, 2.0, 2.0, 2.0), Level(1, 4.0, 4.0, 4.0))


def test_a_reading_that_reaches_back_into_another_stretch_does_not_count() -> None:
    """It may be a mean since the reading before, which was of another block, or between two."""
    blocks = [batches("real", 1000), batches("real", 3000, pair=1)]
    (quantity,) = quantities(run_with(blocks, [500, 1500, 2500, 3500, 3600], [1, 2, 3, 4, 5]))
    assert quantity.real == Level(1, 5.0, 5.0, 5.0)
    assert quantity.ideal is None


@pytest.mark.parametrize(
    ("name", "others", "is_known"),
    [
        ("kernel_busy_percent", (), False),
        ("power_watts", ("sm_busy_percent",), False),
        ("kernel_busy_percent", ("sm_busy_percent",), True),
        ("sm_clock_hz", (), True),
    ],
)
def test_a_mean_of_the_driver_counts_for_an_arm_that_lasts_as_long(
    name: str, others: tuple[str, ...], is_known: bool
) -> None:
    """NVML's are of up to a second; a GPU's counters count since the reading before."""
    run = run_with([batches("real", 1000), batches("ideal", 3000)], [3100, 3200], [40, 90])
    (read,) = (reading for reading in readings_lines(run) if reading.probe == "gpu")
    (column,) = read.values.values()
    values = dict.fromkeys((name, *others), column)
    levels = quantities(replace(run, readings=(replace(read, values=values),)))
    assert (name in {quantity.name for quantity in levels}) is is_known


def test_a_mean_of_the_driver_is_known_in_a_long_block() -> None:
    long = batches("real", 0, batch_ns=200_000_000)
    run = run_with([long], [800_000_000, 1_800_000_000], [40, 90])
    (read,) = (reading for reading in readings_lines(run) if reading.probe == "gpu")
    values = {"kernel_busy_percent": read.values["sm_busy_percent"]}
    (quantity,) = quantities(replace(run, readings=(replace(read, values=values),)))
    assert quantity.real == Level(1, 90.0, 90.0, 90.0)


def test_what_is_read_less_often_reaches_further_back() -> None:
    """Rows in between that do not know the quantity are passed over."""
    blocks = [batches("real", 1000), batches("ideal", 3000)]
    times, nan = [1100, 1500, 3100, 3500], float("nan")
    (quantity,) = quantities(run_with(blocks, times, [1, nan, 2, 3]))
    assert quantity.real is None
    assert quantity.ideal == Level(1, 3.0, 3.0, 3.0)


def test_what_was_never_read_in_an_arm_is_left_out() -> None:
    """No quantity, and no number that stands for none."""
    assert quantities(run_with([batches("real", 1000)], [10, 20], [1, 2])) == ()
    assert quantities(run_with([], [10, 20], [1, 2])) == ()


def test_a_logged_run_has_real_levels() -> None:
    """All of its steady part is the real arm."""
    (quantity,) = quantities(run_with([batches("real", 0, None)], [100, 200], [7, 9], mode="log"))
    assert (quantity.real, quantity.ideal) == (Level(1, 9.0, 9.0, 9.0), None)


def test_why_a_probe_read_nothing_is_told() -> None:
    """The probe, and its reason."""
    assert Metrics.of(run_with([], [], [])).missing == (("host", "no such file"),)


def test_gpu_idle_is_a_mean_over_the_measured_batches() -> None:
    """Those of which the device has told it; None where it told none."""
    blocks = [batches("real", 1000, None, 1), batches("real", 1100), batches("ideal", 3000)]
    run = run_with(blocks, [], [], idle_ns=[5000, 10, 20, 30])
    assert Metrics.of(run).gpu_idle_ns == {"real": 20.0, "ideal": None}


def test_waits_that_are_hidden_by_gpu_work() -> None:
    """Where the device had work for most of the time that was waited, they cost nothing."""
    blocks = [batches("real", 1000, None, 4)]
    for idle_ns, expected in (
        ([2, 2, 2, 2], GpuWait(20.0, 2.0, hidden=True)),
        ([20, 19, 18, 20], GpuWait(20.0, 19.25, hidden=False)),
        ([], None),
    ):
        assert gpu_wait(run_with(blocks, [], [], "log", idle_ns), "real") == expected
