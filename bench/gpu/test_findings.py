"""Trainings with a fault that the GPU feels, each named, and their healthy twins without it."""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from bench.gpu.claims import FAULTS, PIN_MEMORY
from bench.gpu.device import Products, host_s, is_stand_in
from bench.judge import compared
from loadeval import LoaderEvaluator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from bench.gpu.conftest import Notes
    from bench.judge import Finding, Said

    Step = Callable[[Any], object]

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
]

MB = 2**18
"""Elements of float32."""
HARDLY_FASTER = 1.05
"""The speedup without loading: else loading may be the limit, and not the step."""


class Batches(Dataset[Any]):
    """Has so many batches of `make(number)`, each of which takes a worker `ms` of sleep."""

    def __init__(self, count: int, make: Callable[[int], Any], ms: float = 0.0) -> None:
        self.count, self.make, self.ms = count, make, ms

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        if self.ms:
            time.sleep(self.ms / 1e3)
        return self.make(index)


def of_size(mb: float, number: int) -> torch.Tensor:
    return torch.full((int(mb * MB),), float(number))


def said_of(log: Path, loader: Any, step: Step, **options: Any) -> Said:
    """What is said of a training."""
    ours: dict[str, Any] = {"probes": (), "log_file": log, "overwrite": True}
    with LoaderEvaluator(loader, **(ours | options)) as evaluator:
        for batch in evaluator:
            step(batch)
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
    count, mb = 100, 2 if is_stand_in() else 16
    work = Products(6.0)

    def step(batch: torch.Tensor, *, non_blocking: bool) -> None:
        batch.to("cuda", non_blocking=non_blocking)
        work()

    def loader(pin_memory: bool) -> DataLoader[Any]:
        batches = Batches(count, partial(of_size, mb))
        return DataLoader(batches, batch_size=None, num_workers=4, pin_memory=pin_memory)

    steps = {pinned: partial(step, non_blocking=pinned) for pinned in (False, True)}
    said = {}
    for pinned, run_step in steps.items():
        said[pinned] = said_of(tmp_path / "run.jsonl", loader(pinned), run_step)
        findings, rules = said[pinned].findings, {"unpinned memory"}
        note_named(note, "batches not pinned", findings, rules, is_faulty=not pinned)
    unpinned = said[False].finding("unpinned memory")
    promised = [key for key in ("speedup", "at_most") if key in unpinned.changes[0].values]

    def epoch(pinned: bool) -> None:
        for batch in loader(pinned):
            steps[pinned](batch)

    taken_s = {pinned: min(host_s(partial(epoch, pinned)) for _ in range(2)) for pinned in steps}
    gain = taken_s[False] / taken_s[True]
    note(
        PIN_MEMORY,
        f"batches of {mb} MB, steps of 6 ms",
        expected="no speed-up promised, none under 0.95x",
        measured=f"{promised or 'none'} promised, {gain:.2f}x",
        held=not promised and unpinned.cost_share is None and gain >= 0.95,
    )


class Parts:
    """A batch that pins itself, which takes `ms`."""

    def __init__(self, x: torch.Tensor, ms: float) -> None:
        self.x, self.ms = x, ms

    def pin_memory(self) -> Parts:
        """Pin a part of it again and again, and then all of it."""
        until = time.perf_counter() + self.ms / 1e3
        while time.perf_counter() < until:
            self.x[:1024].clone().pin_memory()
        return Parts(self.x.pin_memory(), 0.0)


def parts(ms: float, number: int) -> Parts:
    return Parts(of_size(0.25, number), ms)


@pytest.mark.parametrize(("pin_ms", "is_faulty"), [(15.0, True), (0.0, False)])
def test_slow_pinning(note: Notes, tmp_path: Path, pin_ms: float, is_faulty: bool) -> None:
    """The thread that pins takes three times as long as a step."""
    work = Products(5.0)

    def step(batch: Parts) -> None:
        batch.x.to("cuda", non_blocking=True)
        work()

    loader = DataLoader(
        Batches(150, partial(parts, pin_ms)), batch_size=None, num_workers=2, pin_memory=True
    )
    findings = said_of(tmp_path / "run.jsonl", loader, step, mode="alternate").findings
    note_named(note, "slow pinning", findings, {"pinning"}, is_faulty=is_faulty)


@pytest.mark.parametrize(("work_ms", "is_faulty"), [(12.0, True), (1.0, False)])
def test_hidden_waits(note: Notes, tmp_path: Path, work_ms: float, is_faulty: bool) -> None:
    """Training waits 5 ms for each batch, and the device has work meanwhile, or has none."""
    work = Products(work_ms)

    def step(batch: torch.Tensor) -> None:
        batch.to("cuda", non_blocking=True)
        work()

    loader = DataLoader(Batches(80, partial(of_size, 0.25), 5.0), batch_size=None, pin_memory=True)
    findings = said_of(tmp_path / "run.jsonl", loader, step).findings
    note_named(note, "waits behind queued work", findings, {"hidden waits"}, is_faulty=is_faulty)


def burn(ms: float) -> None:
    """Keep this thread's CPU busy, for as long as that takes; it does not hold Python's lock."""
    data = bytes(256 * 1024)
    until = time.thread_time() + ms / 1e3
    while time.thread_time() < until:
        hashlib.sha256(data).digest()


@pytest.mark.parametrize("is_faulty", [True, False])
def test_an_idle_gpu(note: Notes, tmp_path: Path, is_faulty: bool) -> None:
    """Loading is free, and steps are tiny kernels before work of the host, or large kernels.

    Without counters a driver's readings are of up to a second, and no block is as long.
    """
    tiny = torch.zeros(16, device="cuda")
    work = Products(12.0)

    def step(_batch: Any) -> None:
        if is_faulty:
            for _ in range(4):
                tiny.add_(1.0)
            time.sleep(0.012)
        else:
            work()
            tiny[0].item()

    loader = [torch.zeros(16)] * 500
    said = said_of(tmp_path / "run.jsonl", loader, step, mode="alternate", probes=("gpu",))
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
        loader = DataLoader(
            Batches(200, partial(burnt, burn_ms)), batch_size=None, num_workers=workers
        )
        log, probes = tmp_path / "run.jsonl", ("host",)
        findings = said_of(log, loader, step, mode="alternate", probes=probes).findings
    rules = {"contention", "oversubscription"}
    note_named(note, "workers on the launching thread's CPUs", findings, rules, is_faulty=is_faulty)
