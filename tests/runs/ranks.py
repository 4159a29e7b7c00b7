"""Synchronous training on many ranks, simulated: all waits are given, their cost is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from loadeval.data.columns import UNKNOWN
from loadeval.data.lines import EpochEnd, Header, LoaderInfo, StageTimes
from loadeval.data.run import ARMS, Run
from tests.runs.tables import replace, steps_table, tables

Times = npt.NDArray[np.int64]

MS = 1_000_000


@dataclass(frozen=True, eq=False)
class Training:
    """Of each rank (a row) and batch (a column): when it was asked for, its wait and its step.

    Times count from the beginning of the training. The steps of all ranks end with an all-reduce.
    """

    request_ns: Times
    wait_ns: Times
    step_ns: Times

    @property
    def took_ns(self) -> int:
        """Until the last rank is through."""
        return int((self.request_ns + self.wait_ns + self.step_ns)[:, -1].max())


def train(
    wait_ns: npt.ArrayLike, compute_ns: npt.ArrayLike = 90 * MS, after_ns: npt.ArrayLike = 0
) -> Training:
    """Train on batches with these waits; `after_ns` is what a rank does after the all-reduce."""
    wait_ns = np.asarray(wait_ns, dtype=np.int64)
    compute_ns = np.broadcast_to(np.asarray(compute_ns, dtype=np.int64), wait_ns.shape)
    after_ns = np.broadcast_to(np.asarray(after_ns, dtype=np.int64), wait_ns.shape)
    request_ns = np.zeros_like(wait_ns)
    for batch in range(wait_ns.shape[1]):
        arrives_ns = (request_ns + wait_ns + compute_ns)[:, batch]
        if batch + 1 < wait_ns.shape[1]:
            request_ns[:, batch + 1] = arrives_ns.max() + after_ns[:, batch]
    ends_ns = (request_ns + wait_ns + compute_ns)[:, -1:].max() + after_ns[:, -1:]
    ends_ns = np.concatenate([request_ns[:, 1:], ends_ns], axis=1)
    return Training(request_ns, wait_ns, ends_ns - request_ns - wait_ns)


def run_of_rank(
    rank: int,
    training: Training,
    *,
    world_size: int,
    host: str = "node0",
    samples: int = 4,
    epochs: Sequence[int] | None = None,
    arm: Sequence[int] | None = None,
    pair: Sequence[int] | None = None,
    created: str = "2026-01-01T00:00:00+00:00",
    stages: Sequence[StageTimes] = (),
    warmup: int = 0,
    **header: Any,
) -> Run:
    """The log of one rank; `epochs` are the batches of each."""
    count = training.wait_ns.shape[1]
    epochs = [count] if epochs is None else epochs
    environment = {"host": host, "rank": rank, "world_size": world_size}
    defaults = Header(
        run_id=f"id{rank}", name=f"rank{rank}", mode="log", created=created, unit="images",
        warmup=warmup, loader=LoaderInfo("loader"),
        environment=environment,
    )  # fmt: skip
    if arm is not None:
        defaults = replace(defaults, mode="alternate")
    return Run(
        header=replace(defaults, **header),
        steps=steps_table(
            epoch=np.repeat(np.arange(len(epochs)), epochs),
            arm=np.zeros(count, np.int64) if arm is None else np.array(arm, np.int64),
            pair=np.full(count, UNKNOWN) if pair is None else np.array(pair, np.int64),
            request_ns=training.request_ns[rank],
            wait_ns=training.wait_ns[rank],
            step_ns=training.step_ns[rank],
            samples=np.full(count, samples),
        ),
        ends=tuple(EpochEnd(epoch, "exhausted") for epoch in range(len(epochs))),
        closed=True,
        **tables({"stages": stages}),
    )


def runs_of(training: Training, ranks_on_node: int | None = None, **more: Any) -> list[Run]:
    """The log of each rank, so many of them on each node."""
    count = len(training.wait_ns)
    return [
        run_of_rank(
            rank,
            training,
            world_size=count,
            host=f"node{rank // (ranks_on_node or count)}",
            **more,
        )
        for rank in range(count)
    ]


def train_in_pairs(
    wait_ns: Times, compute_ns: npt.ArrayLike = 90 * MS
) -> tuple[Training, list[int], list[int]]:
    """Train in pairs of a real and an ideal block, in which no rank waits; and each batch's place.

    The arm and the pair of each batch follow; the first 2 of each block of 8 are not counted.
    """
    count = wait_ns.shape[1]
    block = np.arange(count) // 8
    arm = (block + block // 2) % len(ARMS)
    pair = np.where(np.arange(count) % 8 < 2, UNKNOWN, block // len(ARMS))
    waits = np.where(arm == ARMS.index("ideal"), 0, wait_ns)
    return train(waits, compute_ns), arm.tolist(), pair.tolist()
