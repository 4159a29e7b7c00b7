"""All programs."""

from __future__ import annotations

from tests.faults import batches, fetches, order, shared, threaded, transforms, workers

PROGRAMS = (
    *transforms.PROGRAMS,
    *fetches.PROGRAMS,
    *batches.PROGRAMS,
    *order.PROGRAMS,
    *shared.PROGRAMS,
    *workers.PROGRAMS,
    *threaded.PROGRAMS,
)
"""In the order of their themes."""
