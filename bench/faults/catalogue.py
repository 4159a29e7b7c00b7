"""All programs."""

from __future__ import annotations

from bench.faults import (
    batches,
    fetches,
    formats,
    objects,
    order,
    shards,
    shared,
    texts,
    threaded,
    transforms,
    workers,
)

PROGRAMS = (
    *transforms.PROGRAMS,
    *fetches.PROGRAMS,
    *formats.PROGRAMS,
    *batches.PROGRAMS,
    *order.PROGRAMS,
    *shards.PROGRAMS,
    *shared.PROGRAMS,
    *workers.PROGRAMS,
    *threaded.PROGRAMS,
    *texts.PROGRAMS,
    *objects.PROGRAMS,
)
"""The programs in the order of their themes."""
