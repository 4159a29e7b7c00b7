"""Copies to a GPU: by a batch's bytes and the bandwidth, what is said, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.data.columns import UNKNOWN, Columns
from loadeval.findings.engine import diagnose
from tests.builder import MS, run_of, steps
from tests.findings import told
from tests.runs.looked_into import looked_into
from tests.runs.tables import replace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loadeval.data.run import Run

MB, GB = 1e6, 1e9
TIME_NS = np.arange(1, 20) * 100 * MS
STREAM = "copy the next batch on a stream of its own"
PIN = "pin_memory False -> True"
SAYS = "Copying a batch to the GPU takes {} ms or more of 40.0 ms: 100 MB, in memory that is {}."


def read(received: float | None = None, **known: float) -> Mapping[tuple[str, str], Columns]:
    """What is read of a GPU that takes 20 GB a second from pinned memory, and 5 GB from other."""
    of_batch = {
        "pinned_bytes_per_s": 20 * GB,
        "pageable_bytes_per_s": 5 * GB,
        "host_bytes": 100 * MB,
        "pinned_bytes": 0.0,
        "float32_bytes": 0.0,
        **known,
    }
    columns = {name: np.array([value]) for name, value in of_batch.items()}
    tables = {("copies", "batch"): Columns({"time_ns": np.array([1]), **columns})}
    if received is not None:
        values = np.full(len(TIME_NS), received)
        tables["gpu", "GPU 0"] = Columns({"time_ns": TIME_NS, "pcie_receive_bytes_per_s": values})
    return tables


def logged(
    idle: float = 0.0, wait: float = 0.0, *, loader: Mapping[str, Any] | None = None, **of_gpu: Any
) -> Run:
    """Batches of 40 ms of the device, of which its stream has no work for `idle` in a wait."""
    block = steps("real", wait, 40 - wait, 50, gpu_idle_ms=idle, gpu_step_ms=40 - idle)
    return run_of([block], mode="log", readings=read(**of_gpu), **(loader or {}))


def test_copies_from_memory_that_is_not_pinned() -> None:
    """They take bytes over bandwidth, and pinned ones would take a quarter."""
    run = logged()
    assert told("copies", run) == (SAYS.format("20.0", "not pinned"), PIN)
    (finding,) = diagnose(run).findings
    assert finding.cost == 0.5
    assert "5.00 ms or more" in finding.do[0].because


def test_pinned_batches_may_be_copied_beside_kernels() -> None:
    says = SAYS.format("5.00", "pinned")
    assert told("copies", logged(pinned_bytes=100 * MB)) == (says, STREAM)


def test_pixels_are_fewer_bytes_as_uint8() -> None:
    run = logged(float32_bytes=100 * MB)
    assert told("copies", run)[1:] == (PIN, "send pixels as uint8, convert them on the GPU")


def test_pinned_batches_of_a_step_that_waits_for_the_gpu() -> None:
    """Its stream has no work as soon as the wait begins, and all through it."""
    run = logged(idle=3, wait=3, pinned_bytes=100 * MB, host_bytes=200 * MB)
    assert told("copies", run)[1:] == ("copy with .to(device, non_blocking=True)",)
    busy = logged(idle=0, wait=3, pinned_bytes=100 * MB, host_bytes=200 * MB)
    assert told("copies", busy)[1:] == (STREAM,)


def test_batches_that_are_not_pinned_though_the_loader_pins() -> None:
    run = logged(loader={"pinned": True})
    assert told("copies", run)[1:] == ("give batches a method pin_memory()",)


@pytest.mark.parametrize(
    "of_gpu",
    [{"host_bytes": 8 * MB}, {"host_bytes": 0.0}, {"received": 1.2 * GB}, {"idle": 19, "wait": 19}],
    ids=["small", "on the GPU already", "not copied", "the loader is the limit"],
)
def test_copies_that_cost_nothing(of_gpu: dict[str, float]) -> None:
    """Of 2.5 GB a second that batches have, PCIe carries less than half."""
    assert told("copies", logged(**of_gpu)) == ()


def test_what_pcie_carries_stands_beside_the_bytes_of_batches() -> None:
    (finding,) = diagnose(logged(received=2.6 * GB)).findings
    assert finding.sure
    assert finding.facts["batches a second, bytes"] == 2.5 * GB
    assert finding.facts["over PCIe to the GPU a second, bytes"] == pytest.approx(2.6 * GB)


def test_where_the_bandwidth_is_not_known() -> None:
    """As of an older log, a loader that does not pin is told without a time."""
    run = replace(logged(loader={"pinned": False}), readings={})
    says = "Batches are copied to the GPU from memory that is not pinned."
    assert told("copies", run) == (says, PIN)
    pins = replace(logged(loader={"pinned": True}), readings={})
    assert told("copies", pins) == ("how fast batches are copied was not measured",)
    host = replace(
        run,
        steps=run.steps.replace(
            gpu_idle_ns=0 * run.steps.wait_ns + UNKNOWN, gpu_step_ns=0 * run.steps.wait_ns + UNKNOWN
        ),
    )
    assert told("copies", host) == ("there is no CUDA device",)


def test_what_quicker_copies_gain_is_predicted() -> None:
    """It is more than free loading would gain, for that copies too."""
    run = looked_into(fetch=5, step=20)
    run = replace(
        run, steps=run.steps.replace(gpu_idle_ns=run.steps.wait_ns, gpu_step_ns=run.steps.step_ns)
    )
    run = replace(run, readings=read(host_bytes=50 * MB))
    diagnosis = diagnose(run)
    assert [finding.rule for finding in diagnosis.findings] == ["copies"]
    (action,) = diagnosis.actions
    assert (action.says, action.setting) == (PIN, "pin_memory")
    assert action.speedup is not None
    assert action.speedup.value == pytest.approx(20 / 12.5, rel=0.02)
