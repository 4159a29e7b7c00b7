"""Which runs are the ranks of one distributed training."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.runlog.model import Run

PLACE = ("rank", "world_size")


def are_ranks(runs: Sequence[Run | None]) -> bool:
    """Whether each is of another rank of a training that has the same number of them."""
    places = [tuple(run.header.environment.get(name) for name in PLACE) for run in runs if run]
    ranks, sizes = {rank for rank, _ in places}, {size for _, size in places}
    told = None not in ranks and None not in sizes
    return told and len(runs) == len(ranks) > 1 and len(sizes) == 1
