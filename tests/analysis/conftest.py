"""Runs whose every time is given."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.runlog.columns import UNKNOWN
from loadeval.runlog.model import Arm, Block, EpochEnd, Header, LoaderInfo, Mode, Run, Steps

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def blocks_of(
    arm: Arm,
    waits: Sequence[int],
    steps: Sequence[int],
    samples: Sequence[int],
    epochs: Sequence[int],
) -> list[Block]:
    """One block for each epoch, which have `epochs` batches each."""
    bounds = np.cumsum([0, *epochs]).tolist()
    table = np.array([waits, steps, samples], dtype=np.int64)
    blocks = []
    for epoch, (start, stop) in enumerate(pairwise(bounds)):
        wait_ns, step_ns, counts = table[:, start:stop]
        unknown = np.full(stop - start, UNKNOWN)
        nbytes = np.where(counts == UNKNOWN, UNKNOWN, counts * 3)
        blocks.append(Block(epoch, arm, unknown, wait_ns, step_ns, counts, nbytes))
    return blocks


@pytest.fixture
def make_run() -> Callable[..., Run]:
    """A run of given waits and steps, in nanoseconds; -1 is an open step, or unknown samples."""

    def make(
        waits: Sequence[int],
        steps: Sequence[int] | int = 90,
        *,
        mode: Mode = "log",
        warmup: int = 0,
        samples: Sequence[int] | int = 4,
        epochs: Sequence[int] | None = None,
        **header: Any,
    ) -> Run:
        count = len(waits)
        steps = [steps] * count if isinstance(steps, int) else steps
        samples = [samples] * count if isinstance(samples, int) else samples
        arm: Arm = "ideal" if mode == "replay" else "real"
        blocks = blocks_of(arm, waits, steps, samples, [count] if epochs is None else epochs)
        found = Header("id", f"the {arm} run", "log", "", "images", warmup, LoaderInfo("loader"))
        return Run(
            header=replace(found, mode=mode, **header),
            steps=Steps.from_blocks(blocks, []),
            ends=tuple(EpochEnd(block.epoch, "exhausted") for block in blocks),
            closed=True,
        )

    return make
