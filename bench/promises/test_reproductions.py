"""Each finding from outside the loader in a real run of a real one that has the fault.

Loaders and steps sleep, for far longer than a slow machine could blur. What needs a CUDA
device is not here.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from bench.judge import compared
from loadeval import LoaderEvaluator
from loadeval.probes.host import HostProbe  # memory is read often, so that seconds show hours

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from bench.judge import Finding

    Trained = Callable[..., Path]

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),  # more workers than CPUs
]

MS = 0.001
Numbers = Dataset[torch.Tensor]


class Slow(Numbers):
    """Numbers, of which each takes as long as `seconds` says."""

    def __init__(self, count: int, seconds: Callable[[int], float]) -> None:
        self.count = count
        self.seconds = seconds

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.seconds(index))
        return torch.tensor([index])


class Sealed:
    """What takes 10 ms to unpack, for the process that does."""

    def __reduce__(self) -> tuple[Any, ...]:
        return time.sleep, (10 * MS,)


class Sharing(Numbers):
    """Numbers, for each of which a lock is held for 10 ms."""

    def __init__(self, lock: Any) -> None:
        self.lock = lock

    def __len__(self) -> int:
        return 120

    def __getitem__(self, index: int) -> torch.Tensor:
        with self.lock:
            time.sleep(10 * MS)
        return torch.tensor([index])


class Computing(Numbers):
    """Numbers, of which each takes 40 ms of a CPU's time."""

    def __len__(self) -> int:
        return 160

    def __getitem__(self, index: int) -> torch.Tensor:
        until = time.thread_time() + 40 * MS
        while time.thread_time() < until:
            pass
        return torch.tensor([index])


class Shuffling(IterableDataset[int]):
    """Numbers, of which each epoch first reads a hundred, at 3 ms each."""

    def __iter__(self) -> Iterator[int]:
        time.sleep(100 * 3 * MS)
        yield from range(10)


class Keeping(Slow):
    """Numbers, with each of which a worker keeps a megabyte more."""

    def __init__(self) -> None:
        super().__init__(400, lambda _: 5 * MS)
        self.kept: list[bytes] = []

    def __getitem__(self, index: int) -> torch.Tensor:
        self.kept.append(os.urandom(1_000_000))
        return super().__getitem__(index)


@pytest.fixture(name="trained")
def _trained(tmp_path: Path) -> Trained:
    """Runs a loop that calls `step` with each batch's number; nobody looks into the loader.

    Returns the log.
    """

    def trained(
        loader: Any,
        step: Callable[[int], object],
        mode: str = "log",
        epochs: int = 1,
        **options: Any,
    ) -> Path:
        log = tmp_path / f"{mode}.jsonl"
        options = {"probes": (), "log_file": log, **options}
        if mode == "alternate":
            options["stages"] = False
        with LoaderEvaluator(loader, mode=mode, **options) as evaluator:
            for _ in range(epochs):
                for number, _ in enumerate(evaluator):
                    step(number)
        return log

    return trained


def the(rule: str, *logs: Path) -> Finding:
    """The finding of that rule."""
    findings = {finding.rule: finding for finding in compared(*logs).findings}
    assert rule in findings, list(findings)
    return findings[rule]


def pause(milliseconds: float) -> Callable[[int], None]:
    """A step that sleeps."""
    return lambda _: time.sleep(milliseconds * MS)


@pytest.fixture
def _all_is_read_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it is costly, so that seconds show what hours do."""
    monkeypatch.setattr("loadeval.probes.host.MOST_SHARE", float("inf"))


def test_capacity(trained: Trained) -> None:
    """Two workers at 20 ms a batch cannot feed a step of 2 ms."""
    loader = DataLoader(Slow(150, lambda _: 20 * MS), num_workers=2)
    finding = the("capacity", trained(loader, pause(2), "alternate", pairs=4))
    assert finding.severity == "high"


@pytest.fixture
def four_cpus() -> Iterator[int]:
    """Four CPUs at most, for this process and those that it starts."""
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("this system cannot keep a process to some of the CPUs")
    every = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(every)[:4])
    yield min(len(every), 4)
    os.sched_setaffinity(0, every)


@pytest.mark.usefixtures("_all_is_read_often")
@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
def test_capacity_on_busy_cpus(trained: Trained, four_cpus: int) -> None:
    """Twice as many workers as CPUs compute: more of them are not advised, but fewer."""
    loader = DataLoader(Computing(), num_workers=2 * four_cpus, prefetch_factor=1)
    options: dict[str, Any] = {"probes": ["host"], "probe_interval_s": 0.01, "pairs": 3}
    run = trained(loader, pause(1), "alternate", **options)
    finding = the("capacity", run)
    assert "no_more_workers" in finding.codes
    assert finding.workers_advised == []
    assert "cpus_busy" in the("oversubscription", run).codes


@pytest.mark.usefixtures("_all_is_read_often")
def test_capacity_behind_a_lock(trained: Trained) -> None:
    """Workers that wait for one another are told as waiting for what is not known."""
    loader = DataLoader(
        Sharing(get_context("fork").Lock()), num_workers=4, multiprocessing_context="fork"
    )
    options: dict[str, Any] = {"probes": ["host"], "probe_interval_s": 0.01, "pairs": 3}
    finding = the("capacity", trained(loader, pause(1), "alternate", epochs=3, **options))
    if "no_more_workers" in finding.codes:  # others keep the CPUs busy
        assert finding.workers_advised == []
        return
    assert finding.codes[0] == "workers_mostly_wait"
    assert finding.workers_advised == [8]
    assert finding.confidence == "possible"


def test_zero_workers(trained: Trained) -> None:
    """A DataLoader loads in the training process unless it is told otherwise."""
    finding = the("zero workers", trained(DataLoader(Slow(60, lambda _: 5 * MS)), pause(1)))
    assert min(finding.workers_advised) > 0


def test_shallow_queue(trained: Trained) -> None:
    """Every fourth sample takes two steps' time: a queue of one batch cannot hide that."""
    uneven = Slow(180, lambda index: 45 * MS if index % 4 == 3 else 0)
    loader = DataLoader(uneven, num_workers=1, prefetch_factor=1)
    finding = the("shallow queue", trained(loader, pause(20), "alternate", pairs=6))
    assert finding.changes[0].code == "raise"
    values = {"setting": "prefetch_factor", "present": 1, "proposed": 2}
    assert finding.changes[0].values == values


def test_per_batch_cost(trained: Trained) -> None:
    """A worker makes batches at once, which it takes the training process time to unpack."""
    batches: Any = [Sealed()] * 120
    loader: DataLoader[Any] = DataLoader(batches, batch_size=None, num_workers=1)
    finding = the("per-batch cost", trained(loader, pause(30), "alternate", pairs=4))
    assert finding.codes[0] in {"cut_bytes", "fewer_tensors"}


def test_a_rare_stall(trained: Trained) -> None:
    """One batch in 25 takes 100 ms, others none: that is no cost of every batch."""
    stalling = Slow(400, lambda index: 0.1 if index % 25 == 24 else 0)
    loader = DataLoader(stalling, num_workers=1, prefetch_factor=2)
    run = trained(loader, pause(5), "alternate", pairs=16)
    assert "per-batch cost" not in {finding.rule for finding in compared(run).findings}
    assert the("shallow queue", run).shown[1][1] > 0.5


def test_a_generator(trained: Trained) -> None:
    """It loads while training waits, and never else."""

    def batches() -> Iterator[int]:
        for number in range(80):
            time.sleep(10 * MS)
            yield number

    finding = the("zero workers", trained(batches, pause(10), "alternate"))
    assert finding.codes == ["load_in_background"]


@pytest.mark.usefixtures("_all_is_read_often")
def test_shared_machine(trained: Trained) -> None:
    """A process that is nobody's child here computes all the time."""
    command = '"$0" -c "while True: pass" > /dev/null 2>&1 & echo $!'
    shell = subprocess.run(
        ["/bin/sh", "-c", command, sys.executable], capture_output=True, text=True, check=True
    )
    try:
        run = trained(range(400), pause(5), probes=["host"], probe_interval_s=0.01)
    finally:
        os.kill(int(shell.stdout), signal.SIGKILL)
    assert the("shared machine", run).codes == ["measure_quiet"]


def test_waiting(trained: Trained) -> None:
    """A log tells that training waits."""
    loader = DataLoader(Slow(60, lambda _: 10 * MS), num_workers=1)
    assert the("waiting", trained(loader, pause(1))).codes == ["alternate"]


def test_contention(trained: Trained) -> None:
    """Two workers and the step want the same thing, of which there is one."""
    lock = get_context("fork").Lock()
    loader = DataLoader(Sharing(lock), num_workers=2, multiprocessing_context="fork")

    def step(_: int) -> None:
        with lock:
            time.sleep(10 * MS)

    run = trained(loader, step, "alternate", pairs=4)
    assert the("contention", run).severity in {"moderate", "high"}


def test_stalls(trained: Trained) -> None:
    """Every hundredth batch takes 200 ms, others none."""
    loader = DataLoader(Slow(400, lambda index: 0.2 if index % 100 == 99 else 0))
    finding = the("stalls", trained(loader, pause(0.5)))
    assert 99 in finding.batches


def test_epoch_boundaries(trained: Trained) -> None:
    """Workers that take 200 ms to begin are started anew each epoch: the first is no exception."""
    loader = DataLoader(
        Slow(10, lambda _: 0), num_workers=1, worker_init_fn=lambda _: time.sleep(0.2)
    )
    run = trained(loader, pause(5), epochs=3)
    assert the("epoch boundaries", run).codes == ["try_persistent_workers"]
    assert "slow first batch" not in {finding.rule for finding in compared(run).findings}


@pytest.mark.parametrize(
    ("persistent", "code"),
    [(False, "try_persistent_workers"), (True, "cheaper_epoch_start")],
)
def test_epoch_boundaries_of_a_shuffle_buffer(
    trained: Trained, persistent: bool, code: str
) -> None:
    """It is filled whether workers stay or not, so these are not promised to end the wait."""
    loader = DataLoader(Shuffling(), num_workers=1, persistent_workers=persistent)
    finding = the("epoch boundaries", trained(loader, pause(10), epochs=3))
    assert finding.codes == [code]
    assert finding.shown[0][1] >= 300e6


def test_falling_throughput(trained: Trained) -> None:
    """Each batch takes longer than the one before."""
    loader = DataLoader(Slow(160, lambda index: index * 0.1 * MS))
    finding = the("falling throughput", trained(loader, pause(1)))
    assert finding.codes == ["find_loader_growth"]


def test_drift(trained: Trained) -> None:
    """The second half is served from a cache, say."""
    loader = DataLoader(Slow(100, lambda index: 8 * MS if index < 50 else 0))
    finding = the("drift", trained(loader, pause(4)))
    assert finding.code == "second_half_faster"


def test_outliers(trained: Trained) -> None:
    """One step saves a checkpoint."""
    finding = the(
        "outliers",
        trained(range(60), lambda number: time.sleep(0.3 if number == 40 else 5 * MS)),
    )
    assert 40 in finding.batches


@pytest.mark.usefixtures("_all_is_read_often")
def test_process_memory(trained: Trained) -> None:
    """A list of all outputs so far grows with every step."""
    kept = []

    def step(_: int) -> None:
        kept.append(np.ones(125_000))
        time.sleep(5 * MS)

    probes = [HostProbe(memory_every_s=0)]
    run = trained(range(400), step, probes=probes, probe_interval_s=0.001)
    assert the("process memory", run).severity == "high"


@pytest.mark.usefixtures("_all_is_read_often")
def test_worker_memory(trained: Trained) -> None:
    """A dataset that keeps what it has loaded grows in its workers."""
    loader = DataLoader(Keeping(), num_workers=1)
    probes = [HostProbe(memory_every_s=0)]
    run = trained(loader, pause(1), probes=probes, probe_interval_s=0.001)
    assert the("worker memory", run).severity == "high"


@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")  # torch's, rightly
def test_oversubscription(trained: Trained) -> None:
    """One more than there are CPUs."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    loader = DataLoader(Slow(4, lambda _: 0), num_workers=cpus + 1)
    finding = the("oversubscription", trained(loader, pause(0)))
    assert finding.workers_advised == [cpus]


def test_not_representative(trained: Trained) -> None:
    """A step that takes longer from batch to batch."""
    step = partial(lambda scale, number: time.sleep(scale * number), 0.1 * MS)
    real = trained(range(80), step)
    ideal = trained(range(80), step, "replay")
    finding = the("not representative", real, ideal)
    assert finding.code == "step_depends_on_batch"
    assert "place" in finding.shown[0][0]
