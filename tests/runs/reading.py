"""Runs whose workers read from simulated storage: latency, and a server that all share.

Each computes for 2 to 22 ms, and then waits for 40 ms if nothing else is read meanwhile.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from loadeval.runlog.columns import UNKNOWN
from tests.runs.given import MS
from tests.runs.looked_into import logged

if TYPE_CHECKING:
    from loadeval.runlog.model import Run

LONE_NS = 40.0 * MS
COUNT = 300
TICK_NS = 0.1 * MS


@cache
def reading(server_share: float, workers: int, *, in_turn: bool = False, pieces: int = 1) -> Run:
    """A run whose server has that share of a lone wait; workers never wait for training.

    It serves all equally, or `in_turn` one after the other. A batch is computed and read in so many
    pieces.
    """
    count, rng = COUNT, np.random.default_rng(1)
    lanes = max(workers, 1)
    cpu_ns = rng.uniform(2, 22, count) * MS
    start_ns, end_ns = np.zeros(count), np.zeros(count)
    latency_ns, server_ns = (1 - server_share) * LONE_NS, server_share * LONE_NS
    batch, piece = np.arange(lanes), np.zeros(lanes, dtype=int)  # that each worker is at
    elsewhere_ns = (cpu_ns[batch] + latency_ns) / pieces
    left_ns = np.full(lanes, server_ns / pieces)
    now_ns = 0.0
    while batch.min() < count:
        now_ns += TICK_NS
        is_reading = elsewhere_ns <= 0
        if in_turn:  # the one that began first
            is_reading &= elsewhere_ns == elsewhere_ns.min()
        left_ns[is_reading] -= TICK_NS / max(is_reading.sum(), 1)
        elsewhere_ns -= TICK_NS
        for lane in np.flatnonzero((elsewhere_ns <= 0) & (left_ns <= 0)):
            piece[lane] = (piece[lane] + 1) % pieces
            if piece[lane] == 0:
                end_ns[batch[lane]] = now_ns
                batch[lane] += lanes
                if batch[lane] >= count:
                    elsewhere_ns[lane] = np.inf
                    continue
                start_ns[batch[lane]] = now_ns
            elsewhere_ns[lane] = (cpu_ns[batch[lane]] + latency_ns) / pieces
            left_ns[lane] = server_ns / pieces
    fetch_ns = end_ns - start_ns
    known: dict[str, Any] = {"fetch_start_ns": start_ns} if workers else {}
    return logged(
        workers=workers,
        step=0.5,
        fetch=fetch_ns / MS,
        count=count,
        cpu_ns=cpu_ns,
        worker=np.arange(count) % workers if workers else np.full(count, UNKNOWN),
        **known,
    )
