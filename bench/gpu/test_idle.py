"""GPU idle while waiting, against a device whose work and waits are known."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from bench.gpu.claims import IDLE, IDLE_COST, IDLE_HIDDEN, IDLE_NO_SYNC
from bench.gpu.device import Products, device_ms
from bench.judge import column, compared
from loadeval import LoaderEvaluator

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bench.gpu.conftest import Notes

pytestmark = pytest.mark.gpu

BATCHES = 60
SETTLED = 10
WITHIN = 0.05
LEAST_MS = 0.2
"""What a sleep overshoots, and what a launch takes: idle times are not known better."""
MOST_US = 10


class Waiting:
    """A loader that takes `ms` for each batch, and notes what it really took."""

    def __init__(self, ms: float, batches: int = BATCHES) -> None:
        self.ms, self.batches = ms, batches
        self.taken_ms: list[float] = []

    def __iter__(self) -> Iterator[torch.Tensor]:
        for number in range(self.batches):
            began = time.perf_counter()
            time.sleep(self.ms / 1e3)
            self.taken_ms.append((time.perf_counter() - began) * 1e3)
            yield torch.tensor([number])


def log_of(folder: Path, loader: Any, work: Any, *, syncs: bool) -> Path:
    """The log of an epoch whose steps queue `work`, and wait for it where they sync."""
    log = folder / "run.jsonl"
    with LoaderEvaluator(loader, probes=(), log_file=log) as evaluator:
        for _ in evaluator:
            work()
            if syncs:
                torch.cuda.synchronize()
    return log


@pytest.mark.parametrize("syncs", [False, True], ids=["asynchronous", "syncs"])
@pytest.mark.parametrize("wait_ms", [2.0, 10.0, 20.0])
@pytest.mark.parametrize("work_ms", [0.0, 5.0, 15.0])
def test_idle_is_what_the_wait_outlasts_the_work(
    note: Notes, tmp_path: Path, work_ms: float, wait_ms: float, syncs: bool
) -> None:
    """The device is idle for max(0, w - k), with k ms of queued kernels and a wait of w ms.

    Kernels run from the first launch on, so the time to launch them all counts as waited.
    """
    work = Products(work_ms) if work_ms else partial(int, 0)
    queued_ms = float(np.median([device_ms(work) for _ in range(9)])) if work_ms else 0.0
    loader = Waiting(wait_ms)
    log = log_of(tmp_path, loader, work, syncs=syncs)
    waited_ms = np.array(loader.taken_ms)
    launched_ms = np.roll(column(log, "step_ns") / 1e6, 1)  # in the step before
    outlasts_ms = waited_ms if syncs else np.maximum(0, launched_ms + waited_ms - queued_ms)
    expected = float(np.median(outlasts_ms[SETTLED:]))
    measured = float(np.median(column(log, "gpu_idle_ns")[SETTLED:] / 1e6))
    note(
        IDLE,
        f"{work_ms:g} ms queued, {wait_ms:g} ms waited, {'synced' if syncs else 'not synced'}",
        expected=f"{expected:.3g} ms",
        measured=f"{measured:.3g} ms",
        held=abs(measured - expected) <= max(WITHIN * expected, LEAST_MS),
    )


@pytest.mark.parametrize(("work_ms", "wait_ms", "hidden"), [(12.0, 6.0, True), (3.0, 9.0, False)])
def test_a_hidden_wait_is_called_hidden(
    note: Notes, tmp_path: Path, work_ms: float, wait_ms: float, hidden: bool
) -> None:
    log = log_of(tmp_path, Waiting(wait_ms), Products(work_ms), syncs=False)
    rules = [finding.rule for finding in compared(log).findings]
    note(
        IDLE_HIDDEN,
        f"{work_ms:g} ms queued, {wait_ms:g} ms waited",
        expected="hidden waits" if hidden else "no such finding",
        measured=", ".join(rules) or "nothing",
        held=("hidden waits" in rules) is hidden,
    )


def test_events_cost_little(note: Notes) -> None:
    """Nanoseconds a batch, beside a loop of the same batches with no device in use."""
    loader = [torch.zeros(1)] * 5000

    def loop_us() -> float:
        with LoaderEvaluator(loader, probes=()) as evaluator:
            began = time.perf_counter()
            for _ in evaluator:
                pass
            return (time.perf_counter() - began) / len(loader) * 1e6

    torch.cuda.synchronize()
    with_events, without = [], []
    used = torch.cuda.is_initialized
    for _ in range(7):
        with_events.append(loop_us())
        torch.cuda.is_initialized = lambda: False
        try:
            without.append(loop_us())
        finally:
            torch.cuda.is_initialized = used
    cost_us = float(np.median(with_events) - np.median(without))
    note(
        IDLE_COST,
        "two events a batch",
        expected=f"under {MOST_US} us",
        measured=f"{cost_us:.2f} us",
        held=cost_us < MOST_US,
    )


def test_no_batch_waits_for_the_device(note: Notes) -> None:
    """A loop is over on the host long before the device has done what it queued."""
    work = Products(20.0)
    work_ms = device_ms(work)
    loader = [torch.zeros(1)] * 15
    with LoaderEvaluator(loader, probes=()) as evaluator:
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in evaluator:
            work()
        host_ms = (time.perf_counter() - began) * 1e3
    total_ms = work_ms * len(loader)
    note(
        IDLE_NO_SYNC,
        f"{total_ms:.0f} ms of kernels queued in 15 steps",
        expected=f"under {total_ms / 2:.0f} ms on the host",
        measured=f"{host_ms:.0f} ms",
        held=host_ms < total_ms / 2,
    )
