"""Processes that a loader has started."""

from __future__ import annotations

from collections.abc import Collection
from multiprocessing import active_children
from multiprocessing.process import BaseProcess

LONGEST_S = 60.0


def still_running(before: Collection[BaseProcess]) -> set[BaseProcess]:
    """Those that are there beside those of `before`, and do not end.

    Not every loader waits for the workers that it ends, and on a busy machine that takes time.
    """
    for child in set(active_children()) - set(before):
        child.join(LONGEST_S)
    return set(active_children()) - set(before)
