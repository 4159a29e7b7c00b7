"""Trainings with a fault that the GPU feels, each named, and their healthy twins without it."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.data import DataLoader

from bench.gpu.claims import FAULTS, PIN_MEMORY
from bench.gpu.device import host_s
from bench.judge import compared
from bench.zoo import device
from bench.zoo.costs import MS, hashes
from bench.zoo.programs import Training
from loadeval import LoaderEvaluator

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from bench.gpu.conftest import Notes
    from bench.judge import Finding, Said

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
]

HARDLY_FASTER = 1.05
"""The speedup without loading: else loading may be the limit, and not the step."""


def said_of(folder: Path, training: Training, **options: Any) -> Said:
    """What is said of a training."""
    log = folder / "run.jsonl"
    ours: dict[str, Any] = {"probes": (), "log_file": log, "overwrite": True}
    with LoaderEvaluator(training.loader, **(ours | options)) as evaluator:
        training.run(evaluator)
        torch.cuda.synchronize()
    return compared(log)


def note_named(
    note: Notes, case: str, findings: Sequence[Finding], rules: set[str], *, is_faulty: bool
) -> None:
    """Note whether one of `rules` is among the findings, as it should or should not be."""
    names = " or ".join(sorted(rules))
    note(
        FAULTS,
        f"{case}{'' if is_faulty else ', healthy twin'}",
        expected=names if is_faulty else f"no {names}",
        measured=", ".join(finding.rule for finding in findings) or "nothing",
        held=any(finding.rule in rules for finding in findings) is is_faulty,
    )


def test_unpinned_memory(note: Notes, tmp_path: Path) -> None:
    """Following the advice is measured: nothing is promised of it."""
    mb = 16
    trainings = {pinned: device.unpinned(mb, pinned=pinned) for pinned in (False, True)}
    said = {pinned: said_of(tmp_path, training) for pinned, training in trainings.items()}
    for pinned, of_training in said.items():
        findings, rules = of_training.findings, {"unpinned memory"}
        note_named(note, "batches not pinned", findings, rules, is_faulty=not pinned)
    unpinned = said[False].finding("unpinned memory")
    promised = [
        action.says
        for action in said[False].actions
        if "unpinned memory" in action.findings and action.speedup is not None
    ]

    taken_s = {
        pinned: min(host_s(training.run) for _ in range(2))
        for pinned, training in trainings.items()
    }
    gain = taken_s[False] / taken_s[True]
    note(
        PIN_MEMORY,
        f"batches of {mb} MB, steps of 6 ms",
        expected="no speed-up promised, none under 0.95x",
        measured=f"{', '.join(promised) or 'none'} promised, {gain:.2f}x",
        held=not promised and unpinned.cost is None and gain >= 0.95,
    )


@pytest.mark.parametrize(("pin_ms", "is_faulty"), [(15.0, True), (0.0, False)])
def test_slow_pinning(note: Notes, tmp_path: Path, pin_ms: float, is_faulty: bool) -> None:
    """The thread that pins takes three times as long as a step."""
    findings = said_of(tmp_path, device.slow_pinning(pin_ms), mode="alternate").findings
    note_named(note, "slow pinning", findings, {"pinning"}, is_faulty=is_faulty)


@pytest.mark.parametrize(("work_ms", "is_faulty"), [(12.0, True), (1.0, False)])
def test_hidden_waits(note: Notes, tmp_path: Path, work_ms: float, is_faulty: bool) -> None:
    """Training waits 5 ms for each batch, and the device has work meanwhile, or has none."""
    findings = said_of(tmp_path, device.hidden_waits(work_ms)).findings
    note_named(note, "waits behind queued work", findings, {"hidden waits"}, is_faulty=is_faulty)


def burn(ms: float) -> None:
    """Keep this thread's CPU busy, for as long as that takes; it does not hold Python's lock."""
    until = time.thread_time() + ms * MS
    while time.thread_time() < until:
        hashes(16)


@pytest.mark.parametrize("is_faulty", [True, False])
def test_an_idle_gpu(note: Notes, tmp_path: Path, is_faulty: bool) -> None:
    """Loading is free, and steps are tiny kernels before work of the host, or large kernels.

    Without counters a driver's readings are of up to a second, and no block is as long.
    """
    training = device.idle_device(is_idle=is_faulty)
    said = said_of(tmp_path, training, mode="alternate", probes=("gpu",))
    speedup, unknown = said.steady_speedup, "; ".join(said.missing)
    if not any(
        name == "kernel_busy_percent" and ideal is not None
        for (_, name), (_, ideal) in said.readings.items()
    ):
        unknown = unknown or "no reading of an ideal block alone"
    elif speedup is None or speedup.high is None or speedup.high >= HARDLY_FASTER:
        unknown = f"a speed-up without loading that is known too badly: {speedup}"
    if unknown:
        note(FAULTS, "tiny kernels", expected="idle GPU", measured=unknown, held=None)
    else:
        note_named(note, "tiny kernels", said.findings, {"idle GPU"}, is_faulty=is_faulty)


@contextmanager
def on_cpus(count: int) -> Iterator[None]:
    """This thread, and the workers that it starts, share so many CPUs."""
    usable = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(usable)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, usable)


def burnt(ms: float, number: int) -> torch.Tensor:
    burn(ms)
    return torch.tensor([number])


@pytest.mark.parametrize(("workers", "burn_ms", "is_faulty"), [(4, 15.0, True), (1, 0.5, False)])
def test_contention_with_the_launching_thread(
    note: Notes, tmp_path: Path, workers: int, burn_ms: float, is_faulty: bool
) -> None:
    """Steps launch kernels between 6 ms of the host, on two CPUs that workers need too, or not."""
    tiny = torch.zeros(16, device="cuda")

    def step(_batch: Any) -> None:
        for _ in range(12):
            tiny.add_(1.0)
            burn(0.5)

    with on_cpus(2):
        batches = device.batches(200, partial(burnt, burn_ms))
        loader = DataLoader(batches, batch_size=None, num_workers=workers)
        options: dict[str, Any] = {"mode": "alternate", "probes": ("host",)}
        findings = said_of(tmp_path, Training(loader, step), **options).findings
    rules = {"contention", "oversubscription"}
    note_named(note, "workers on the launching thread's CPUs", findings, rules, is_faulty=is_faulty)
