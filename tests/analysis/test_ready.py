"""A batch that was ready when the loader was wrapped."""

from __future__ import annotations

import numpy as np

from loadeval.analysis.summary import epoch_starts
from loadeval.runlog.model import Block, Header, LoaderInfo, Run, Steps


def test_it_has_no_start_up_to_tell() -> None:
    """The first wait of the first epoch is left out; without such a batch it is told."""
    two = np.array([5, 6])
    blocks = [Block(epoch, "real", two, two * (epoch + 1), two, two, two) for epoch in range(2)]
    steps = Steps.from_blocks(blocks, [])
    for ready, expected in ((0, [5, 10]), (1, [10])):
        loader = LoaderInfo("a.Loader", ready_batches=ready)
        header = Header("id", "log", "log", "2026-11-21", "samples", 0, loader)
        assert epoch_starts(Run(header, steps)).tolist() == expected
