"""A store far away: what is predicted of more workers, requests at once and shards, and measured.

After Svogor et al., "Profiling and Improving the PyTorch Dataloader for high-latency Storage: A
Technical Report" (arXiv 2211.04908), who fetch the samples of a batch at once, and batches in more
workers, from S3: here from a server on this machine that answers each request after a while. One
run with two workers that ask for one sample after the other is recorded, and the changes are
predicted from it. Then each is measured by plain loops without loadeval, in turns. The step sleeps,
as the process of a training does whose device computes.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from threading import local
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.faults.shared import CONTENT, HTTPServer, NearStore, Server
from loadeval import LoaderEvaluator
from loadeval.analysis.predict.whatif import LoaderModel
from loadeval.analysis.rules.fixes import blocked_shorter
from loadeval.report.formatting import speedup

WORKERS, SIZE = 2, 16
STEP_S = 0.020
AT_ONCE = 8
"""Requests at once, and samples in a shard."""


class Far(NearStore):
    """Answers after `far_s`: 20 ms unless told, as an object store in the same region does."""

    far_s = 0.020
    content = CONTENT * AT_ONCE

    def send_content(self) -> None:
        time.sleep(self.far_s)
        super().send_content()


class Objects(Dataset[Any]):
    """Samples of a store, `at_once` of a batch, or shards of `in_shard` samples."""

    def __init__(self, port: int, batches: int, at_once: int = 1, in_shard: int = 1) -> None:
        self.port, self.batches = port, batches
        self.at_once, self.in_shard = at_once, in_shard
        self.threads: ThreadPoolExecutor | None = None
        self.connections: Any = None

    def __len__(self) -> int:
        return self.batches * SIZE

    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        if self.threads is None:
            self.threads, self.connections = ThreadPoolExecutor(self.at_once), local()
        firsts = indices[:: self.in_shard]
        # One after the other in this thread, as most datasets do.
        many = self.threads.map if self.at_once > 1 else map
        shards = list(many(self.read, firsts))
        return [sample for shard in shards for sample in torch.split(shard, len(CONTENT))]

    def read(self, index: int) -> torch.Tensor:
        """A shard, or a sample, over a connection of this thread's."""
        if not hasattr(self.connections, "own"):
            self.connections.own = HTTPConnection("127.0.0.1", self.port)
        self.connections.own.request("GET", f"/{index}")
        content = self.connections.own.getresponse().read()
        return torch.frombuffer(
            bytearray(content[: len(CONTENT) * self.in_shard]), dtype=torch.uint8
        )


class Setting(NamedTuple):
    """What is changed: the number of workers, or how the dataset asks."""

    name: str
    workers: int = WORKERS
    at_once: int = 1
    in_shard: int = 1

    def loader(self, port: int, batches: int) -> DataLoader[Any]:
        """A DataLoader with it."""
        dataset = Objects(port, batches, self.at_once, self.in_shard)
        return DataLoader(dataset, SIZE, num_workers=self.workers)


PRESENT = Setting("2 workers, one request at a time")
SETTINGS = (
    Setting("4 workers", workers=4),
    Setting("8 workers", workers=8),
    Setting(f"{AT_ONCE} requests at once in __getitems__", at_once=AT_ONCE),
    Setting(f"shards of {AT_ONCE} samples", in_shard=AT_ONCE),
)


def predicted(port: int, batches: int) -> dict[str, Any]:
    """The speed-up of each setting, as a Range."""
    with LoaderEvaluator(PRESENT.loader(port, batches), mode="alternate", seed=0) as loader:
        for _ in loader:
            time.sleep(STEP_S)
    model = LoaderModel.of([loader.recorded()])
    return {
        setting.name: model.predict(num_workers=setting.workers).speedup
        if setting.workers != WORKERS
        else model.with_change(blocked_shorter(setting.at_once * setting.in_shard)).speedup
        for setting in SETTINGS
    }


def batch_s(setting: Setting, port: int, batches: int) -> float:
    """Seconds of a batch in a plain loop, without those that workers have loaded at the start."""
    skipped, began = 2 * setting.workers + 1, 0.0
    for number, _ in enumerate(setting.loader(port, batches + skipped)):
        if number == skipped:
            began = time.perf_counter()
        time.sleep(STEP_S)
    return (time.perf_counter() - began) / batches


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--latency-ms", type=float, default=20.0)
    options = parser.parse_args()
    Far.far_s = options.latency_ms / 1e3
    torch.set_num_threads(1)
    server = Server(HTTPServer(("127.0.0.1", 0), Far))
    try:
        ranges = predicted(server.port, 3 * options.batches)
        taken: dict[Setting, list[float]] = {setting: [] for setting in (PRESENT, *SETTINGS)}
        for _ in range(options.turns):
            for setting, times in taken.items():
                times.append(batch_s(setting, server.port, options.batches))
    finally:
        server.close()
    sys.stdout.write("| change | predicted | measured |\n|---|---|---|\n")
    for setting in SETTINGS:
        gain, pairs = ranges[setting.name], zip(taken[PRESENT], taken[setting], strict=True)
        ratios = [present / changed for present, changed in pairs]
        sys.stdout.write(
            f"| {setting.name} | {speedup(gain.value)} [{speedup(gain.low)}, {speedup(gain.high)}] "
            f"| {speedup(statistics.median(ratios))} ({speedup(min(ratios))} to "
            f"{speedup(max(ratios))}) |\n"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
