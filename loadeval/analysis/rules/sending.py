"""What starting workers takes that are not forked: each is sent what it needs, the dataset too."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loadeval.data.lines import WorkerStart


MEANS = ("worker_ns", "pickling_ns", "sent_bytes", "importing_ns", "unpickling_ns")


class Sending(NamedTuple):
    """How workers started that were sent what they need.

    `means` over them, by the names in MEANS: of a worker's own start, of pickling for it, of what
    it was sent, of starting Python and importing, and of unpickling. `in_turn` tells that none was
    begun before the worker ahead of it read what it was sent, for a pipe holds 64 kB of that.
    """

    means: Mapping[str, float]
    in_turn: bool

    @classmethod
    def of(cls, starts: Sequence[WorkerStart]) -> Sending | None:
        """Of workers, of any epochs; None where one was forked, or was not timed."""
        rows = []
        for start in starts:
            began_ns, pickling_ns = start.pickling_start_ns, start.pickling_ns
            sent_bytes, unpickling_ns = start.sent_bytes, start.unpickling_ns
            if began_ns is None or pickling_ns is None or unpickling_ns is None or not sent_bytes:
                return None
            read_ns = start.ready_ns - unpickling_ns
            rows.append((start.epoch, began_ns, pickling_ns, sent_bytes, read_ns, start.ready_ns))
        if not rows:
            return None
        epoch, began, pickling, sent, read, ready = np.array(sorted(rows), dtype=np.float64).T
        waited = (began[1:] >= read[:-1])[epoch[1:] == epoch[:-1]]
        parts = (ready - began, pickling, sent, read - began - pickling, ready - read)
        means = dict(zip(MEANS, (float(part.mean()) for part in parts), strict=True))
        return cls(means, bool(len(waited) and waited.all()))
