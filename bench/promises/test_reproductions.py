"""Each finding from outside the loader in a real run of a real one that has the fault.

What needs a CUDA device is not here.
"""

from __future__ import annotations

import os
import time
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from torch.utils.data import DataLoader

from bench.judge import compared
from bench.zoo.costs import MS, Alone, Pause, Sleep
from bench.zoo.outside import CPUS, SEEN, Shuffling, keeping_outputs, keeping_samples, slow
from bench.zoo.programs import Samples, Training
from loadeval import LoaderEvaluator
from loadeval.probes.host import HostProbe  # memory is read often, so that seconds show hours

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.judge import Finding, Said
    from bench.zoo.outside import Seen

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),  # more workers than CPUs
]

OFTEN: dict[str, Any] = {"probes": ["host"], "probe_interval_s": 0.01}


def log_of(training: Training, mode: str, folder: Path, **options: Any) -> Path:
    """The log of a training; nobody looks into the loader."""
    log = folder / f"{mode}.jsonl"
    options = {"probes": (), "log_file": log, **options}
    if mode == "alternate":
        options["stages"] = False
    with LoaderEvaluator(training.loader, mode=mode, **options) as evaluator:
        training.run(evaluator)
        training.close()
    return log


def trained(training: Training, mode: str = "log", **options: Any) -> Said:
    """What is said of a training."""
    with TemporaryDirectory() as folder:
        return compared(log_of(training, mode, Path(folder), **options))


def the(rule: str, said: Said) -> Finding:
    """The finding of that rule."""
    rules = [finding.rule for finding in said.findings]
    assert rule in rules, rules
    return said.finding(rule)


@pytest.fixture
def _all_is_read_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it is costly, so that seconds show what hours do."""
    monkeypatch.setattr("loadeval.probes.host.MOST_SHARE", float("inf"))


@pytest.fixture
def four_cpus() -> Iterator[int]:
    """Four CPUs at most, for this process and those that it starts."""
    every = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(every)[:4])
    yield min(len(every), 4)
    os.sched_setaffinity(0, every)


ALSO: dict[str, Callable[[Finding, Said], bool]] = {
    "two workers at 20 ms for a step of 2": lambda found, _: (found.cost or 0.0) >= 0.2,
    "batches to unpack": lambda found, _: "fewer bytes" in found.do[0].says,
    "a lock that steps need too": lambda found, _: (found.cost or 0.0) >= 0.05,
    "a generator": lambda found, _: found.do[0].says == "load in the background",
    "no workers, in a log": lambda found, _: min(found.proposed("num_workers")) > 0,
    "a worker that is too slow": lambda found, _: "loadeval diagnose" in found.do[0].says,
    "a process that computes": lambda found, _: "nothing else runs" in found.do[0].says,
    "200 ms for one batch in a hundred": lambda _, said: 99 in said.outliers,
    "workers that begin in 200 ms, each epoch": lambda found, _: (
        found.proposed("persistent_workers") == [True]
    ),
    "each batch takes longer than the one before": lambda found, _: (
        "grows in the loader" in found.do[0].says
    ),
    "the second half comes from a cache": lambda found, _: "faster" in found.says,
    "one step saves a checkpoint": lambda _, said: 40 in said.outliers,
    "one worker more than CPUs": lambda found, _: found.proposed("num_workers") == [CPUS],
}
"""What else is said of a fault."""


@pytest.mark.usefixtures("_all_is_read_often")
@pytest.mark.parametrize("seen", SEEN, ids=lambda seen: seen.name)
def test_the_fault_is_found(seen: Seen) -> None:
    options = OFTEN if seen.cause == "shared machine" else {}
    said = trained(seen.make(), seen.mode, **options)
    finding = the(seen.cause, said)
    also = ALSO.get(seen.name)
    assert also is None or also(finding, said), finding


@pytest.mark.usefixtures("_all_is_read_often")
def test_too_slow_on_busy_cpus(four_cpus: int) -> None:
    """Twice as many workers as CPUs compute: more of them are not advised."""

    def compute(index: int) -> int:
        until = time.thread_time() + 40 * MS
        while time.thread_time() < until:
            pass
        return index

    loader = DataLoader(Samples(compute, 160), num_workers=2 * four_cpus, prefetch_factor=1)
    run = trained(Training(loader, Pause(1)), "alternate", pairs=3, **OFTEN)
    finding = the("waiting", run)
    assert "no CPU is free" in finding.text
    assert finding.proposed("num_workers") == []


@pytest.mark.usefixtures("_all_is_read_often")
def test_too_slow_behind_a_lock() -> None:
    """No number of workers is told where nobody looked what they wait for."""
    alone = Alone(get_context("fork").Lock(), Sleep(10))
    samples = Samples(lambda index: alone(index) or index, 120)
    loader = DataLoader(samples, num_workers=4, multiprocessing_context="fork")
    run = trained(Training(loader, Pause(1), epochs=3), "alternate", pairs=3, **OFTEN)
    finding = the("waiting", run)
    assert finding.proposed("num_workers") == []
    # Others may keep the CPUs busy.
    assert any(words in finding.text for words in ("are left for workers", "no CPU is free"))


def test_shallow_queue() -> None:
    """Every fourth sample takes two steps' time: a queue of one batch cannot hide that."""
    options = {"num_workers": 1, "prefetch_factor": 1}
    training = slow(180, lambda index: 45 if index % 4 == 3 else 0, 20, **options)
    finding = the("shallow queue", trained(training, "alternate", pairs=6))
    assert finding.do[0].says == "prefetch_factor 1 -> 2"


def test_a_rare_stall() -> None:
    """One batch in 25 takes 100 ms, others none: that is no cost of every batch."""
    options = {"num_workers": 1, "prefetch_factor": 2}
    training = slow(400, lambda index: 100 if index % 25 == 24 else 0, 5, **options)
    run = trained(training, "alternate", pairs=16)
    assert all("equally long" not in finding.text for finding in run.findings)
    assert the("shallow queue", run).facts["of it in stalls, share"] > 0.5


def test_the_first_of_slow_epochs_is_no_exception() -> None:
    (seen,) = (seen for seen in SEEN if seen.cause == "epoch boundaries")
    findings = trained(seen.make()).findings
    assert "slow first batch" not in {finding.rule for finding in findings}


@pytest.mark.parametrize(
    ("persistent", "says"),
    [(False, "persistent_workers False -> True"), (True, "make the first batch of an epoch")],
)
def test_epoch_boundaries_of_a_shuffle_buffer(persistent: bool, says: str) -> None:
    """It is filled whether workers stay or not, so these are not promised to end the wait."""
    loader = DataLoader(Shuffling(), num_workers=1, persistent_workers=persistent)
    finding = the("epoch boundaries", trained(Training(loader, Pause(10), epochs=3)))
    assert finding.do[0].says.startswith(says)
    assert finding.facts["start of a later epoch, ns"] >= 300e6


@pytest.mark.usefixtures("_all_is_read_often")
@pytest.mark.parametrize(
    ("make", "rule"), [(keeping_outputs, "process memory"), (keeping_samples, "worker memory")]
)
def test_memory_that_grows(make: Callable[[int], Training], rule: str) -> None:
    """A list of all outputs so far grows with every step, or a dataset keeps what it has loaded."""
    probes = [HostProbe(memory_every_s=0)]
    run = trained(make(150), probes=probes, probe_interval_s=0.001)
    the(rule, run)


def test_not_representative(tmp_path: Path) -> None:
    """A step that takes longer from batch to batch."""
    logs = [
        log_of(Training(range(80), Pause(lambda number: 0.1 * number)), mode, tmp_path)
        for mode in ("log", "replay")
    ]
    finding = the("not representative", compared(*logs))
    assert "rank correlation with place in the epoch" in finding.facts
