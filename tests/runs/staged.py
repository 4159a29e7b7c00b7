"""Runs whose loader was looked into, as a DataLoader with workers would do it; no clock runs.

Worker w fetches every n-th batch: 32 samples in 20 ms, 60% of it GaussianBlur. As many batches as
`workers * PREFETCH` are handed out at a time, and a sample in a thousand takes 25 ms.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from loadeval.data.columns import UNKNOWN
from loadeval.data.lines import (
    Block,
    CodeSamples,
    EpochEnd,
    Event,
    Header,
    LoaderInfo,
    Prefetch,
    StageTimes,
    Window,
    WorkerStart,
)
from tests.runs.given import run_of
from tests.runs.tables import replace

if TYPE_CHECKING:
    from loadeval.data.lines import Arm, EventKind, Mode
    from loadeval.data.run import Run

MS = 1_000_000
US = 1_000
PREFETCH = 4
SAMPLES = 32
BATCH_BYTES = 4 * SAMPLES
STARTING_NS, STEP_NS = 150 * MS, 8 * MS
EVERY = 997
"""One sample in so many is slow."""
TRANSFORMS = {"GaussianBlur": 0.6, "load_image": 0.24, "RandomCrop": 0.08, "ToTensor": 0.04}
CODE = {
    "data.py:31 __getitem__ > GaussianBlur": 520,
    "data.py:28 __getitem__ > Image.convert": 180,
    "data.py:24 load_image": 40,
    "collate.py:9 collate": 90,
}
BLOCKED = {"data.py:24 load_image > folio_wait_bit_common": 130, "data.py:35 lock": 20}
HEADER = Header(
    run_id="id",
    name="staged",
    mode="alternate",
    created="2026-11-21T10:00:00+00:00",
    unit="images",
    warmup=5,
    loader=LoaderInfo(
        "torch.utils.data.dataloader.DataLoader",
        "loadeval_adapters.pytorch.PyTorchAdapter",
        workers=2,
        prefetch_depth=2 * PREFETCH,
        batch_size=SAMPLES,
        start_method="fork",
    ),
    settings={"stages": None},
    environment={"cpus_usable": 4},
)


class Workers:
    """The loader of one epoch: when it delivers what it is asked for at a time."""

    def __init__(self, epoch: int, begin_ns: int, workers: int, slow: float = 1.0) -> None:
        self.epoch, self.workers, self.slow = epoch, workers, slow
        self.random = np.random.default_rng(epoch)
        self.free_ns = [begin_ns] * max(workers, 1)
        self.queued_ns = [begin_ns] * workers
        self.asked_ns = [begin_ns] * (PREFETCH * workers)
        self.received_ns = begin_ns
        self.rows: list[dict[str, float]] = []

    def __call__(self, requested_ns: int) -> int:
        """The moment at which it delivers the next batch."""
        row = self.fetched(requested_ns) if self.workers else self.loaded(requested_ns)
        self.rows.append(row)
        return int(row["delivered_ns"])

    def fetched(self, requested_ns: int) -> dict[str, float]:
        """The next batch of the worker whose turn it is."""
        number = len(self.rows)
        worker = number % self.workers
        start_ns = max(self.free_ns[worker], self.asked_ns[number]) + 30 * US
        row = self.batch(number, worker, start_ns)
        collated_ns = self.free_ns[worker] = start_ns + int(row["fetch_ns"] + row["collate_ns"])
        pickle_ns = max(collated_ns + 15 * US, self.queued_ns[worker])
        ready_ns = self.queued_ns[worker] = pickle_ns + 300 * US
        received_ns = max(requested_ns, ready_ns) + 800 * US
        delivered_ns = received_ns + 40 * US
        self.asked_ns.append(delivered_ns)
        return row | {
            "requested_ns": requested_ns,
            "delivered_ns": delivered_ns,
            "index_ns": 40 * US,
            "pickle_start_ns": pickle_ns,
            "pickle_ns": 300 * US,
            "pickled_bytes": 420,
            "received_ns": received_ns,
            "receive_ns": 800 * US,
        }

    def loaded(self, requested_ns: int) -> dict[str, float]:
        """Without workers, the training process does it."""
        start_ns = requested_ns + 60 * US
        row = self.batch(len(self.rows), UNKNOWN, start_ns)
        collated_ns = start_ns + int(row["fetch_ns"] + row["collate_ns"])
        return row | {
            "requested_ns": requested_ns,
            "delivered_ns": collated_ns + 5 * US,
            "index_ns": 40 * US,
        }

    def batch(self, number: int, worker: int, start_ns: int) -> dict[str, float]:
        """Fetching and collating it, which begins at `start_ns`."""
        fetch_ns = int(20 * MS * self.slow * self.random.normal(1, 0.06))
        index = self.random.integers(0, 50_000, SAMPLES)
        slow = index[index % EVERY == 3]
        slowest_ns = int(fetch_ns / SAMPLES * self.random.uniform(1.3, 2.2))
        if len(slow):
            slowest_ns = int(25 * MS + 1000 * (slow[0] % 5000))
            fetch_ns += slowest_ns
        busy_ns = fetch_ns + 3 * MS
        calls = {f"{name} calls": SAMPLES for name in TRANSFORMS}
        times = {name: part * fetch_ns for name, part in TRANSFORMS.items()}
        return {
            "batch": number,
            "worker": worker,
            "samples": SAMPLES,
            "fetch_start_ns": start_ns,
            "fetch_ns": fetch_ns,
            "collate_ns": 3 * MS,
            "cpu_ns": int(0.70 * busy_ns),
            "other_cpu_ns": int(0.02 * busy_ns),
            "run_queue_ns": int(0.12 * busy_ns),
            "read_bytes": 3_400_000,
            "disk_bytes": 340_000,
            "major_faults": 0,
            "slowest_ns": slowest_ns,
            "slowest_index": int(slow[0] if len(slow) else index[0]),
            **times,
            **calls,
        }

    def line(self) -> StageTimes:
        """All that it did."""
        columns: dict[str, Any] = {}
        for name in StageTimes.COLUMNS:
            values = [row.get(name) for row in self.rows]
            columns[name] = None if set(values) == {None} else values
        return StageTimes(
            self.epoch,
            **columns,
            transform_ns={name: [row[name] for row in self.rows] for name in TRANSFORMS},
            transform_calls={
                name: [row[f"{name} calls"] for row in self.rows] for name in TRANSFORMS
            },
        )


@cache
def staged(
    mode: Mode = "alternate",
    *,
    epochs: int = 2,
    batches: int = 180,
    workers: int = 2,
    slow: float = 1.0,
    name: str = "staged",
) -> Run:
    """A run of `epochs`; one that alternates has pairs of 24 real batches and 12 ideal ones.

    The same arguments give the same run, with what was computed of it: leave it as it is.
    """
    made = _Made(mode == "alternate", workers, slow)
    for epoch in range(epochs):
        made.epoch(epoch, batches)
    loader = replace(HEADER.loader, workers=workers)
    if not workers:
        loader = replace(loader, prefetch_depth=0, start_method=None)
    header = replace(HEADER, name=name, mode=mode, loader=loader, settings={"stages": True})
    return run_of(
        made.blocks,
        header=header,
        ends=tuple(made.ends),
        prefetches=tuple(made.prefetches),
        windows=tuple(made.windows),
        closed=True,
        stages=tuple(made.stages),
        worker_starts=tuple(made.starts),
        code=(CodeSamples(0, CODE, BLOCKED), CodeSamples(1, CODE, {})),
    )


class _Made:
    def __init__(self, alternates: bool, workers: int, slow: float) -> None:
        self.alternates, self.workers, self.slow = alternates, workers, slow
        self.now_ns, self.pair = 5 * MS, 0
        self.blocks: list[Block] = []
        self.ends: list[EpochEnd] = []
        self.prefetches: list[Prefetch] = []
        self.windows: list[Window] = []
        self.stages: list[StageTimes] = []
        self.starts: list[WorkerStart] = []

    def epoch(self, number: int, batches: int) -> None:
        """Serve `batches` of it, blocks in turns after the first ones."""
        begin_ns = self.now_ns
        load = Workers(number, begin_ns + STARTING_NS, self.workers, self.slow)
        for worker in range(self.workers):
            ready_ns = begin_ns + STARTING_NS - 20 * MS
            self.starts.append(WorkerStart(number, worker, begin_ns, 60 * MS, ready_ns, 2 * MS))
        self.serve(load, number, "real", min(9, batches))
        while self.alternates and batches - len(load.rows) >= 60:
            self.serve(load, number, "real", 9)
            self.serve(load, number, "real", 24, self.pair)
            self.prefetch(load, number)
            self.serve(None, number, "ideal", 3)
            self.serve(None, number, "ideal", 17, self.pair)
            self.pair += 1
        self.serve(load, number, "real", batches - len(load.rows))
        self.stages.append(load.line())
        self.ends.append(EpochEnd(number, "exhausted", self.now_ns, 2 * MS))
        self.now_ns += 5 * MS

    def serve(
        self, load: Workers | None, epoch: int, arm: Arm, count: int, pair: int | None = None
    ) -> None:
        """A block of batches from the loader, or from memory."""
        begin_ns, rows = self.now_ns, []
        for _ in range(count):
            asked_ns = self.now_ns
            delivered_ns = asked_ns if load is None else load(asked_ns)
            rows.append((asked_ns, delivered_ns - asked_ns))
            self.now_ns = delivered_ns + STEP_NS - (load is None) * MS
        asked, waited = zip(*rows, strict=True) if rows else ((), ())
        each = STEP_NS - (load is None) * MS, SAMPLES, BATCH_BYTES
        columns = [[value] * len(rows) for value in each]
        self.blocks.append(Block(epoch, arm, [*asked], [*waited], *columns, pair))
        if pair is not None:
            self.windows.append(Window(pair, epoch, arm, self.now_ns - begin_ns, None))

    def prefetch(self, load: Workers, epoch: int) -> None:
        """Take 20 batches back to back, of which those beyond the prefetch depth are timed."""
        began_ns, ends = self.now_ns, [self.now_ns]
        for _ in range(20):
            ends.append(load(ends[-1]))
        timed = 20 - PREFETCH * self.workers
        elapsed_ns = ends[-1] - ends[-1 - timed]
        waits = np.diff(ends).tolist()
        self.prefetches.append(
            Prefetch(
                self.pair, epoch, 20, timed, elapsed_ns, timed * SAMPLES, waits, None, began_ns
            )
        )
        self.now_ns = ends[-1] + 100 * MS


def without_stages(run: Run, *, kind: EventKind | None = None, message: str = "") -> Run:
    """The same, not looked into, with an event that says why."""
    events = () if kind is None else (Event(7 * MS, message, kind),)
    changed: Run = replace(run, stages=(), worker_starts=(), code=(), events=events)
    return changed
