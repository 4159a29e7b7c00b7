"""Each finding from outside the loader in a real run of a real one that has the fault.

What needs a CUDA device is not here.
"""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from bench.judge import compared, launched
from bench.zoo.costs import Burn, Pause
from bench.zoo.outside import (
    CPUS,
    SEEN,
    Shuffling,
    keeping_batches,
    keeping_outputs,
    keeping_samples,
    mapping,
    opening,
    written,
)
from bench.zoo.programs import Samples, Training
from loadeval.probes.host import HostProbe  # memory is read often, so that seconds show hours

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on few CPUs

OFTEN: dict[str, Any] = {"probes": ["host"], "probe_interval_s": 0.01}


@pytest.fixture(autouse=True)
def _all_is_read_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it is costly, so that seconds show what hours do."""
    monkeypatch.setattr("loadeval.probes.host.MOST_SHARE", float("inf"))


def logged(training: Training, folder: Path, mode: str = "log", **options: Any) -> Path:
    """The log of a training; nobody looks into the loader."""
    options = {"probes": (), **({"stages": False} if mode == "alternate" else {}), **options}
    return training.logged(folder / f"{mode}.jsonl", mode, **options)


@pytest.mark.parametrize("name", SEEN)
def test_the_fault_is_found(name: str, tmp_path: Path) -> None:
    seen = SEEN[name]
    options = OFTEN if seen.cause == "shared machine" else {}
    options = {**options, **({"stages": True} if seen.looks else {}), "overwrite": True}
    for make in filter(None, (seen.make, seen.healthy)):
        said = compared(logged(make(), tmp_path, seen.mode, **options))
        found = {finding.rule for finding in said.findings}
        assert (seen.cause in found) is (make is seen.make)


def test_the_line_that_grows(tmp_path: Path) -> None:
    """It is named in the faulty program, and nothing grows in its healthy twin."""
    for faulty in (True, False):
        said = compared(written(1500, anew=faulty).logged(tmp_path / f"{faulty}.jsonl"))
        found = [each for each in said.findings if each.rule == "growing step"]
        assert [" save" in each.says and "outside.py" in each.text for each in found] == [
            True
        ] * faulty


def test_too_slow_on_busy_cpus(tmp_path: Path) -> None:
    """Twice as many workers as CPUs compute: more of them are not advised."""
    burn = Burn(40)
    every = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(every)[:4])
    loader = DataLoader(
        Samples(lambda index: burn(index) or index, 160),
        num_workers=2 * min(CPUS, 4),
        prefetch_factor=1,
    )
    log = logged(Training(loader, Pause(1)), tmp_path, "alternate", pairs=3, **OFTEN)
    os.sched_setaffinity(0, every)
    finding = compared(log).finding("waiting")
    assert "no CPU is free" in finding.text
    assert finding.proposed("num_workers") == []


@pytest.mark.parametrize(
    ("persistent", "says"),
    [(False, "persistent_workers False -> True"), (True, "make the first batch of an epoch")],
)
def test_epoch_boundaries_of_a_shuffle_buffer(persistent: bool, says: str, tmp_path: Path) -> None:
    """It is filled whether workers stay or not, so these are not promised to end the wait."""
    loader = DataLoader(Shuffling(), num_workers=1, persistent_workers=persistent)
    log = logged(Training(loader, Pause(10), epochs=3), tmp_path)
    assert compared(log).finding("epoch boundaries").do[0].text.startswith(says)


@pytest.mark.parametrize(
    ("make", "rules"),
    [
        (keeping_outputs, {"process memory"}),
        (keeping_samples, {"worker memory"}),
        (keeping_batches, {"process memory", "open files"}),
        (partial(keeping_batches, keeps=False), set()),
        (mapping, set()),
        (opening, {"open files"}),
        (partial(opening, closes=True), set()),
    ],
)
def test_what_grows(make: Callable[[int], Training], rules: set[str], tmp_path: Path) -> None:
    """Memory and open files, of the training process or of a worker."""
    probes = [HostProbe(memory_every_s=0)]
    log = logged(make(250), tmp_path, probes=probes, probe_interval_s=0.001, stages=True)
    grows = {"process memory", "worker memory", "open files"}
    assert {finding.rule for finding in compared(log).findings} & grows == rules


def test_not_representative(tmp_path: Path) -> None:
    """A step that takes longer from batch to batch."""
    logs = [
        logged(Training(range(80), Pause(lambda number: 0.1 * number)), tmp_path, mode)
        for mode in ("log", "replay")
    ]
    finding = compared(*logs).finding("not representative")
    assert "rank correlation with place in the epoch" in finding.facts


@pytest.mark.parametrize(
    ("program", "faulty", "healthy", "rule", "named"),
    [
        ("resuming", "", "by indices", "batches passed over", "The first 80 of 160 batches"),
        ("validating", "slow", "quick", "slow validation", "num_workers 0 -> 1 for validation"),
        ("validating", "with a worker", "quick", "slow validation", "outside.py"),
    ],
)
def test_the_fault_of_a_whole_program_is_found(
    program: str, faulty: str, healthy: str, rule: str, named: str, tmp_path: Path
) -> None:
    """And not in its healthy twin."""
    said = {}
    for how in (faulty, healthy):
        logs = tmp_path / f"logs {how}"
        launched(logs, ("-m", "bench.zoo.whole", program, how))
        said[how] = {finding.rule: finding.text for finding in compared(logs).findings}
    assert named in said[faulty][rule]
    assert rule not in said[healthy]
