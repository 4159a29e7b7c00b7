"""Synchronous training on many ranks, simulated: all waits are given, their cost is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from loadeval.data.columns import UNKNOWN
from loadeval.data.lines import EpochEnd, LoaderInfo
from loadeval.data.run import ARMS, Run
from tests.builder import make_header, steps
from tests.runs.tables import replace

MS = 1_000_000
Times = npt.NDArray[np.int64]


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


def train(wait_ns: npt.ArrayLike, compute_ns: int = 90 * MS) -> Training:
    """Train on batches with these waits."""
    wait_ns = np.asarray(wait_ns, dtype=np.int64)
    arrive_ns = np.cumsum((wait_ns + compute_ns).max(axis=0))
    request_ns = np.broadcast_to(arrive_ns - np.diff(arrive_ns, prepend=0), wait_ns.shape)
    return Training(request_ns, wait_ns, arrive_ns - request_ns - wait_ns)


def runs_of(
    training: Training,
    ranks_on_node: int | None = None,
    *,
    epochs: Sequence[int] = (),
    arm: Sequence[int] | None = None,
    pair: Sequence[int] | None = None,
    loader: LoaderInfo | None = None,
    warmup: int = 0,
) -> list[Run]:
    """The log of each rank, so many of them on each node; `epochs` are the batches of each."""
    ranks, count = training.wait_ns.shape
    epoch = np.repeat(np.arange(max(len(epochs), 1)), epochs or [count])
    table = steps("real", 0, 0, count, nbytes=UNKNOWN).replace(
        epoch=epoch, batch=np.arange(count) - np.searchsorted(epoch, epoch)
    )
    if arm is not None:
        table = table.replace(arm=np.array(arm), pair=np.array(pair))
    mode = "log" if arm is None else "alternate"
    header = make_header(mode=mode, warmup=warmup, loader=loader or LoaderInfo("loader"))
    runs = []
    for rank in range(ranks):
        host = f"node{rank // (ranks_on_node or ranks)}"
        environment = {"host": host, "rank": rank, "world_size": ranks}
        own = {"run_id": f"id{rank}", "name": f"rank{rank}", "environment": environment}
        times = {name: column[rank] for name, column in vars(training).items()}
        ends = tuple(EpochEnd(number, "exhausted") for number in range(epoch[-1] + 1))
        runs.append(Run(replace(header, **own), table.replace(**times), ends=ends, closed=True))
    return runs


def train_in_pairs(wait_ns: Times) -> tuple[Training, list[int], list[int]]:
    """Train in pairs of a real and an ideal block, in which no rank waits; and each batch's place.

    The arm and the pair of each batch follow; the first 2 of each block of 8 are not counted.
    """
    count = wait_ns.shape[1]
    block = np.arange(count) // 8
    arm = (block + block // 2) % len(ARMS)
    pair = np.where(np.arange(count) % 8 < 2, UNKNOWN, block // len(ARMS))
    waits = np.where(arm == ARMS.index("ideal"), 0, wait_ns)
    return train(waits), arm.tolist(), pair.tolist()
