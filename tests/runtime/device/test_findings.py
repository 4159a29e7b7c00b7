"""What is found where a device is in use: a real DataLoader, over a device that stands in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.utils.data import DataLoader, Dataset

from loadeval import LoaderEvaluator, diagnose

if TYPE_CHECKING:
    from loadeval.testing import FakeClock
    from tests.runtime.device.conftest import Device


class Timed(Dataset[torch.Tensor]):
    """Numbers, each of which takes 40 ns by the clock."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> torch.Tensor:
        self.clock.advance(40)
        return torch.tensor([index])


def rules_found(device: Device, clock: FakeClock, work_ns: int) -> list[str]:
    """What is found in a run whose steps give the device that much work."""
    with LoaderEvaluator(DataLoader(Timed(clock)), clock=clock, probes=()) as evaluator:
        for _ in evaluator:
            device.work(work_ns)
    return [one.rule for one in diagnose(evaluator.recorded()).findings]


def test_waits_that_the_device_does_not_feel(device: Device, clock: FakeClock) -> None:
    """It has work for longer than a batch takes to load."""
    assert "hidden wait" in rules_found(device, clock, 100)


def test_waits_that_the_device_feels(device: Device, clock: FakeClock) -> None:
    """It is done long before the next batch is there."""
    assert "hidden wait" not in rules_found(device, clock, 10)


def test_batches_that_are_not_pinned(device: Device, clock: FakeClock) -> None:
    """As a DataLoader serves them unless it is told otherwise."""
    assert "unpinned memory" in rules_found(device, clock, 100)
