"""The wall clocks of the ranks of a job: how far apart they are, and how they drift."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import numpy as np

from loadeval.data.columns import UNKNOWN
from loadeval.data.run import SECOND_NS, Run

if TYPE_CHECKING:
    from loadeval.analysis.job.alignment import AlignedRanks

CLOCK_SAMPLES = 1024
"""Steps by which clocks are compared."""
PER_MILLION = 1e6


def clocks_of(ranks: AlignedRanks) -> list[tuple[float | None, float | None]]:
    """How many nanoseconds each rank's clock is ahead, and how much faster in parts per million.

    None where its log does not tell.

    All ranks ask for a batch at the same time, as they leave the step before it together.
    """
    created = [_created_ns(run) for run in ranks.runs]
    at = np.unique(np.linspace(0, ranks.request_ns.shape[1] - 1, CLOCK_SAMPLES).astype(np.intp))
    requests_ns = ranks.request_ns[:, at] if ranks.request_ns.shape[1] else ranks.request_ns
    if None in created or not requests_ns.size or (requests_ns == UNKNOWN).any():
        return [(None, None)] * len(created)
    earliest_ns = min(ns for ns in created if ns is not None)
    since_ns = np.array([(ns or 0) - earliest_ns for ns in created], dtype=np.int64)
    times_ns = (requests_ns + since_ns[:, None]).astype(np.float64)
    middle_ns = np.median(times_ns, axis=0)
    ahead_ns = times_ns - middle_ns
    half = len(middle_ns) // 2
    skews_ns = np.median(ahead_ns, axis=1).tolist()
    if not half:
        return [(skew_ns, None) for skew_ns in skews_ns]
    span_ns = float(np.median(middle_ns[half:]) - np.median(middle_ns[:half]))
    drifts_ns = np.median(ahead_ns[:, half:], axis=1) - np.median(ahead_ns[:, :half], axis=1)
    drifts = [drift / span_ns * PER_MILLION if span_ns else None for drift in drifts_ns.tolist()]
    return list(zip(skews_ns, drifts, strict=True))


def _created_ns(run: Run) -> int | None:
    try:
        return round(datetime.fromisoformat(run.header.created).timestamp() * SECOND_NS)
    except ValueError:
        return None
