"""The speed-up if loading were free, against plain loops on the device."""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass
from functools import partial
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from bench.gpu.claims import ESTIMATE, ESTIMATE_COVERS
from bench.gpu.device import Products, device_ms, host_s
from bench.judge import compared
from loadeval import LoaderEvaluator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from bench.gpu.conftest import Notes

    Work = Callable[[torch.Tensor], Any]

pytestmark = pytest.mark.gpu

EPOCHS, BATCHES = 2, 65
"""Of one epoch alone nobody knows how the starts of epochs differ, and so no CI has that in it."""
IN_MEMORY = 65
STEP_MS = 10.0
WITHIN = 0.05
WORKERS = 4
SHAPE = (16, 64)


@dataclass(frozen=True)
class Case:
    """A step of `work`, and a loader that gives a batch every `load_ms`."""

    work: str
    load_ms: float
    workers: int
    pinned: bool
    non_blocking: bool
    syncs: bool

    def __str__(self) -> str:
        flags = [
            "pinned" if self.pinned else "not pinned",
            "non_blocking" if self.non_blocking else "blocking",
            "item() each batch" if self.syncs else "never waits",
        ]
        return f"{self.work}, {self.load_ms:g} ms, {self.workers} workers, {', '.join(flags)}"


# Each pair of values of any two settings stands in at least one of them.
CASES = [
    Case(work, load_ms, workers, bool(pinned), bool(non_blocking), bool(syncs))
    for work, rows in {
        "matmul": [
            (2, 0, 0, 1, 0),
            (5, 0, 1, 1, 0),
            (10, 4, 0, 0, 0),
            (15, 4, 1, 1, 1),
            (20, 0, 1, 0, 0),
        ],
        "graph": [
            (2, 4, 0, 1, 1),
            (5, 0, 1, 0, 1),
            (10, 4, 0, 1, 1),
            (15, 0, 1, 1, 0),
            (20, 4, 0, 1, 0),
        ],
        "compile": [
            (2, 0, 1, 0, 0),
            (5, 4, 0, 0, 1),
            (10, 0, 1, 1, 0),
            (15, 4, 1, 0, 0),
            (20, 4, 0, 1, 0),
        ],
        "amp": [
            (2, 4, 0, 1, 1),
            (5, 4, 1, 0, 1),
            (10, 4, 1, 0, 1),
            (15, 0, 0, 0, 0),
            (20, 4, 1, 0, 1),
        ],
    }.items()
    for load_ms, workers, pinned, non_blocking, syncs in rows
]


TOGETHER = NormalDist().inv_cdf(1 - 0.025 / len(CASES)) / NormalDist().inv_cdf(1 - 0.025)
"""Times as wide as one CI of 95% are those that cover in all cases with that probability.

C. E. Bonferroni, "Teoria statistica delle classi e calcolo delle probabilità", 1936. One 95% CI in
twenty misses by what it is.
"""


class Sleeping(Dataset[torch.Tensor]):
    """Batches that take `ms` each."""

    def __init__(self, ms: float, batches: int) -> None:
        self.ms, self.batches = ms, batches

    def __len__(self) -> int:
        return self.batches

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.ms / 1e3)
        return torch.full(SHAPE, float(index % 7))


def loader_of(case: Case, batches: int = BATCHES) -> DataLoader[torch.Tensor]:
    """The loader, whose workers load several batches at a time: one is ready every `load_ms`."""
    each_ms = case.load_ms * (case.workers or 1)
    return DataLoader(
        Sleeping(each_ms, batches),
        batch_size=None,
        num_workers=case.workers,
        pin_memory=case.pinned,
    )


def matmul() -> Work:
    products = Products(STEP_MS)
    return lambda _batch: products()


def graph() -> Work:
    """The same kernels, launched by one call."""
    products = Products(STEP_MS)
    products()
    torch.cuda.synchronize()
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        products()
    return lambda _batch: recorded.replay()


def network(width: int) -> nn.Sequential:
    layers = (nn.Linear(SHAPE[1], width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
    return nn.Sequential(*layers, nn.Linear(width, 1)).to("cuda")


def compiled() -> Work:
    """A compiled network, forwards only, and products up to the length of the step."""
    model = torch.compile(network(64))
    with torch.no_grad():
        model(torch.zeros(SHAPE, device="cuda"))
    products = Products(STEP_MS - 1)

    def work(batch: torch.Tensor) -> None:
        with torch.no_grad():
            model(batch)
        products()

    return work


def amp() -> Work:
    """A training step in mixed precision with a GradScaler, which waits for the device itself."""
    model = network(64)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cuda")
    products = Products(STEP_MS - 1)

    def work(batch: torch.Tensor) -> None:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(batch).square().mean()
        scaler.scale(loss).backward()
        products()
        scaler.step(optimizer)
        scaler.update()

    return work


WORKS = {"matmul": matmul, "graph": graph, "compile": compiled, "amp": amp}


def train(batches: Iterable[torch.Tensor], work: Work, case: Case, epochs: int = EPOCHS) -> None:
    """The training loop."""
    for _ in range(epochs):
        for batch in batches:
            moved = batch.to("cuda", non_blocking=case.non_blocking)
            work(moved)
            if case.syncs:
                moved[0, 0].item()


@pytest.fixture(autouse=True)
def _without_garbage_collection() -> Iterator[None]:
    """Collecting takes 80 ms where torch is imported, of one arm or of a plain loop."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case).replace(" ", "_"))
def test_speed_up_is_that_of_plain_loops(note: Notes, case: Case, tmp_path: Path) -> None:
    """Plain loops over the loader, and over batches in memory, before and after our run."""
    work = WORKS[case.work]()
    data = Sleeping(0, IN_MEMORY)
    in_memory = [data[i].pin_memory() if case.pinned else data[i] for i in range(IN_MEMORY)]
    device_ms(partial(work, in_memory[0].to("cuda")))
    real_s, ideal_s = [], []

    def truth() -> None:
        ideal_s.append(host_s(partial(train, in_memory, work, case, 1)) / IN_MEMORY)
        real_s.append(host_s(partial(train, loader_of(case), work, case)) / (EPOCHS * BATCHES))

    truth()
    log = tmp_path / "run.jsonl"
    options: dict[str, Any] = {"mode": "alternate", "probes": (), "log_file": log}
    with LoaderEvaluator(loader_of(case), **options) as evaluator:
        train(evaluator, work, case)
        torch.cuda.synchronize()
    truth()
    ratios = [real / ideal for real, ideal in zip(real_s, ideal_s, strict=True)]
    expected = sum(real_s) / sum(ideal_s)
    speedup = compared(log).speedup
    interval = None
    if speedup is not None and speedup.low is not None and speedup.high is not None:
        interval = speedup.low, speedup.high
    low, high = min(ratios), max(ratios)
    is_near = speedup is not None and low * (1 - WITHIN) <= speedup.value <= high * (1 + WITHIN)
    covers = False
    if speedup is not None and interval is not None:
        less, more = (speedup.value * (end / speedup.value) ** TOGETHER for end in interval)
        covers = less <= high and low <= more
    measured = "no speed-up" if speedup is None else f"{speedup.value:.2f}x"
    truths = f"{expected:.2f}x ({low:.2f}x to {high:.2f}x)"
    for claim, held in ((ESTIMATE, is_near), (ESTIMATE_COVERS, covers)):
        note(claim, str(case), expected=truths, measured=measured, held=held, interval=interval)
