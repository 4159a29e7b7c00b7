"""Which of several processes that train together this one is, if it is one."""

from __future__ import annotations

import os
import sys


def is_distributed() -> bool:
    """Whether a launcher said so, or torch.distributed runs with other ranks."""
    return bool(place_among_ranks())


def place_among_ranks() -> dict[str, int]:
    """`rank` and `world_size` of this process; nothing where it trains alone.

    As torch.distributed knows them, or a launcher that sets RANK and WORLD_SIZE; the rank is left
    out where only the size was told.
    """
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        found = {"rank": distributed.get_rank(), "world_size": distributed.get_world_size()}
    else:
        told = {"rank": os.environ.get("RANK"), "world_size": os.environ.get("WORLD_SIZE")}
        found = {name: int(text) for name, text in told.items() if text and text.isdigit()}
    return found if found.get("world_size", 1) > 1 else {}
