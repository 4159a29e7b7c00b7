"""All programs with a fault that is looked for inside the loader, in the order of their themes."""

from __future__ import annotations

from bench.zoo import arrays, images, order, storage, texts, threads, workers

PROGRAMS = (
    *images.PROGRAMS,
    *texts.PROGRAMS,
    *arrays.PROGRAMS,
    *order.PROGRAMS,
    *storage.PROGRAMS,
    *workers.PROGRAMS,
    *threads.PROGRAMS,
)
