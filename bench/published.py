"""Published results in miniature: what `compare_backends` says where the answer is known.

NPZ files loaded by a thread and by a process, and one folder of photographs read by three
libraries under one step, a short one and a long one. Exit status 1 where what is said is not what
was published.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import sys
import tempfile
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from spdl.pipeline import Pipeline, PipelineBuilder
from torch import nn
from torch.utils.data import DataLoader, Dataset, default_collate

from loadeval import compare_backends
from loadeval.analysis.report import Report
from loadeval.analysis.rules.finding import Rule
from loadeval.demo.photographs import make_photographs
from loadeval.demo.run import keep_memory, one_thread
from loadeval.report.formatting import estimated, number, whole_share
from loadeval.report.wording.backends import difference_sentence
from loadeval_adapters.recipes import dali, pillow, spdl

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.analysis.backends import BackendResult
    from loadeval.report.backends import BackendComparison

    Sample = dict[str, torch.Tensor]

FILES, ARRAYS, NUMBERS, FILES_BATCH = 512, 8, 512, 8
LAYERS, WIDTH = 96, 64
SHORT, LONG = 4, 2
"""Strides of the first convolution; SHORT takes a little longer than loading a batch."""
PHOTOGRAPHS, PHOTOGRAPHS_BATCH = 512, 16
CONSIDERABLE = 0.1
"""Part by which one backend trains faster than another."""
THREAD, PROCESS = "SPDL, a thread", "DataLoader, a worker"


class NpzFiles(Dataset["Sample"]):
    """Files of several arrays each, which NumPy parses once they are in memory."""

    def __init__(self, folder: Path, *, compressed: bool) -> None:
        save = np.savez_compressed if compressed else np.savez
        random_numbers = np.random.default_rng(0)
        self.paths = [folder / f"{number}.npz" for number in range(FILES)]
        for path in self.paths:
            arrays = random_numbers.standard_normal((ARRAYS, NUMBERS), dtype=np.float32)
            save(path, **{f"part{at}": part for at, part in enumerate(arrays)})

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Sample:
        with np.load(BytesIO(self.paths[index].read_bytes())) as parts:
            return {name: torch.from_numpy(parts[name]) for name in parts}


def in_a_thread(files: NpzFiles) -> Pipeline[Sample]:
    """One epoch."""
    builder: Any = PipelineBuilder()
    builder.add_source(random.sample(range(FILES), FILES))
    builder.pipe(files.__getitem__).aggregate(FILES_BATCH).pipe(default_collate).add_sink(2)
    pipeline: Pipeline[Sample] = builder.build(num_threads=1)
    return pipeline


def in_a_process(files: NpzFiles) -> DataLoader[Sample]:
    return DataLoader(files, FILES_BATCH, shuffle=True, num_workers=1, persistent_workers=True)


def trained(model: nn.Module, loss_of: Callable[[Any], torch.Tensor]) -> Callable[[Any], None]:
    """A training step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(batch: Any) -> None:
        loss = loss_of(batch)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no annotation
        optimizer.step()

    return step


def step_of_many_calls() -> Callable[[Sample], None]:
    """Many short operations, for each of which Python's lock is taken, as to launch kernels."""
    torch.manual_seed(0)
    layers = [part for _ in range(LAYERS) for part in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    model = nn.Sequential(nn.Linear(ARRAYS * NUMBERS, WIDTH), *layers)
    return trained(model, lambda batch: model(torch.cat([*batch.values()], 1)).square().mean())


def step_of_convolutions(stride: int) -> Callable[[Any], None]:
    """Convolutions: with LONG a batch takes several times as long as with SHORT."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 32, kernel_size=7, stride=stride, padding=3),
        nn.ReLU(),
        nn.Conv2d(32, 64, kernel_size=3, padding=1, stride=2),
        nn.ReLU(),
        nn.Conv2d(64, 64, kernel_size=3, padding=1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 4),
    )
    criterion = nn.CrossEntropyLoss()
    return trained(model, lambda batch: criterion(model(batch[0] / 255), batch[1]))


def of_npz(batches: int, *, compressed: bool) -> BackendComparison:
    with tempfile.TemporaryDirectory() as folder:
        files = NpzFiles(Path(folder), compressed=compressed)
        backends = {THREAD: lambda: in_a_thread(files), PROCESS: in_a_process(files)}
        return compare_backends(backends, step_of_many_calls(), batches=batches, unit="files")


def of_photographs(batches: int, stride: int) -> BackendComparison:
    with tempfile.TemporaryDirectory() as name:
        photographs = Path(name) / "photographs"
        paths = make_photographs(photographs, PHOTOGRAPHS)
        classes = sorted({path.parent for path in paths})
        samples = [(str(path), classes.index(path.parent)) for path in paths]
        recipes = {"DataLoader, Pillow": pillow, "SPDL, Pillow": spdl, "DALI, CPU": dali}
        workers = len(os.sched_getaffinity(0))
        backends = {
            name: recipe.make_loader(samples, PHOTOGRAPHS_BATCH, workers)
            for name, recipe in recipes.items()
        }
        step = step_of_convolutions(stride)
        return compare_backends(backends, step, batches=batches, unit="images")


def findings(backend: BackendResult) -> list[str]:
    """The rules that apply to its run, the costliest first."""
    if backend.run is None:
        return []
    (report,) = Report.of([backend.run]).runs
    assert report.diagnosis is not None
    return [finding.rule.value for finding in report.diagnosis.findings]


def parts(backend: BackendResult) -> str:
    """The shares of an iteration that are lost in longer waits and in slower steps."""
    gain = backend.headroom
    if gain is None or not gain.real_ns or gain.waiting_ns is None or gain.contention_ns is None:
        return "not measured | not measured"
    lost = (gain.waiting_ns.value, gain.contention_ns.value)
    return " | ".join(whole_share(part_ns / gain.real_ns) for part_ns in lost)


def row(backend: BackendResult) -> str:
    rates = (backend.loader_only, backend.real, backend.ideal)
    figures = " | ".join(estimated(rate, number) for rate in rates)
    return f"| {backend.name} | {figures} | {parts(backend)} | {', '.join(findings(backend))} |"


def tell(title: str, result: BackendComparison) -> None:
    print(f"\n{title}\n")
    print("| backend | loader alone | real | ideal | waiting | contention | findings |")
    print("|---|---|---|---|---|---|---|")
    for backend in result.backends:
        print(row(backend))
    print()
    for difference in result.differences:
        print(difference_sentence(difference), flush=True)


def npz_as_published(result: BackendComparison) -> bool:
    """The thread is at least as fast by itself, and training with it slower, by Python's lock."""
    each = {backend.name: backend for backend in result.backends}
    thread, process = each[THREAD], each[PROCESS]
    if thread.loader_only is None or process.loader_only is None:
        return False
    (difference,) = result.differences
    as_fast = (thread.loader_only.high or 0.0) >= process.loader_only.value
    slower = difference.shown and (difference.one == THREAD) == (difference.ratio.value < 1)
    return as_fast and slower and Rule.PYTHON_LOCK.value in findings(thread)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--npz-batches", type=int, default=120)
    parser.add_argument("--photograph-batches", type=int, default=36)
    options = parser.parse_args()
    keep_memory()
    with one_thread():
        npz = []
        for compressed in (False, True):
            npz.append(of_npz(options.npz_batches, compressed=compressed))
            tell("Compressed NPZ files" if compressed else "NPZ files", npz[-1])
        tell("Photographs, short steps", of_photographs(options.photograph_batches, SHORT))
        photographs = of_photographs(options.photograph_batches, LONG)
        tell("Photographs, long steps", photographs)
    alike = all(abs(math.log(each.ratio.value)) < CONSIDERABLE for each in photographs.differences)
    return 0 if all(map(npz_as_published, npz)) and alike else 1


if __name__ == "__main__":
    sys.exit(main())
