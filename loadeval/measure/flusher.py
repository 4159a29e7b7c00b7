"""A thread that brings a log up to date while its process is busy with something else."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

INTERVAL_S = 0.5
"""Half of the second that a killed process may lose."""


class Flusher:
    """A daemon thread that calls `flush` every INTERVAL_S until it is stopped."""

    def __init__(self, flush: Callable[[], None]) -> None:
        self._flush = flush
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="loadeval-log", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop, once a flush that is under way has finished."""
        self._stopping.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._stopping.wait(INTERVAL_S):
            self._flush()
