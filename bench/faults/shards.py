"""Streams that are divided among workers: into too few parts, or into parts of unequal size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import IterableDataset, get_worker_info

from bench.faults.programs import Program
from bench.faults.shared import OBJECTS, Ranged, Ranges, Server, TCPServer, from_store

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.faults.programs import Training


class Shards(IterableDataset[Any]):
    """Reads shards from a server, each by one worker; `lengths` are their batches."""

    def __init__(self, port: int, lengths: Sequence[int]) -> None:
        self.ranges = Ranged(port)
        self.lengths = lengths
        self.num_shards = len(lengths)

    def __iter__(self) -> Iterator[torch.Tensor]:
        worker = get_worker_info()
        first, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        for length in self.lengths[first::workers]:
            with self.ranges.connected() as connection:
                for number in range(OBJECTS * length):
                    received = self.ranges.read_range(connection, number)
                    yield torch.frombuffer(received, dtype=torch.uint8)


class Nearer(Ranges):
    latency_s = 0.7 * Ranges.latency_s


def shards(*lengths: int, workers: int) -> Training:
    server = Server(TCPServer(("127.0.0.1", 0), Nearer))
    return from_store(lambda port: Shards(port, lengths), server, workers)


PROGRAMS = (
    Program(
        "one shard for four workers",
        "few shards",
        "the dataset has 1 shard",
        faulty=lambda _: shards(160, workers=4),
        healthy=lambda _: shards(*[40] * 4, workers=4),
    ),
    Program(
        "one shard for two workers",
        "few shards",
        "the dataset has 1 shard",
        faulty=lambda _: shards(160, workers=2),
        healthy=lambda _: shards(*[40] * 4, workers=4),
        fixed=lambda _: shards(80, 80, workers=2),
    ),
    Program(
        "one large shard among small ones",
        "uneven shards",
        "equal",
        faulty=lambda _: shards(140, 40, 40, 40, workers=4),
        healthy=lambda _: shards(*[65] * 4, workers=4),
    ),
)
