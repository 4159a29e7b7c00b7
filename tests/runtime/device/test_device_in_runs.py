"""What the device noted is part of the run; without a device nothing is claimed."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from loadeval import LoaderEvaluator, read_run
from loadeval.runlog.model import UNKNOWN
from loadeval.runtime.cuda import synchronize, timing_events
from loadeval.testing import FakeClock, ScriptedLoader

if TYPE_CHECKING:
    from pathlib import Path

    from tests.runtime.device.conftest import Device


def evaluator_of(waits_ns: list[int], clock: FakeClock, **options: Any) -> LoaderEvaluator:
    loader = ScriptedLoader(range(len(waits_ns)), waits_ns, clock)
    return LoaderEvaluator(loader, clock=clock, probes=(), **options)


@pytest.mark.parametrize("logged", [True, False])
def test_a_run_has_it_for_each_batch(
    device: Device, clock: FakeClock, tmp_path: Path, logged: bool
) -> None:
    """Two epochs, the second broken off; closing waits for what the device has yet to pass."""
    path = tmp_path / "run.jsonl" if logged else None
    evaluator = evaluator_of([50, 130, 70], clock, log_file=path)
    for _ in evaluator:
        device.work(100)
    clock.advance(1000)
    for batch in evaluator:
        device.work(100)
        if batch == 1:
            break
    assert evaluator.recorded().steps.gpu_idle_ns.tolist() == [50, 30, 0, 50, 30]
    device.work(5000)
    list(evaluator)
    assert evaluator.recorded().steps.gpu_idle_ns.tolist()[5:] == [UNKNOWN] * 3
    evaluator.close()
    steps = (evaluator.recorded() if path is None else read_run(path)).steps
    assert steps.gpu_idle_ns.tolist() == [50, 30, 0, 50, 30, 0, 0, 0]
    assert steps.wait_ns.tolist() == [50, 130, 70, 50, 130, 50, 130, 70]


def test_a_saved_run_keeps_it(device: Device, clock: FakeClock, tmp_path: Path) -> None:
    """The metrics file has it too."""
    evaluator = evaluator_of([50, 130], clock)
    for _ in evaluator:
        device.work(100)
    evaluator.save_metrics(tmp_path / "metrics.json")
    assert read_run(tmp_path / "metrics.json").steps.gpu_idle_ns.tolist() == [50, 30]


def test_what_an_epoch_leaves_is_forgotten_once_it_is_read(
    device: Device, clock: FakeClock
) -> None:
    """A run of many epochs keeps no more than the live ones, and those of the device's queue."""
    evaluator = evaluator_of([1], clock)
    for _ in range(5):
        list(evaluator)
        clock.advance(1)
    evaluator.recorded()
    assert evaluator._measurement.recorder._gpu_idle_timers == []
    assert len(device.events) <= 4


def test_without_a_device_in_use_it_is_not_known(clock: FakeClock) -> None:
    """Where torch has begun no CUDA, no event is made and nothing waited for."""
    assert timing_events() is None
    synchronize()
    evaluator = evaluator_of([50, 130], clock)
    list(evaluator)
    assert evaluator.recorded().steps.gpu_idle_ns.tolist() == [UNKNOWN] * 2


def test_without_torch_there_is_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has not imported torch, or a part of it, has none in use."""
    monkeypatch.delitem(sys.modules, "torch")
    assert timing_events() is None
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())  # as while it is being imported
    assert timing_events() is None


def test_a_device_in_use_is_waited_for(device: Device) -> None:
    """synchronize() waits for all that torch asked of it."""
    synchronize()
    assert device.synchronized == 1
