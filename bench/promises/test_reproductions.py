"""Real runs: findings from outside the loader where the fault is, and nothing where there is none.

What needs a CUDA device is not here.
"""

import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from bench.judge import compared, launched
from bench.zoo import outside
from bench.zoo.costs import MS, Burn, Pause, hashes
from bench.zoo.outside import sleeping
from bench.zoo.programs import Samples, Stream, Training
from loadeval import read_run
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


@pytest.mark.parametrize("name", outside.SEEN)
def test_the_fault_is_found(name: str, tmp_path: Path) -> None:
    seen = outside.SEEN[name]
    options = OFTEN if seen.cause == "shared machine" else {}
    options = {**options, **({"stages": True} if seen.looks else {}), "overwrite": True}
    for make in filter(None, (seen.make, seen.healthy)):
        said = compared(logged(make(), tmp_path, seen.mode, **options))
        found = {finding.rule for finding in said.findings}
        assert (seen.cause in found) is (make is seen.make)


@pytest.mark.parametrize(
    ("make", "line"),
    [(partial(outside.written, 1500), " save"), (partial(outside.scored, 250), " score")],
)
def test_the_line_that_grows(make: Callable[..., Training], line: str, tmp_path: Path) -> None:
    """It is named in the faulty program, and nothing grows in its healthy twin."""
    for faulty in (True, False):
        said = compared(make(anew=faulty).logged(tmp_path / f"{faulty}.jsonl"))
        found = [each for each in said.findings if each.rule == "growing step"]
        named = [line in each.says and "outside.py" in each.text for each in found]
        assert named == [True] * faulty


def test_too_slow_on_busy_cpus(tmp_path: Path) -> None:
    """Twice as many workers as CPUs compute: more of them are not advised."""
    burn = Burn(40)
    every = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(every)[:4])
    loader = DataLoader(
        Samples(lambda index: burn(index) or index, 160),
        num_workers=2 * min(outside.CPUS, 4),
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
    buffer = outside.Shuffling(int, 10)
    loader = DataLoader(buffer, num_workers=1, persistent_workers=persistent)
    log = logged(Training(loader, Pause(10), epochs=3), tmp_path)
    assert compared(log).finding("epoch boundaries").do[0].text.startswith(says)


@pytest.mark.parametrize(
    ("make", "rules"),
    [
        (outside.keeping_outputs, {"process memory"}),
        (outside.keeping_samples, {"worker memory"}),
        (outside.keeping_batches, {"process memory", "open files"}),
        (partial(outside.keeping_batches, keeps=False), set()),
        (outside.mapping, set()),
        (outside.opening, {"open files"}),
        (partial(outside.opening, closes=True), set()),
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


COUNT = 240
STEP_MS = 15.0
OF_OTHERS = {"shared machine", "oversubscription"}
"""What other programs do on this machine is true of it."""


def made(ms: float, sample: Any) -> Samples:
    """The same sample again and again, which takes so long."""
    return Samples(lambda _: time.sleep(ms * MS) or sample, COUNT)


def rows() -> Samples:
    """Rows of a file that is mapped."""
    with tempfile.NamedTemporaryFile() as file:
        np.save(file, np.ones((COUNT, 1000), np.float32))
        table = np.load(file.name, mmap_mode="r")
    return Samples(lambda index: torch.from_numpy(table[index].copy()), COUNT)


def padded(samples: list[Any]) -> dict[str, Any]:
    tokens = torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)
    return {"input_ids": tokens, "attention_mask": (tokens > 0).long()}


HEALTHY: dict[str, Callable[[], Training]] = {
    "two workers that keep up": lambda: served(sleeping(COUNT, 8), num_workers=2),
    "tensors in memory, without workers": lambda: served(TensorDataset(torch.ones(COUNT, 8))),
    "a stream": lambda: served(Stream(sleeping(COUNT, 5).read, COUNT), num_workers=2),
    "short epochs and workers that stay": lambda: served(
        sleeping(COUNT // 4, 2), epochs=4, num_workers=1, persistent_workers=True
    ),
    "a dictionary of tensors": lambda: served(
        made(3, {"x": torch.ones(64, 64), "y": torch.ones(1)}), num_workers=1
    ),
    "arrays": lambda: served(made(3, np.ones((3, 32, 32))), num_workers=1, batch_size=None),
    "texts that are padded": lambda: served(
        Samples(lambda index: torch.ones(100 + index % 7, dtype=torch.long), 8 * COUNT),
        num_workers=1,
        batch_size=8,
        collate_fn=padded,
    ),
    "a list": lambda: Training([np.ones(10)] * COUNT, Pause(STEP_MS)),
    "rows of a mapped file": lambda: served(rows(), num_workers=1, shuffle=True),
    "samples that differ": lambda: served(
        sleeping(COUNT, lambda index: 2 + index % 9), num_workers=3, prefetch_factor=4
    ),
}


def served(dataset: Any, epochs: int = 1, **options: Any) -> Training:
    return Training(DataLoader(dataset, **options), Pause(STEP_MS), epochs)


@pytest.mark.parametrize("kind", HEALTHY)
def test_there_is_nothing_to_do(kind: str, tmp_path: Path) -> None:
    """Of ten kinds of loaders that keep up."""
    actions = compared(HEALTHY[kind]().logged(tmp_path / "run.jsonl")).actions
    assert [each.says for each in actions if not OF_OTHERS.issuperset(each.findings)] == []


WITHIN = 0.1
WORK = 60
"""Hashes, half a millisecond on a fast core."""


def worked(index: int) -> torch.Tensor:
    """Work for each, and a small tensor."""
    hashes(WORK)
    return torch.full((16,), float(index))


def uneven(index: int) -> torch.Tensor:
    """One in fifty takes twenty times as long."""
    hashes(0 if index % 50 else 20 * WORK)
    return worked(index)


def large_arrays(samples: list[torch.Tensor]) -> Any:
    hashes(400)
    return np.zeros((len(samples), 500_000), dtype=np.float32)


SAMPLES = Samples(worked, 384)
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "no workers": (SAMPLES, {}),
    "one worker": (SAMPLES, {"num_workers": 1}),
    "three workers that stay": (SAMPLES, {"num_workers": 3, "persistent_workers": True}),
    "a stream": (Stream(worked, 384), {"num_workers": 2}),
    "samples out of order": (Samples(uneven, 384), {"num_workers": 2, "in_order": False}),
    "slow collate, and a pipe": (SAMPLES, {"num_workers": 2, "collate_fn": large_arrays}),
}


@pytest.mark.parametrize("case", CASES)
def test_the_stages_add_up_to_the_loader_alone(case: str, tmp_path: Path) -> None:
    """Within a tenth, where it was looked into; the rest is told as not attributed."""
    dataset, options = CASES[case]
    loader = DataLoader(dataset, batch_size=4, **options)
    training = Training(loader, lambda _: hashes(100), epochs=6)
    path = training.logged(tmp_path / "run.jsonl", probes=())
    said = compared(path)
    assert said.stages_ns is not None
    looked = [each for each in read_run(path).prefetches if each.instrumented and each.timed]
    alone_ns = sum(each.elapsed_ns for each in looked) / sum(each.timed for each in looked)
    total_ns, charged_ns, not_attributed_ns = said.stages_ns
    assert charged_ns + not_attributed_ns == pytest.approx(total_ns)
    assert charged_ns == pytest.approx(alone_ns, rel=WITHIN)
