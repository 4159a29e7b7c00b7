"""Whether this process is one of several that train together."""

from __future__ import annotations

import os
import sys


def is_distributed() -> bool:
    """Whether a launcher said so (WORLD_SIZE), or torch.distributed runs with other ranks."""
    told = os.environ.get("WORLD_SIZE", "1")
    if told.isdigit() and int(told) > 1:
        return True
    torch_distributed = sys.modules.get("torch.distributed")
    return (
        torch_distributed is not None
        and torch_distributed.is_available()
        and torch_distributed.is_initialized()
        and torch_distributed.get_world_size() > 1
    )
